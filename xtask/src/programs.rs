//! The test programs that cargo builds: built once for all parts, and run several at a time.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::heard::Heard;
use crate::tools::{self, cargo, target_dir};

/// How many programs run at the same time. Near its end, each waits for its slowest test.
const AT_ONCE: usize = 2;

/// What takes longest begins first, so that nothing is left to wait for at the end.
const FIRST: [&str; 8] = [
    "k8s/raw",
    "podbay/stock_runtime",
    "k8s/agent_sandbox",
    "podbay/agent_sandbox",
    "rig/rig",
    "podbay/escapes",
    "cli/cli",
    "local/local",
];

/// These stop the test cluster's API server, so nothing else may run beside them.
const ALONE: [&str; 2] = ["k8s/outage", "k8s/agent_sandbox_outage"];

/// Variables for the programs.
pub type Environment = Vec<(&'static str, OsString)>;

/// A test program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its package's directory and its own name: `k8s/raw`.
    pub name: String,
    file: PathBuf,
    /// The package's directory, in which cargo runs it.
    dir: PathBuf,
}

/// What a program came to.
pub struct Ran {
    pub program: Program,
    pub heard: Heard,
    pub outcome: Result<()>,
    pub took: Duration,
}

/// Builds all tests, and the command line with them. Nothing less: a part alone has other features, so its dependencies would be
/// compiled again.
pub fn build() -> Result<Vec<Program>> {
    let mut build = cargo();
    build.args(["test", "--quiet", "--workspace", "--all-features", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("can't run cargo")?;
    if !output.status.success() {
        bail!("the tests can't be built ({})", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect())
}

/// The test program that a message of cargo's is about.
fn program(message: &Value) -> Option<Program> {
    let file = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let folder = dir.file_name().and_then(OsStr::to_str)?;
    let name = match message["target"]["kind"][0].as_str()? {
        "test" => message["target"]["name"].as_str()?,
        _ => "unit",
    };
    Some(Program { name: format!("{folder}/{name}"), file: file.into(), dir: dir.to_owned() })
}

/// The command line, built with the tests.
pub fn command_line() -> Result<PathBuf> {
    build()?;
    Ok(target_dir().join("debug/podbay"))
}

/// One test program, built with all others.
pub fn find(name: &str) -> Result<Program> {
    let program = build()?.into_iter().find(|program| program.name == name);
    program.with_context(|| format!("cargo built no test program {name}"))
}

impl Program {
    /// Prepares a command to run it as cargo would. `wrapper` comes before the program.
    pub fn command(&self, wrapper: &[&str]) -> Command {
        let mut command = match wrapper {
            [] => Command::new(&self.file),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.file);
                command
            }
        };
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command
    }

    /// Runs some of its tests, one after the other.
    pub fn repeat(&self, names: &[String], environment: &Environment) -> (Heard, Result<()>) {
        tools::run_labelled_tests(&mut self.some(names, environment), &self.name)
    }

    fn some(&self, names: &[String], environment: &Environment) -> Command {
        let mut command = self.command(&[]);
        command.envs(environment.iter().cloned()).env("RUST_TEST_THREADS", "1").arg("--exact").args(names);
        command
    }

    fn run(self, environment: &Environment) -> Ran {
        let begun = Instant::now();
        let (heard, outcome) =
            tools::run_labelled_tests(self.command(&[]).envs(environment.iter().cloned()), &self.name);
        Ran { program: self, heard, outcome, took: begun.elapsed() }
    }

    /// When it begins: the lower, the earlier.
    fn rank(&self) -> usize {
        FIRST.iter().position(|first| self.name == *first).unwrap_or(FIRST.len())
    }
}

/// Runs all programs.
pub fn run(mut programs: Vec<Program>, environment: &Environment) -> Vec<Ran> {
    programs.sort_by_key(Program::rank);
    let (alone, together): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| ALONE.contains(&program.name.as_str()));
    let (queue, ran) = (Mutex::new(VecDeque::from(together)), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let result = program.run(environment);
                    ran.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    let mut ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    ran.extend(alone.into_iter().map(|program| program.run(environment)));
    ran
}

/// The examples in the documentation, which cargo builds and runs itself.
pub fn examples(environment: &Environment) -> (Heard, Result<()>) {
    let mut examples = cargo();
    examples.args(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
    tools::run_labelled_tests(examples.envs(environment.iter().cloned()), "examples")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::root;

    #[test]
    fn a_program_runs_in_its_packages_directory() {
        let own = std::env::current_exe().unwrap();
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "executable": own, "manifest_path": root().join("xtask/Cargo.toml"), "profile": { "test": test },
                "target": { "kind": [kind], "name": "cluster" },
            })
        };
        assert_eq!(program(&message("test", true)).unwrap().name, "xtask/cluster");
        assert!(program(&message("bin", false)).is_none());
        let unit = program(&message("bin", true)).unwrap();
        assert_eq!(unit.name, "xtask/unit");
        assert_eq!(unit.command(&[]).get_current_dir(), Some(Path::new(env!("CARGO_MANIFEST_DIR"))));
        let known = "heard::tests::all_kinds_of_test_programs_are_understood".to_owned();
        // Not by `repeat`, whose output would be counted with that of this test.
        let printed = String::from_utf8(unit.some(&[known], &vec![]).output().unwrap().stdout).unwrap();
        assert!(printed.contains("1 passed; 0 failed"), "{printed}");
    }

    #[test]
    fn programs_with_a_place_in_the_order_exist() {
        for name in FIRST.iter().chain(&ALONE) {
            let (package, test) = name.split_once('/').unwrap();
            let tests = [root().join("crates"), root()].map(|parent| parent.join(package).join("tests"));
            let is_there = |tests: &PathBuf| {
                tests.join(test).join("main.rs").exists() || tests.join(format!("{test}.rs")).exists()
            };
            assert!(tests.iter().any(is_there), "{name}");
        }
    }
}
