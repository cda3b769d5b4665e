//! What a run of checks and tests came to, part by part.

use std::collections::HashMap;
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
    /// What failed tests said, by their names.
    reasons: HashMap<String, String>,
    /// What failed at first and passed when it was repeated alone.
    flaky: Vec<String>,
    /// What was left out as a whole, and why.
    left_out: Vec<String>,
}

impl Part {
    pub fn begin(name: &'static str) -> Self {
        let (counts, took) = (Counts::default(), Duration::ZERO);
        let (failures, reasons, flaky, left_out) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        Self { name, begun: Instant::now(), took, counts, failures, reasons, flaky, left_out }
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
        again: impl Fn(&TestProgram, &[String]) -> (Heard, anyhow::Result<()>),
    ) {
        for (program, names) in heard.repeatable() {
            let (repeated, outcome) = again(&program, &names);
            // A program that failed as a whole, or didn't run all of them, has shown nothing.
            let Counts { passed, failed, .. } = repeated.counts;
            if outcome.is_err() && failed == 0 || passed + failed < names.len() as u64 {
                continue;
            }
            for name in names.into_iter().filter(|name| !repeated.failures.contains(name)) {
                heard.forgive(&name);
                heard.flaky.push(name);
            }
        }
        let outcome = if heard.counts.failed == 0 && !heard.flaky.is_empty() { Ok(()) } else { outcome };
        self.add(heard, outcome);
    }

    pub fn end(mut self) -> Self {
        self.took = self.begun.elapsed();
        self
    }
}

/// A program whose tests can be run by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestProgram {
    /// One that cargo has built: its main source file, in its package's directory, and where it is.
    Built { source: String, file: String },
    /// pytest knows itself which tests failed last.
    Pytest,
}

/// What test programs say of themselves: libtest, pytest, and the tests of this repository that have their own `main`.
#[derive(Debug, Default)]
pub struct Heard {
    counts: Counts,
    failures: Vec<String>,
    flaky: Vec<String>,
    /// Which program is running, as far as cargo says so.
    program: Option<TestProgram>,
    repeatable: Vec<(TestProgram, String)>,
    /// The failed test whose message is being read.
    explained: Option<String>,
    reasons: HashMap<String, String>,
}

/// How many lines of a failed test's message the summary shows.
const REASON_LINES: usize = 12;

impl Heard {
    /// Takes in a line of output.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(program) = program(line) {
            self.program = program;
        }
        self.reason(line);
        // Not the rows of a table of attacks: one that succeeds every other time has succeeded.
        if let Some(name) = libtest_failure(line)
            && let Some(program) = &self.program
        {
            self.repeatable.push((program.clone(), name.to_owned()));
        }
        if let Some(name) = pytest_failure(line) {
            self.repeatable.push((TestProgram::Pytest, name.to_owned()));
        }
        // vitest repeats by itself: `✓ keeps a thread's sandbox 1620ms (retry x1)`.
        if line.contains("(retry x") && line.trim_start().starts_with('✓') {
            self.flaky.push(line.trim().to_owned());
        }
        if let Some(counts) = counts(line) {
            self.counts.passed += counts.passed;
            self.counts.failed += counts.failed;
            self.counts.left_out += counts.left_out;
        } else if let Some(name) = failure(line) {
            self.failures.push(name.to_owned());
        }
    }

    /// Keeps what a failed test says.
    fn reason(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.explained = Some(name.to_owned());
        } else if let Some(name) = line.strip_prefix(" FAIL  ") {
            self.explained = Some(name.to_owned());
        } else if let Some((name, reason)) = pytest_failure(line).zip(line.split_once(" - ")) {
            self.reasons.insert(name.to_owned(), reason.1.to_owned());
        } else if line == "failures:" || line.starts_with(" ❯ ") || line.starts_with("test result: ") {
            self.explained = None;
        } else if let Some(name) = self.explained.clone()
            && !line.trim().is_empty()
        {
            let reason = self.reasons.entry(name).or_default();
            if reason.lines().count() < REASON_LINES {
                reason.push_str(line);
                reason.push('\n');
            }
        }
    }

    /// The failed tests that can be repeated, by program.
    fn repeatable(&self) -> Vec<(TestProgram, Vec<String>)> {
        let mut programs: Vec<(TestProgram, Vec<String>)> = Vec::new();
        for (program, name) in &self.repeatable {
            match programs.iter_mut().find(|(other, _)| other == program) {
                Some((_, names)) => names.push(name.clone()),
                None => programs.push((program.clone(), vec![name.clone()])),
            }
        }
        programs
    }

    /// Counts a failed test as passed.
    fn forgive(&mut self, name: &str) {
        self.failures.retain(|failed| failed != name);
        self.counts.failed = self.counts.failed.saturating_sub(1);
        self.counts.passed += 1;
    }
}

/// The test program that cargo says it runs now: `Running tests/raw/main.rs (target/debug/deps/raw-0f3a)`. Nothing where a line
/// isn't about one; no program where its tests can't be run by name.
fn program(line: &str) -> Option<Option<TestProgram>> {
    let line = line.trim_start();
    if line.starts_with("Doc-tests ") {
        return Some(None);
    }
    let (source, file) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let source = source.strip_prefix("unittests ").unwrap_or(source);
    Some(Some(TestProgram::Built { source: source.to_owned(), file: file.to_owned() }))
}

/// The counts on a line that sums up a test program:
/// `test result: FAILED. 8 passed; 2 failed; 1 ignored; …`, `=== 2 failed, 9 passed in 3.21s ===`, `9 passed, 0 failed`,
/// `Tests  1 failed | 9 passed (10)`.
fn counts(line: &str) -> Option<Counts> {
    let line = line.trim_matches(|character| character == '=' || character == ' ');
    let line = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1,
        None => line.strip_prefix("Tests ").unwrap_or(line),
    };
    let mut counts = Counts::default();
    let mut summed = false;
    for (index, piece) in line.split([',', ';', '|']).enumerate() {
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
    if let Some(name) = libtest_failure(line) {
        return Some(name);
    }
    if let Some(name) = line.strip_prefix(" FAIL  ") {
        return Some(name);
    }
    let name = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    Some(name.split_once(" - ").map_or(name, |(name, _)| name).trim_end_matches(':'))
}

fn libtest_failure(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    // How libtest marks what is expected to panic.
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

/// Only a failed test, not one whose fixture or file couldn't be loaded.
fn pytest_failure(line: &str) -> Option<&str> {
    failure(line).filter(|name| line.starts_with("FAILED ") && name.contains(".py::"))
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
            ("      Tests  1 failed | 68 passed | 2 skipped (71)", 68, 1, 2),
        ] {
            assert_eq!(counts(line), Some(Counts { passed, failed, left_out }), "{line}");
        }
        for line in [
            "running 12 tests",
            "3 files changed, 1 insertion",
            "",
            "test a ... ok",
            "it passed, 3 failed",
            "7",
            " Test Files  3 passed (3)",
        ] {
            assert_eq!(counts(line), None, "{line}");
        }
        assert_eq!(failure("test sessions::it_works ... FAILED"), Some("sessions::it_works"));
        assert_eq!(failure(" FAIL  tests/a.test.ts > a > b"), Some("tests/a.test.ts > a > b"));
        assert_eq!(failure("FAILED test_x.py::test_y[a] - AssertionError: no"), Some("test_x.py::test_y[a]"));
        assert_eq!(
            failure("FAILED a guardian that is killed (root, landlock):"),
            Some("a guardian that is killed (root, landlock)")
        );
        assert_eq!(failure("test result: FAILED. 1 passed; 1 failed"), None);
    }

    #[test]
    fn what_passes_alone_is_flaky_and_what_fails_again_has_failed() {
        let hear = |lines: &[&str]| {
            let mut heard = Heard::default();
            lines.iter().for_each(|line| heard.line(line));
            heard
        };
        let first = hear(&[
            "     Running unittests src/lib.rs (target/debug/deps/podbay-1)",
            "test a::b ... FAILED",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored",
            "     Running tests/raw/main.rs (target/debug/deps/raw-2)",
            "test slow ... FAILED",
            "test wrong ... FAILED",
            "test result: FAILED. 0 passed; 2 failed; 0 ignored",
            "     Running tests/escapes/main.rs (target/debug/deps/escapes-3)",
            "FAILED io-uring (root, landlock):",
            "8 passed, 1 failed",
            "FAILED test_x.py::test_y[a] - AssertionError: no",
            "=== 1 failed, 9 passed in 3.21s ===",
            "     ✓ keeps a thread's sandbox 1620ms (retry x1)",
        ]);
        let mut part = Part::begin("tests");
        part.add_with_repeats(first, Err(anyhow::anyhow!("failed")), |program, names| match program {
            TestProgram::Built { source, file } if file == "target/debug/deps/podbay-1" => {
                assert_eq!((source.as_str(), names), ("src/lib.rs", &["a::b".to_owned()][..]));
                (hear(&["test result: ok. 1 passed; 0 failed"]), Ok(()))
            }
            TestProgram::Built { source, file } => {
                assert_eq!((source.as_str(), file.as_str()), ("tests/raw/main.rs", "target/debug/deps/raw-2"));
                assert_eq!(names, ["slow", "wrong"]);
                let lines = ["test wrong ... FAILED", "test result: FAILED. 1 passed; 1 failed; 0 ignored"];
                (hear(&lines), Err(anyhow::anyhow!("failed")))
            }
            // It couldn't be run at all.
            TestProgram::Pytest => (hear(&[]), Err(anyhow::anyhow!("killed"))),
        });
        assert_eq!(part.flaky, ["✓ keeps a thread's sandbox 1620ms (retry x1)", "a::b", "slow"]);
        assert_eq!(part.counts, Counts { passed: 22, failed: 3, left_out: 0 });
        assert_eq!(part.failures, ["wrong", "io-uring (root, landlock)", "test_x.py::test_y[a]"]);
        let text = table(&[part.end()]);
        assert!(text.contains("flaky: tests: slow (failed, then passed alone)"), "{text}");

        let mut part = Part::begin("tests");
        let once = [
            "     Running tests/a.rs (target/debug/deps/a-1)",
            "test x ... FAILED",
            "test result: FAILED. 0 passed; 1 failed",
        ];
        let passes = |_: &TestProgram, _: &[String]| (hear(&["test result: ok. 1 passed; 0 failed"]), Ok(()));
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
