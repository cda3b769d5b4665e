//! The test programs that cargo builds: built once for all parts, and run several at a time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::heard::Heard;
use crate::tools::{self, cargo, target_dir};

/// How many programs run at the same time, beside one of [`ALONE`]. Near its end, each waits for its slowest test.
const AT_ONCE: usize = 2;

/// What uses the test cluster. What takes longest begins first, so that nothing is left to wait for at the end.
const ON_THE_CLUSTER: [&str; 11] = [
    "k8s/raw",
    "podbay/stock_runtime",
    "k8s/agent_sandbox",
    "podbay/agent_sandbox",
    "rig/rig",
    "podbay/escapes",
    "cli/cli",
    "podbay/raw",
    "podbay/router_only",
    "podbay/upstream_sdk",
    "k8s/access",
];

/// These stop the test cluster's API server or taint its node, so nothing that uses the cluster may run beside them.
const ALONE: [&str; 3] = ["k8s/outage", "k8s/agent_sandbox_outage", "k8s/taints"];

/// What needs no cluster and takes longest, which begins before all others that need none.
const LONG: [&str; 1] = ["local/local"];

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

    /// Takes those of `names` out of `programs`, in that order.
    fn taken_from(programs: &mut Vec<Self>, names: &[&str]) -> VecDeque<Self> {
        let mut taken = VecDeque::new();
        for name in names {
            if let Some(place) = programs.iter().position(|program| program.name == *name) {
                taken.push_back(programs.remove(place));
            }
        }
        taken
    }
}

/// Programs that wait for their turn.
struct Queue(Mutex<VecDeque<Program>>);

impl Queue {
    fn next(&self) -> Option<Program> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Runs all programs and the examples in the documentation: first what uses the cluster, then all else, beside which those that need
/// the cluster for themselves run one after the other.
pub fn run(mut programs: Vec<Program>, environment: &Environment) -> (Vec<Ran>, (Heard, Result<()>)) {
    let [on_the_cluster, alone, mut others] =
        [&ON_THE_CLUSTER[..], &ALONE, &LONG].map(|names| Program::taken_from(&mut programs, names));
    others.extend(programs);
    let [on_the_cluster, alone, others] = [on_the_cluster, alone, others].map(|queue| Queue(Mutex::new(queue)));
    let ran = Mutex::new(Vec::new());
    let run_all = |queue: &Queue| {
        while let Some(program) = queue.next() {
            let result = program.run(environment);
            ran.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    // Nobody sends anything. It closes when nothing uses the cluster any more.
    let (uses_the_cluster, cluster_is_free) = mpsc::channel::<Infallible>();
    let examples = std::thread::scope(|scope| {
        for uses_the_cluster in std::iter::repeat_n(uses_the_cluster, AT_ONCE) {
            scope.spawn(|| {
                run_all(&on_the_cluster);
                drop(uses_the_cluster);
                run_all(&others);
            });
        }
        let _ = cluster_is_free.recv();
        let examples = scope.spawn(|| examples(environment));
        run_all(&alone);
        examples.join()
    });
    let examples = examples.unwrap_or_else(|_| (Heard::default(), Err(anyhow!("xtask itself panicked"))));
    (ran.into_inner().unwrap_or_else(PoisonError::into_inner), examples)
}

/// The examples in the documentation, which cargo builds and runs itself.
fn examples(environment: &Environment) -> (Heard, Result<()>) {
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

    /// The test programs of all packages with where their code is. Unit tests aren't among them: they need no cluster.
    fn known() -> Vec<(String, PathBuf)> {
        let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
        let packages = entries(&root().join("crates")).chain(["rig", "xtask"].map(|package| root().join(package)));
        let programs = packages.flat_map(|package| {
            let folder = package.file_name().unwrap().to_str().unwrap().to_owned();
            let tests = entries(&package.join("tests")).filter(|path| {
                path.join("main.rs").exists() || path.extension().is_some_and(|extension| extension == "rs")
            });
            tests
                .map(move |path| (format!("{folder}/{}", path.file_stem().unwrap().to_str().unwrap()), path))
                .collect::<Vec<_>>()
        });
        programs.collect()
    }

    /// Whether a test program's code, a file or all files of a folder, names the rig.
    fn names_the_rig(path: &Path) -> bool {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.into_iter().any(|entry| names_the_rig(&entry.unwrap().path())),
            Err(_) => std::fs::read_to_string(path).is_ok_and(|text| text.contains("rig::")),
        }
    }

    /// What stops the API server runs beside what isn't listed.
    #[test]
    fn exactly_the_programs_that_use_the_cluster_are_listed_as_such() {
        let listed: Vec<&str> = ON_THE_CLUSTER.into_iter().chain(ALONE).collect();
        let known = known();
        for name in listed.iter().chain(&LONG) {
            assert!(known.iter().any(|(known, _)| known == name), "there is no {name}");
        }
        for (name, path) in known {
            assert_eq!(names_the_rig(&path), listed.contains(&name.as_str()), "{name}");
        }
    }
}
