//! The Python package: its environment, its checks, its wheel, its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rig::{Cache, Cluster};

use crate::reference;
use crate::summary::Part;
use crate::tools::{root, run, run_tests, say};

/// What checks, builds and tests the package. Pinned: a newer linter mustn't break an old commit.
const TOOLS: [&str; 12] = [
    "blockbuster==1.5.29",
    "deepagents==0.7.32",
    "fastapi==0.162.4",
    "httpx==0.28.1",
    "langchain-tests==1.1.9",
    "langgraph-checkpoint-sqlite==3.1.2",
    "langgraph-cli[inmem]==0.4.40",
    "maturin==1.16.0",
    "mypy==2.4.1",
    "pytest==9.2.0",
    "ruff==0.17.4",
    "uvloop==0.23.0",
];

/// What the benchmark measures beside Podbay.
const BESIDE: [&str; 3] = ["deepagents==0.7.32", "kubernetes==37.0.2", "langchain-kubernetes==0.4.0"];

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

    fn with(name: &str, packages: &[&str]) -> Result<Self> {
        let dir = Cache::place()?.join("python").join(name);
        let wanted = packages.join("\n");
        let note = dir.join("tools");
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
        command.current_dir(package());
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

/// Builds the wheel, installs it and runs the tests on what was installed; with a cluster also those that need one.
pub fn test(cluster: Option<&Cluster>, soak: bool, results: &mut Part) {
    let ready = installed().and_then(|(environment, wheel)| {
        let mut pytest = pytest(&environment, cluster)?;
        if soak {
            pytest.env(crate::test::SOAK, "1");
        }
        Ok((environment, wheel, pytest))
    });
    let (environment, wheel, mut pytest) = match ready {
        Ok(ready) => ready,
        // Without the wheel there is nothing to test.
        Err(error) => return results.fail(format!("the wheel: {error:#}")),
    };
    results.check("docs/reference/python.md", reference::check_python(&environment));
    let (heard, outcome) = run_tests(&mut pytest);
    results.add(heard, outcome);
    let matrix = run(environment.program("python").arg("tests/deepagents/matrix.py").arg(&wheel));
    results.check("versions of Deep Agents (matrix.py)", matrix);
}

/// Builds the wheel and installs it.
pub fn installed() -> Result<(Environment, PathBuf)> {
    let environment = Environment::ready()?;
    let wheel = build(&environment, "dev")?;
    environment.install(&wheel)?;
    Ok((environment, wheel))
}

/// pytest, ready to run.
fn pytest(environment: &Environment, cluster: Option<&Cluster>) -> Result<Command> {
    let tests = package().join("tests");
    let mut pytest = environment.program("pytest");
    // From the tests' directory, so that nothing imports the source tree in place of the wheel.
    pytest.current_dir(&tests).env_remove("PODBAY_RIG");
    if let Some(cluster) = cluster {
        let account = |name: &str, roles: &str| -> Result<PathBuf> {
            let kubeconfig = root().join("target").join(name);
            std::fs::write(&kubeconfig, cluster.account(&tests.join(roles))?)?;
            Ok(kubeconfig)
        };
        pytest.env("PODBAY_RIG", "1").env("KUBECONFIG", account("python-kubeconfig", "roles.yaml")?);
        // Only what needs rights in all namespaces has them.
        pytest.env("WIDE_KUBECONFIG", account("python-wide-kubeconfig", "roles-everywhere.yaml")?);
    }
    Ok(pytest)
}

/// What measures the package beside others: it needs a KUBECONFIG.
pub fn bench() -> Result<Command> {
    let wheel = build(&Environment::ready()?, "release")?;
    let environment = Environment::with("podbay-bench", &BESIDE)?;
    environment.install(&wheel)?;
    let mut bench = environment.program("python");
    bench.arg("benches/operations.py");
    Ok(bench)
}

/// The wheel, built as `pip install ./python` does it. pip builds in place, so by the profile `dev` what `cargo test` has
/// compiled isn't compiled again.
fn build(environment: &Environment, profile: &str) -> Result<PathBuf> {
    let out = root().join("target/wheels");
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
