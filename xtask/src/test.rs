//! `cargo xtask test`: every check and every test.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rig::packages::Need;
use serde_json::Value;

use crate::summary::{self, Heard, Part as Results, TestProgram};
use crate::tools::{self, cargo, everything_is_required, root, say};
use crate::{dependencies, fuzz, mcp, node, python};

/// What tests call that a bare machine may lack.
const NEEDS: &[Need] = &[Need::program("procps", "ps"), Need::program("util-linux", "unshare")];

/// Tells tests to do more of the same.
pub const SOAK: &str = "PODBAY_SOAK";

#[derive(Args)]
pub struct Options {
    /// Runs only this part.
    #[arg(value_enum)]
    part: Option<Part>,
    /// Leaves out what needs a cluster.
    #[arg(long)]
    no_cluster: bool,
    /// Set by `cargo xtask soak`.
    #[arg(skip)]
    soak: bool,
}

#[derive(Args)]
pub struct SoakOptions {
    /// Leaves out what needs a cluster.
    #[arg(long)]
    no_cluster: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting, clippy, documentation and the licences and sources of dependencies.
    Lint,
    /// The tests.
    Tests,
    /// The parsers of hostile input, with random input.
    Fuzz,
    /// The Python package: style, types and tests.
    Python,
    /// The npm package: style, types and tests.
    Node,
    /// The MCP server with the official SDKs, LangChain's adapters and the Inspector as clients.
    Mcp,
}

/// Runs the tests with as many repetitions and as much data as they have: minutes of load where the ordinary run has
/// seconds.
pub fn soak(options: &SoakOptions) -> ExitCode {
    let options = Options { part: None, no_cluster: options.no_cluster, soak: true };
    finish(&[tests(&options), python(&options)])
}

/// Runs all parts, or one, and sums up. What fails keeps nothing else from running.
pub fn run(options: &Options) -> ExitCode {
    let done = match options.part {
        Some(Part::Lint) => vec![lint()],
        Some(Part::Tests) => vec![tests(options)],
        Some(Part::Fuzz) => vec![fuzz::part(|| true)],
        Some(Part::Python) => vec![python(options)],
        Some(Part::Node) => vec![node(options)],
        Some(Part::Mcp) => vec![mcp_clients()],
        None => {
            let lint = lint();
            // Most tests wait, so the packages' run beside those in Rust, and the fuzz targets, which are nice, take what is left of
            // the processor.
            let packages_run = AtomicBool::new(true);
            let (rust, packages) = std::thread::scope(|scope| {
                let rust = scope
                    .spawn(|| [tests(options), mcp_clients(), fuzz::part(|| packages_run.load(Ordering::Relaxed))]);
                let packages = [python(options), node(options)];
                packages_run.store(false, Ordering::Relaxed);
                (rust.join(), packages)
            });
            let rust = rust.unwrap_or_else(|_| {
                let mut results = Results::begin("tests");
                results.fail("xtask itself panicked".to_owned());
                [results.end(), Results::begin("mcp").end(), Results::begin("fuzz").end()]
            });
            std::iter::once(lint).chain(rust).chain(packages).collect()
        }
    };
    finish(&done)
}

fn finish(done: &[Results]) -> ExitCode {
    print!("{}", summary::table(done));
    if summary::any_failed(done) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn lint() -> Results {
    let mut results = Results::begin("lint");
    results.check("formatting", tools::run(cargo().args(["fmt", "--all", "--check"])));
    let clippy = ["clippy", "--quiet", "--workspace", "--all-features", "--all-targets", "--", "-D", "warnings"];
    results.check("clippy", tools::run(cargo().args(clippy)));
    let mut doc = cargo();
    doc.args(["doc", "--quiet", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    results.check("documentation", tools::run(&mut doc));
    dependencies::check(&mut results);
    results.end()
}

/// Notes what can't run here. Where everything is required, that is a failure. Whether it can run.
fn need(results: &mut Results, what: &str, met: Result<()>) -> bool {
    let Err(error) = met else { return true };
    say(&format!("{what}: {error:#}"));
    match everything_is_required() {
        true => results.fail(format!("{what}: {error:#} (PODBAY_REQUIRE=all)")),
        false => results.leave_out(format!("{what}: {error:#}")),
    }
    false
}

/// Whether tests on a cluster are wanted and can run.
fn with_cluster(options: &Options, results: &mut Results) -> bool {
    if options.no_cluster {
        results.leave_out("tests on a cluster: --no-cluster".to_owned());
        return false;
    }
    need(results, "tests on a cluster", rig::available().map_err(|reason| anyhow::anyhow!("{reason}")))
}

/// The cluster for the packages' tests. Not that of the tests in Rust, which run at the same time and stop its API server.
fn packages_cluster() -> String {
    format!("packages-{}", rig::default_name())
}

fn take_down(name: &str, results: &mut Results) {
    if let Err(error) = rig::Cluster::down(name) {
        results.fail(format!("the test cluster can't be taken down: {error:#}"));
    }
}

fn tests(options: &Options) -> Results {
    let mut results = Results::begin("tests");
    let mut environment: Vec<(&str, OsString)> = Vec::new();
    if options.soak {
        environment.push((SOAK, "1".into()));
    }
    need(&mut results, "tests that need more Debian packages", rig::packages::ensure(NEEDS));
    let python = python::with_deepagents().map(|python| environment.push(("PODBAY_PYTHON", python.into())));
    need(&mut results, "comparisons with the Deep Agents SDK", python);
    let cluster = with_cluster(options, &mut results);
    if cluster {
        environment.push(("PODBAY_RIG", "1".into()));
    }
    let mut all = cargo();
    all.args(["test", "--workspace", "--all-features", "--no-fail-fast"]).envs(environment.iter().cloned());
    // Most tests wait for a cluster, a deadline or a process, not for the processor.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        all.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    let (heard, outcome) = tools::run_tests(&mut all);
    results.add_with_repeats(heard, outcome, |program, names| match repeat(program, names) {
        Ok(mut again) => tools::run_tests(again.envs(environment.iter().cloned())),
        Err(error) => (Heard::default(), Err(error)),
    });
    if cluster {
        take_down(&rig::default_name(), &mut results);
    }
    results.end()
}

/// Runs some tests of a program as cargo would. Cargo itself would first compile everything again, because it chooses the features of
/// dependencies by what is to be tested.
fn repeat(program: &TestProgram, names: &[String]) -> Result<Command> {
    let TestProgram::Built { source, file } = program else { bail!("cargo hasn't built it") };
    let metadata = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let file = root().join(file);
    let name = file.file_name().and_then(OsStr::to_str).and_then(|name| name.rsplit_once('-')).map(|(name, _)| name);
    // Many packages have a src/lib.rs.
    let is_it = |target: &Value, dir: &Path| {
        target["src_path"].as_str().is_some_and(|path| Path::new(path) == dir.join(source))
            && target["name"].as_str().map(|name| name.replace('-', "_")) == name.map(|name| name.replace('-', "_"))
    };
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let dir = packages.iter().find_map(|package| {
        let dir = Path::new(package["manifest_path"].as_str()?).parent()?;
        package["targets"].as_array()?.iter().any(|target| is_it(target, dir)).then_some(dir)
    });
    let dir = dir.with_context(|| format!("no package has {source}, of which {} was built", file.display()))?;
    let mut again = Command::new(&file);
    again.current_dir(dir).env("CARGO_MANIFEST_DIR", dir).env("RUST_TEST_THREADS", "1").arg("--exact").args(names);
    Ok(again)
}

fn python(options: &Options) -> Results {
    let mut results = Results::begin("python");
    python::lint(&mut results);
    match with_cluster(options, &mut results) {
        false => python::test(None, options.soak, &mut results),
        true => {
            let add_ons = BTreeSet::from([rig::AddOn::AgentSandbox, rig::AddOn::GatewayApi]);
            match rig::Cluster::up(&packages_cluster(), &add_ons).context("the test cluster doesn't start") {
                Ok(cluster) => python::test(Some(&cluster), options.soak, &mut results),
                Err(error) => results.fail(format!("{error:#}")),
            }
            take_down(&packages_cluster(), &mut results);
        }
    }
    results.end()
}

fn node(options: &Options) -> Results {
    let mut results = Results::begin("node");
    match with_cluster(options, &mut results) {
        false => node::test(None, &mut results),
        true => {
            match rig::Cluster::up(&packages_cluster(), &BTreeSet::from([rig::AddOn::AgentSandbox]))
                .context("the test cluster doesn't start")
            {
                Ok(cluster) => node::test(Some(&cluster), &mut results),
                Err(error) => results.fail(format!("{error:#}")),
            }
            take_down(&packages_cluster(), &mut results);
        }
    }
    results.end()
}

fn mcp_clients() -> Results {
    let mut results = Results::begin("mcp");
    mcp::test(&mut results);
    results.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_repeated_in_its_packages_directory() {
        let own = std::env::current_exe().unwrap();
        let program = TestProgram::Built { source: "src/main.rs".to_owned(), file: own.to_str().unwrap().to_owned() };
        let mut again =
            repeat(&program, &["summary::tests::all_kinds_of_test_programs_are_understood".to_owned()]).unwrap();
        assert_eq!(again.get_current_dir(), Some(Path::new(env!("CARGO_MANIFEST_DIR"))));
        let printed = String::from_utf8(again.output().unwrap().stdout).unwrap();
        assert!(printed.contains("1 passed; 0 failed"), "{printed}");
        let unknown =
            TestProgram::Built { source: "src/none.rs".to_owned(), file: "target/debug/deps/none-1".to_owned() };
        assert!(repeat(&unknown, &[]).is_err() && repeat(&TestProgram::Pytest, &[]).is_err());
    }
}
