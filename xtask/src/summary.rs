//! What a run of checks and tests came to, part by part.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Counts of tests, or of checks: clippy is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub left_out: u64,
}

/// What one part came to.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    begun: Instant,
    took: Duration,
    counts: Counts,
    failures: Vec<String>,
    /// What was left out as a whole, and why.
    left_out: Vec<String>,
}

impl Part {
    pub fn begin(name: &'static str) -> Self {
        let (counts, failures, left_out) = (Counts::default(), Vec::new(), Vec::new());
        Self { name, begun: Instant::now(), took: Duration::ZERO, counts, failures, left_out }
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
        if let Err(error) = outcome
            && heard.counts.failed == 0
        {
            self.fail(format!("{error:#}"));
        }
    }

    pub fn end(mut self) -> Self {
        self.took = self.begun.elapsed();
        self
    }
}

/// What test programs say of themselves: libtest, pytest, and the tests of this repository that have their own `main`.
#[derive(Debug, Default)]
pub struct Heard {
    counts: Counts,
    failures: Vec<String>,
}

impl Heard {
    /// Takes in a line of output.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(counts) = counts(line) {
            self.counts.passed += counts.passed;
            self.counts.failed += counts.failed;
            self.counts.left_out += counts.left_out;
        } else if let Some(name) = failure(line) {
            self.failures.push(name.to_owned());
        }
    }
}

/// The counts on a line that sums up a test program:
/// `test result: FAILED. 8 passed; 2 failed; 1 ignored; …`, `=== 2 failed, 9 passed in 3.21s ===`, `9 passed, 0 failed`.
fn counts(line: &str) -> Option<Counts> {
    let line = line.trim_matches(|character| character == '=' || character == ' ');
    let line = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1,
        None => line,
    };
    let mut counts = Counts::default();
    let mut summed = false;
    for (index, piece) in line.split([',', ';']).enumerate() {
        let mut words = piece.split_whitespace();
        let (number, word) = (words.next().and_then(|word| word.parse::<u64>().ok()), words.next());
        let (Some(number), Some(word)) = (number, word) else {
            // It begins with a number, or it is no such line.
            if index == 0 {
                return None;
            }
            continue;
        };
        match word {
            "passed" => (counts.passed, summed) = (number, true),
            "failed" => (counts.failed, summed) = (counts.failed + number, true),
            "error" | "errors" => counts.failed += number,
            "skipped" | "ignored" => counts.left_out += number,
            _ => {}
        }
    }
    summed.then_some(counts)
}

/// The name of a failed test, where a line is about one.
fn failure(line: &str) -> Option<&str> {
    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
        return Some(name);
    }
    let name = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    Some(name.split_once(" - ").map_or(name, |(name, _)| name).trim_end_matches(':'))
}

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
    for part in parts {
        for what in &part.failures {
            let _ = writeln!(text, "failed: {}: {what}", part.name);
        }
    }
    for part in parts {
        for what in &part.left_out {
            let _ = writeln!(text, "left out: {}: {what}", part.name);
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
    fn all_kinds_of_test_programs_are_understood() {
        for (line, passed, failed, left_out) in [
            (
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 25 filtered out; finished in 9.17s",
                12,
                0,
                1,
            ),
            ("test result: FAILED. 8 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", 8, 2, 0),
            ("========= 4 failed, 1038 passed, 2 skipped, 1 error in 1803.21s (0:30:03) =========", 1038, 5, 2),
            ("1044 passed in 12.3s", 1044, 0, 0),
            ("31 passed, 2 skipped, 1 failed [\"a (root)\"]", 31, 1, 2),
            ("152 passed, 0 failed", 152, 0, 0),
        ] {
            assert_eq!(counts(line), Some(Counts { passed, failed, left_out }), "{line}");
        }
        for line in
            ["running 12 tests", "3 files changed, 1 insertion", "", "test a ... ok", "it passed, 3 failed", "7"]
        {
            assert_eq!(counts(line), None, "{line}");
        }
        assert_eq!(failure("test sessions::it_works ... FAILED"), Some("sessions::it_works"));
        assert_eq!(failure("FAILED test_x.py::test_y[a] - AssertionError: no"), Some("test_x.py::test_y[a]"));
        assert_eq!(
            failure("FAILED a guardian that is killed (root, landlock):"),
            Some("a guardian that is killed (root, landlock)")
        );
        assert_eq!(failure("test result: FAILED. 1 passed; 1 failed"), None);
    }

    /// A failed run ended with a backtrace of Rust's, and nobody saw what had failed.
    #[test]
    fn the_last_line_is_plain_and_failures_are_named() {
        let mut tests = Part::begin("tests");
        let mut heard = Heard::default();
        heard.line("test one ... FAILED");
        heard.line("test result: FAILED. 3 passed; 1 failed; 0 ignored");
        tests.add(heard, Err(anyhow::anyhow!("failed: cargo test")));
        let mut lint = Part::begin("lint");
        assert!(lint.check("fmt", Ok(())) && !lint.check("clippy", Err(anyhow::anyhow!("exit status: 101"))));
        let mut python = Part::begin("python");
        python.add(Heard::default(), Err(anyhow::anyhow!("failed: the wheel")));
        python.leave_out("tests on a cluster: not root".to_owned());
        let parts = [lint.end(), tests.end(), python.end()];
        let text = table(&parts);
        assert!(text.ends_with("\n4 passed, 3 failed\n"), "{text}");
        for line in
            ["failed: tests: one", "failed: lint: clippy: exit status: 101", "failed: python: failed: the wheel"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.contains("left out: python: tests on a cluster: not root") && any_failed(&parts));
    }
}
