//! What test programs print about passed and failed tests.

use std::collections::HashMap;

/// Counts of tests, or of checks: clippy is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub left_out: u64,
}

/// What test programs say of themselves: libtest, pytest, and the tests of this repository that have their own `main`.
#[derive(Debug, Default)]
pub struct Heard {
    pub counts: Counts,
    pub failures: Vec<String>,
    pub flaky: Vec<String>,
    /// The failed tests that can be repeated.
    pub repeatable: Vec<String>,
    /// What failed tests said, by their names.
    pub reasons: HashMap<String, String>,
    /// The failed test whose message is being read.
    explained: Option<String>,
}

/// How many lines of a failed test's message the summary shows.
const REASON_LINES: usize = 12;

impl Heard {
    /// Takes in a line of output.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_end();
        self.reason(line);
        // Not the rows of a table of attacks: one that succeeds every other time has succeeded.
        if let Some(name) = libtest_failure(line).or_else(|| pytest_failure(line)) {
            self.repeatable.push(name.to_owned());
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

    /// Counts a failed test as passed.
    pub fn forgive(&mut self, name: &str) {
        self.failures.retain(|failed| failed != name);
        self.counts.failed = self.counts.failed.saturating_sub(1);
        self.counts.passed += 1;
    }
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
}
