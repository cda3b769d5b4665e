//! The Python package: its environment, its checks, its wheel, its tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use anyhow::{Context, Result};
use rig::{Cache, Cluster};

use crate::heard::Heard;
use crate::reference;
use crate::summary::Part;
use crate::tools::{root, run, run_labelled_tests, run_tests, say, target_dir};

/// What checks, builds and tests the package. Pinned: a newer linter mustn't break an old commit.
const TOOLS: [&str; 14] = [
    "blockbuster==1.5.29",
    "deepagents==0.7.32",
    "fastapi==0.162.4",
    "httpx==0.28.1",
    "k8s-agent-sandbox==1.0.8",
    "langchain-tests==1.1.9",
    "langgraph-checkpoint-sqlite==3.1.2",
    "langgraph-cli[inmem]==0.4.40",
    "maturin==1.16.0",
    "mypy==2.4.1",
    "pytest==9.2.0",
    "ruff==0.17.4",
    "uvloop==0.23.0",
    // The matcher of the SDK's other backends. From version 12 on, `sub/**/` finds no files; the SDK's scripts still find them.
    "wcmatch==11.2",
];

/// What the benchmark measures beside Podbay.
const BESIDE: [&str; 5] = [
    "deepagents==0.7.32",
    "k8s-agent-sandbox==1.0.8",
    "kubernetes==37.0.2",
    "langchain-k8s==0.7.1",
    "langchain-kubernetes==0.4.0",
];

/// The package's directory.
fn package() -> PathBuf {
    root().join("python")
}

/// A virtual environment in the cache, with the tools.
pub struct Environment(PathBuf);

impl Environment {
    fn ready() -> Result<Self> {
        Self::with("podbay", &TOOLS)
    }

    /// An environment of that name with these packages.
    pub fn with(name: &str, packages: &[&str]) -> Result<Self> {
        let dir = Cache::place()?.join("python").join(name);
        let wanted = packages.join("\n");
        let note = dir.join("tools");
        // Parts that run at the same time use the same ones.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if std::fs::read_to_string(&note).ok().as_deref() != Some(&wanted) {
            say(&format!("making a Python environment: {name}"));
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
            run(Command::new(dir.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
            std::fs::write(&note, wanted)?;
        }
        Ok(Self(dir))
    }

    fn install(&self, wheel: &Path) -> Result<()> {
        run(self
            .program("python")
            .args(["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", "--no-index"])
            .arg(wheel))
    }

    /// A program of the environment, run in the package's directory.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("bin").join(name));
        // Without bytecode, programs compile all of LangChain again whenever they start.
        command.current_dir(package()).env_remove("PYTHONDONTWRITEBYTECODE");
        command
    }
}

/// A Python with the Deep Agents SDK, whose contracts the core is compared with.
pub fn with_deepagents() -> Result<PathBuf> {
    Ok(Environment::ready()?.0.join("bin/python"))
}

/// Style and types.
pub fn lint(results: &mut Part) {
    let environment = match Environment::ready() {
        Ok(environment) => environment,
        Err(error) => return results.fail(format!("no Python environment: {error:#}")),
    };
    let ruff = |arguments: &[&str]| {
        let generator = reference::python_generator();
        run(environment.program("ruff").args(arguments).args(["--config", "pyproject.toml", "."]).arg(generator))
    };
    results.check("ruff check", ruff(&["check"]));
    results.check("ruff format", ruff(&["format", "--check"]));
    results.check("mypy", run(&mut environment.program("mypy")));
}

/// Tests that run at the same time, each group with its own accounts on the cluster: what to tell pytest, and what to call them.
const GROUPS: [(&str, &[&str]); 3] = [
    ("pytest: deepagents", &["deepagents"]),
    ("pytest: compat", &["compat"]),
    ("pytest: all others", &["--ignore=deepagents", "--ignore=compat"]),
];

/// Builds the wheel, installs it and runs the tests on what was installed; with a cluster also those that need one.
pub fn test(cluster: Option<&Cluster>, soak: bool, results: &mut Part) {
    let ready = installed().and_then(|(environment, wheel)| {
        // The last is the matrix's.
        let rigs = (0..=GROUPS.len()).map(|group| match cluster {
            Some(cluster) => rig_variables(cluster, group),
            None => Ok(Vec::new()),
        });
        Ok((environment, wheel, rigs.collect::<Result<Vec<_>>>()?))
    });
    let (environment, wheel, rigs) = match ready {
        Ok(ready) => ready,
        // Without the wheel there is nothing to test.
        Err(error) => return results.fail(format!("the wheel: {error:#}")),
    };
    results.check("docs/reference/python.md", reference::check_python(&environment));
    let mut groups: Vec<_> = GROUPS.iter().zip(&rigs).map(|(group, rig)| pytest(&environment, group, rig)).collect();
    let mut matrix = environment.program("python");
    matrix
        .arg("tests/deepagents/matrix.py")
        .arg(&wheel)
        .env_remove("PODBAY_RIG")
        .envs(rigs.into_iter().next_back().unwrap_or_default());
    if soak {
        for tests in groups.iter_mut().chain([&mut matrix]) {
            tests.env(crate::test::SOAK, "1");
        }
    }
    let labels = GROUPS.map(|(label, _)| label).into_iter().chain(["matrix.py"]);
    let ran: Vec<_> = std::thread::scope(|scope| {
        let run = |(tests, label): (_, &'static str)| {
            scope.spawn(move || {
                let begun = Instant::now();
                (run_labelled_tests(tests, label), begun.elapsed())
            })
        };
        let running: Vec<_> = groups.iter_mut().chain([&mut matrix]).zip(labels.clone()).map(run).collect();
        running.into_iter().map(ScopedJoinHandle::join).collect()
    });
    // Only groups of pytest can be repeated.
    let repeatable = groups.iter_mut().map(Some).chain([None]);
    for ((ran, pytest), label) in ran.into_iter().zip(repeatable).zip(labels) {
        let Ok(((heard, outcome), took)) = ran else {
            results.fail(format!("{label}: xtask itself panicked"));
            continue;
        };
        match pytest {
            Some(pytest) => add_pytest(heard, outcome, pytest, results),
            // What needs a cluster is left out there on purpose: the other groups have it.
            None => {
                let mut heard = heard;
                heard.counts.left_out = 0;
                results.add(heard, outcome);
            }
        }
        results.took(label.to_owned(), took);
    }
}

/// Runs pytest, and what failed again.
pub fn run_pytest(pytest: &mut Command, results: &mut Part) {
    let (heard, outcome) = run_tests(pytest);
    add_pytest(heard, outcome, pytest, results);
}

/// Adds what pytest said, and repeats what failed.
fn add_pytest(heard: Heard, outcome: Result<()>, pytest: &mut Command, results: &mut Part) {
    results.add_with_repeats(heard, outcome, |_| {
        run_tests(pytest.args(["--last-failed", "--last-failed-no-failures", "none"]))
    });
}

/// Builds the wheel and installs it, once for all parts of a run.
pub fn installed() -> Result<(Environment, PathBuf)> {
    static WHEEL: Mutex<Option<PathBuf>> = Mutex::new(None);
    let environment = Environment::ready()?;
    let mut wheel = WHEEL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wheel) = &*wheel {
        return Ok((environment, wheel.clone()));
    }
    let built = build(&environment, "dev")?;
    environment.install(&built)?;
    *wheel = Some(built.clone());
    Ok((environment, built))
}

/// pytest, ready to run a group of tests.
fn pytest(environment: &Environment, group: &(&str, &[&str]), rig: &[(&str, OsString)]) -> Command {
    let (label, arguments) = group;
    let mut pytest = environment.program("pytest");
    // In the cache is which tests failed.
    pytest.arg("-o").arg(format!("cache_dir=.pytest_cache/{}", label.replace([' ', ':'], "")));
    pytest.args(["--durations=10", "--durations-min=5"]).args(*arguments);
    // From the tests' directory, so that nothing imports the source tree in place of the wheel.
    pytest.current_dir(package().join("tests")).env_remove("PODBAY_RIG");
    pytest.envs(rig.iter().map(|(name, value)| (name, value)));
    pytest
}

/// What tells a group of tests where the cluster is, after it was prepared for them.
fn rig_variables(cluster: &Cluster, group: usize) -> Result<Vec<(&'static str, OsString)>> {
    let tests = package().join("tests");
    let account = |name: &str, roles: &str| -> Result<(OsString, String)> {
        let file = target_dir().join(format!("python-{name}-kubeconfig-{group}"));
        let kubeconfig = cluster.account(&tests.join(roles))?;
        std::fs::write(&file, &kubeconfig)?;
        Ok((file.into(), kubeconfig))
    };
    let (claims_file, kubeconfig) = account("claims", "roles-agent-sandbox.yaml")?;
    let claims = std::fs::read_to_string(tests.join("claims.yaml"))?;
    cluster.apply(&claims.replace("NAMESPACE", &namespace_in(&kubeconfig)?))?;
    // What to put before a command that has to run in the cluster's network.
    let inside = cluster.inside("")?;
    let words = std::iter::once(inside.get_program()).chain(inside.get_args()).map(|word| word.to_string_lossy());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    Ok(vec![
        ("PODBAY_RIG", "1".into()),
        ("KUBECONFIG", account("own", "roles.yaml")?.0),
        // Only what needs rights in all namespaces has them.
        ("WIDE_KUBECONFIG", account("wide", "roles-everywhere.yaml")?.0),
        ("CLAIMS_KUBECONFIG", claims_file),
        // What tests do to sandboxes without Podbay.
        ("HARNESS_KUBECONFIG", account("harness", "roles-harness.yaml")?.0),
        ("RIG_KUBECTL", cluster.programs().join("kubectl").into()),
        ("RIG_INSIDE", serde_json::to_string(&words)?.into()),
    ])
}

/// The namespace that a kubeconfig of the rig names.
fn namespace_in(kubeconfig: &str) -> Result<String> {
    let kubeconfig: serde_json::Value = serde_json::from_str(kubeconfig).context("the kubeconfig isn't JSON")?;
    let namespace = kubeconfig["contexts"][0]["context"]["namespace"].as_str();
    namespace.map(str::to_owned).context("the kubeconfig has no namespace")
}

/// What measures the package on this machine.
pub fn bench() -> Result<Command> {
    let wheel = build(&Environment::ready()?, "release")?;
    let environment = Environment::with("podbay-bench", &BESIDE)?;
    environment.install(&wheel)?;
    let mut bench = environment.program("python");
    bench.arg("benches/overhead.py");
    Ok(bench)
}

/// What measures it beside others in the cluster's network, after [`bench()`]: pods have no address outside of it.
pub fn bench_inside(cluster: &Cluster) -> Result<Vec<Command>> {
    let python = Environment::with("podbay-bench", &BESIDE)?.0.join("bin/python");
    let inside = |script: &str| {
        let mut bench = cluster.inside(python.to_str().context("a path that isn't UTF-8")?)?;
        bench.arg(package().join("benches").join(script));
        Ok(bench)
    };
    ["operations.py", "claims.py"].into_iter().map(inside).collect()
}

/// The wheel, built as `pip install ./python` does it. pip builds in place, so by the profile `dev` what `cargo test` has
/// compiled isn't compiled again.
fn build(environment: &Environment, profile: &str) -> Result<PathBuf> {
    let out = target_dir().join("wheels");
    if out.exists() {
        std::fs::remove_dir_all(&out).with_context(|| format!("{} can't be emptied", out.display()))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(environment.0.join("bin")).chain(std::env::split_paths(&path));
    run(environment
        .program("python")
        .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"])
        .args([&out, &package()])
        .env("MATURIN_PEP517_ARGS", format!("--profile {profile} --strip"))
        .env("PATH", std::env::join_paths(path)?))?;
    only_file(&out)
}

fn only_file(dir: &Path) -> Result<PathBuf> {
    let entry =
        std::fs::read_dir(dir)?.next().with_context(|| format!("maturin made no wheel in {}", dir.display()))?;
    Ok(entry?.path())
}
