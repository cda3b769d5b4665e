//! What a run of checks and tests came to, part by part.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::heard::{Counts, Heard};

/// What one part came to.
#[derive(Debug, Clone)]
pub struct Part {
    name: &'static str,
    begun: Instant,
    took: Duration,
    counts: Counts,
    failures: Vec<String>,
    /// What failed tests said, by their names.
    reasons: HashMap<String, String>,
    /// What failed at first and passed when it was repeated alone.
    flaky: Vec<String>,
    /// What was left out as a whole, and why.
    left_out: Vec<String>,
    /// How long each of its programs took.
    programs: Vec<(String, Duration)>,
}

impl Part {
    pub fn begin(name: &'static str) -> Self {
        let (counts, took) = (Counts::default(), Duration::ZERO);
        let (failures, flaky, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let (reasons, programs) = (HashMap::new(), Vec::new());
        Self { name, begun: Instant::now(), took, counts, failures, reasons, flaky, left_out, programs }
    }

    /// Notes a check that passed or failed as a whole. Whether it passed.
    pub fn check(&mut self, what: &str, outcome: anyhow::Result<()>) -> bool {
        match outcome {
            Ok(()) => self.counts.passed += 1,
            Err(error) => self.fail(format!("{what}: {error:#}")),
        }
        self.failures.is_empty()
    }

    pub fn fail(&mut self, what: String) {
        self.counts.failed += 1;
        self.failures.push(what);
    }

    pub fn leave_out(&mut self, what: String) {
        self.left_out.push(what);
    }

    /// Adds what test programs said. One that failed without a failed test, because it didn't compile or was killed,
    /// counts as a failure itself.
    pub fn add(&mut self, heard: Heard, outcome: anyhow::Result<()>) {
        self.counts.passed += heard.counts.passed;
        self.counts.left_out += heard.counts.left_out;
        self.counts.failed += heard.counts.failed;
        // Some programs name a failure twice, or count what they don't name.
        self.failures.extend(heard.failures);
        self.reasons.extend(heard.reasons);
        self.flaky.extend(heard.flaky);
        if let Err(error) = outcome
            && heard.counts.failed == 0
        {
            self.fail(format!("{error:#}"));
        }
    }

    /// Adds what test programs said, and repeats what failed: `again` runs the failed tests of one program alone.
    ///
    /// On a busy machine a deadline passes now and then that nothing is wrong with. A test that passes alone counts as passed
    /// and is listed as flaky, so that it gets mended.
    pub fn add_with_repeats(
        &mut self,
        mut heard: Heard,
        outcome: anyhow::Result<()>,
        again: impl FnOnce(&[String]) -> (Heard, anyhow::Result<()>),
    ) {
        let names = std::mem::take(&mut heard.repeatable);
        if names.is_empty() {
            return self.add(heard, outcome);
        }
        let (repeated, repetition) = again(&names);
        let Counts { passed, failed, .. } = repeated.counts;
        // A program that failed as a whole, or didn't run all of them, has shown nothing.
        if (repetition.is_ok() || failed > 0) && passed + failed >= names.len() as u64 {
            for name in names.into_iter().filter(|name| !repeated.failures.contains(name)) {
                heard.forgive(&name);
                heard.flaky.push(name);
            }
        }
        let outcome = if heard.counts.failed == 0 && !heard.flaky.is_empty() { Ok(()) } else { outcome };
        self.add(heard, outcome);
    }

    /// Notes how long one of its programs took.
    pub fn took(&mut self, program: String, time: Duration) {
        self.programs.push((program, time));
    }

    pub fn end(mut self) -> Self {
        self.took = self.begun.elapsed();
        self
    }
}

/// How many of the programs that took longest the summary names.
const LONGEST: usize = 12;

/// A table of all parts, what failed and what was left out; the last line is `N passed, N failed`.
pub fn table(parts: &[Part]) -> String {
    let mut text = format!("\n{:<10} {:>7} {:>7} {:>9} {:>9}\n", "part", "passed", "failed", "left out", "time");
    let mut total = Counts::default();
    for part in parts {
        let Counts { passed, failed, left_out } = part.counts;
        let minutes = part.took.as_secs_f64() / 60.0;
        let _ = writeln!(text, "{:<10} {passed:>7} {failed:>7} {left_out:>9} {minutes:>5.1} min", part.name);
        total.passed += passed;
        total.failed += failed;
    }
    let mut programs: Vec<_> = parts.iter().flat_map(|part| &part.programs).collect();
    programs.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    for (program, time) in programs.into_iter().take(LONGEST) {
        let _ = writeln!(text, "long: {program}: {:.0} s", time.as_secs_f64());
    }
    for part in parts {
        for what in &part.flaky {
            let _ = writeln!(text, "flaky: {}: {what} (failed, then passed alone)", part.name);
        }
    }
    for part in parts {
        for what in &part.left_out {
            let _ = writeln!(text, "left out: {}: {what}", part.name);
        }
    }
    // Last, where it is seen first.
    for part in parts {
        for what in &part.failures {
            let _ = writeln!(text, "failed: {}: {what}", part.name);
            for line in part.reasons.get(what).map_or("", String::as_str).lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    let _ = writeln!(text, "\n{} passed, {} failed", total.passed, total.failed);
    text
}

/// Whether anything failed.
pub fn any_failed(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.counts.failed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_alone_is_flaky_and_what_fails_again_has_failed() {
        let hear = |lines: &[&str]| {
            let mut heard = Heard::default();
            lines.iter().for_each(|line| heard.line(line));
            heard
        };
        let first = hear(&[
            "test slow ... FAILED",
            "test wrong ... FAILED",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored",
            "FAILED io-uring (root, landlock):",
            "8 passed, 1 failed",
            "     ✓ keeps a thread's sandbox 1620ms (retry x1)",
        ]);
        let mut part = Part::begin("tests");
        part.add_with_repeats(first, Err(anyhow::anyhow!("failed")), |names| {
            assert_eq!(names, ["slow", "wrong"]);
            let lines = ["test wrong ... FAILED", "test result: FAILED. 1 passed; 1 failed; 0 ignored"];
            (hear(&lines), Err(anyhow::anyhow!("failed")))
        });
        let pytest = ["FAILED test_x.py::test_y[a] - AssertionError: no", "=== 1 failed, 9 passed in 3.21s ==="];
        part.add_with_repeats(hear(&pytest), Err(anyhow::anyhow!("failed")), |names| {
            assert_eq!(names, ["test_x.py::test_y[a]"]);
            (hear(&[]), Err(anyhow::anyhow!("it couldn't be run at all")))
        });
        assert_eq!(part.flaky, ["✓ keeps a thread's sandbox 1620ms (retry x1)", "slow"]);
        assert_eq!(part.counts, Counts { passed: 19, failed: 3, left_out: 0 });
        assert_eq!(part.failures, ["wrong", "io-uring (root, landlock)", "test_x.py::test_y[a]"]);
        part.took("k8s/raw".to_owned(), Duration::from_secs(200));
        let text = table(&[part.end()]);
        assert!(text.contains("flaky: tests: slow (failed, then passed alone)"), "{text}");
        assert!(text.contains("long: k8s/raw: 200 s"), "{text}");

        let mut part = Part::begin("tests");
        let once = ["test x ... FAILED", "test result: FAILED. 0 passed; 1 failed"];
        let passes = |_: &[String]| (hear(&["test result: ok. 1 passed; 0 failed"]), Ok(()));
        part.add_with_repeats(hear(&once), Err(anyhow::anyhow!("failed")), passes);
        assert!(!any_failed(&[part.end()]));
    }

    /// A failed run ended with a backtrace of Rust's, and nobody saw what had failed.
    #[test]
    fn the_last_line_is_plain_and_failures_are_named() {
        let mut tests = Part::begin("tests");
        let mut heard = Heard::default();
        for line in [
            "test one ... FAILED",
            "failures:",
            "---- one stdout ----",
            "",
            "thread 'one' (7) panicked at src/one.rs:3:5:",
            "it isn't two",
            "",
            "failures:",
            "    one",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored",
            "FAILED test_x.py::test_y[a] - AssertionError: no",
            " FAIL  tests/a.test.ts > a > b",
            "AssertionError: expected 1 to be 2",
            " ❯ tests/a.test.ts:12:5",
            "    - 1",
        ] {
            heard.line(line);
        }
        tests.add(heard, Err(anyhow::anyhow!("failed: cargo test")));
        let mut lint = Part::begin("lint");
        assert!(lint.check("fmt", Ok(())) && !lint.check("clippy", Err(anyhow::anyhow!("exit status: 101"))));
        let mut python = Part::begin("python");
        python.add(Heard::default(), Err(anyhow::anyhow!("failed: the wheel")));
        python.leave_out("tests on a cluster: not root".to_owned());
        let parts = [lint.end(), tests.end(), python.end()];
        let text = table(&parts);
        assert!(text.ends_with("\n4 passed, 3 failed\n"), "{text}");
        for line in [
            "failed: tests: one\n    thread 'one' (7) panicked at src/one.rs:3:5:\n    it isn't two\nfailed: ",
            "failed: tests: test_x.py::test_y[a]\n    AssertionError: no\n",
            "failed: tests: tests/a.test.ts > a > b\n    AssertionError: expected 1 to be 2\n",
            "failed: lint: clippy: exit status: 101",
            "failed: python: failed: the wheel",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.contains("left out: python: tests on a cluster: not root") && any_failed(&parts));
    }
}
