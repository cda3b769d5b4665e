//! `cargo xtask test`: every check and every test.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread::ScopedJoinHandle;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rig::packages::Need;

use crate::programs::{self, Environment, Ran};
use crate::summary::{self, Part as Results};
use crate::tools::{self, cargo, everything_is_required, say};
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
    /// Skips what needs a cluster.
    #[arg(long)]
    no_cluster: bool,
    /// Set by `cargo xtask soak`.
    #[arg(skip)]
    soak: bool,
}

#[derive(Args)]
pub struct SoakOptions {
    /// Skips what needs a cluster.
    #[arg(long)]
    no_cluster: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting, clippy, documentation and the licences and sources of dependencies.
    Lint,
    /// The tests.
    Tests,
    /// Fuzzes the parsers of hostile input.
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
    let [tests, packages] = [vec![tests(&options)], packages(&options, &[Part::Python])];
    finish(&[tests, packages].concat())
}

/// Runs all parts, or one, and sums up. What fails keeps nothing else from running.
pub fn run(options: &Options) -> ExitCode {
    let done = match options.part {
        Some(Part::Lint) => vec![lint()],
        Some(Part::Tests) => vec![tests(options)],
        Some(Part::Fuzz) => vec![fuzz::part()],
        Some(part @ (Part::Python | Part::Node | Part::Mcp)) => packages(options, &[part]),
        None => {
            let (lint, build) = (lint(), build(options));
            // Most tests wait, so the packages' run beside those in Rust, and the fuzz targets, which are nice, take what is left of
            // the processor.
            let others = std::thread::scope(|scope| {
                let fuzz = scope.spawn(|| vec![fuzz::part()]);
                let packages = scope.spawn(|| packages(options, &PACKAGES));
                let tests = vec![tests(options)];
                [tests, joined(packages, "packages"), joined(fuzz, "fuzz")].concat()
            });
            [lint, build].into_iter().chain(others).collect()
        }
    };
    finish(&done)
}

/// The results of parts that run on a thread, or that it panicked.
fn joined(parts: ScopedJoinHandle<'_, Vec<Results>>, name: &'static str) -> Vec<Results> {
    parts.join().unwrap_or_else(|_| {
        let mut results = Results::begin(name);
        results.fail("xtask itself panicked".to_owned());
        vec![results.end()]
    })
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

/// Compiles what all parts test, before any test runs: compilers beside them would make tests wait longer than they are prepared for.
fn build(options: &Options) -> Results {
    let mut results = Results::begin("build");
    // Where no cluster can run, the parts that need one say so.
    if !options.no_cluster && rig::available().is_ok() {
        results.check("the test cluster's programs", rig::prepare());
    }
    results.check("the tests", programs::build().map(drop));
    results.check("the wheel", python::installed().map(drop));
    results.check("the npm package", node::built());
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

/// The parts that test packages, and programs of other languages.
const PACKAGES: [Part; 3] = [Part::Python, Part::Node, Part::Mcp];

/// The cluster for the packages' tests, brought up when the first part asks for it. Not that of the tests in Rust, which run at the same
/// time and stop its API server.
#[derive(Default)]
struct PackagesCluster(OnceLock<Result<rig::Cluster, String>>);

impl PackagesCluster {
    fn name() -> String {
        format!("packages-{}", rig::default_name())
    }

    /// The cluster, or nothing where tests have to do without. An error is why it doesn't start.
    fn get(&self, options: &Options, results: &mut Results) -> Result<Option<&rig::Cluster>> {
        if !with_cluster(options, results) {
            return Ok(None);
        }
        let add_ons = BTreeSet::from([rig::AddOn::AgentSandbox, rig::AddOn::GatewayApi]);
        let up = || rig::Cluster::up_as(&Self::name(), rig::Flavor { crun: true, network_policies: false }, &add_ons);
        let cluster = self.0.get_or_init(|| up().map_err(|error| format!("{error:#}")));
        cluster.as_ref().map(Some).map_err(|error| anyhow::anyhow!("the test cluster didn't start: {error}"))
    }

    /// Takes it down, if anybody has asked for it.
    fn down(self, results: &mut Results) {
        if self.0.into_inner().is_some() {
            take_down(&Self::name(), results);
        }
    }
}

/// Runs parts that test packages: MCP clients and then Node beside Python, which takes longest.
fn packages(options: &Options, parts: &[Part]) -> Vec<Results> {
    let cluster = PackagesCluster::default();
    let wanted = |part| parts.contains(&part);
    let mut done: Vec<Results> = std::thread::scope(|scope| {
        let python = wanted(Part::Python).then(|| scope.spawn(|| vec![python(options, &cluster)]));
        let others = scope.spawn(|| {
            let mcp = wanted(Part::Mcp).then(mcp_clients);
            let node = wanted(Part::Node).then(|| node(options, &cluster));
            node.into_iter().chain(mcp).collect()
        });
        let python = python.map(|python| joined(python, "python")).unwrap_or_default();
        [python, joined(others, "packages")].concat()
    });
    if let Some(last) = done.last_mut() {
        cluster.down(last);
    }
    done
}

fn take_down(name: &str, results: &mut Results) {
    if let Err(error) = rig::Cluster::down(name) {
        results.fail(format!("the test cluster can't be taken down: {error:#}"));
    }
}

fn tests(options: &Options) -> Results {
    let mut results = Results::begin("tests");
    let mut environment: Environment = Vec::new();
    if options.soak {
        environment.push((SOAK, "1".into()));
    }
    need(&mut results, "tests that need more Debian packages", rig::packages::ensure(NEEDS));
    let python = python::with_deepagents().map(|python| environment.push(("PODBAY_PYTHON", python.into())));
    need(&mut results, "comparisons with the Deep Agents SDK", python);
    let cluster = with_cluster(options, &mut results);
    if cluster {
        environment.push(("PODBAY_RIG", "1".into()));
        // Programs find it up.
        let flavor = rig::Flavor { crun: true, network_policies: true };
        let up = rig::Cluster::up_as(&rig::default_name(), flavor, &BTreeSet::from([rig::AddOn::AgentSandbox]));
        if let Err(error) = up {
            results.fail(format!("the test cluster didn't start: {error:#}"));
        }
    }
    // More at once isn't faster: the processors are always busy, and tests with deadlines fail then.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        environment.push(("RUST_TEST_THREADS", cores.to_string().into()));
    }
    match programs::build() {
        Ok(built) => {
            let (ran, (heard, outcome)) = programs::run(built, &environment);
            for Ran { program, heard, outcome, took } in ran {
                results.add_with_repeats(heard, outcome, |names| program.repeat(names, &environment));
                results.took(program.name, took);
            }
            results.add(heard, outcome);
        }
        Err(error) => results.fail(format!("{error:#}")),
    }
    if cluster {
        take_down(&rig::default_name(), &mut results);
    }
    results.end()
}

fn python(options: &Options, cluster: &PackagesCluster) -> Results {
    let mut results = Results::begin("python");
    python::lint(&mut results);
    match cluster.get(options, &mut results) {
        Ok(cluster) => python::test(cluster, options.soak, &mut results),
        Err(error) => results.fail(format!("{error:#}")),
    }
    results.end()
}

fn node(options: &Options, cluster: &PackagesCluster) -> Results {
    let mut results = Results::begin("node");
    match cluster.get(options, &mut results) {
        Ok(cluster) => node::test(cluster, &mut results),
        Err(error) => results.fail(format!("{error:#}")),
    }
    results.end()
}

fn mcp_clients() -> Results {
    let mut results = Results::begin("mcp");
    mcp::test(&mut results);
    results.end()
}
