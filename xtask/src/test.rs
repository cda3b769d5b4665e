//! `cargo xtask test`: every check and every test.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rig::packages::Need;

use crate::summary::{self, Part as Results};
use crate::tools::{self, cargo, everything_is_required, say};
use crate::{dependencies, fuzz, python};

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
        Some(Part::Fuzz) => vec![fuzz::part()],
        Some(Part::Python) => vec![python(options)],
        None => {
            let (lint, tests) = (lint(), tests(options));
            // The Python tests mostly wait, so the fuzz targets, which are nice, take what they leave of the processor.
            let (fuzz, python) = std::thread::scope(|scope| {
                let fuzz = scope.spawn(fuzz::part);
                let python = python(options);
                (fuzz.join(), python)
            });
            let fuzz = fuzz.unwrap_or_else(|_| {
                let mut results = Results::begin("fuzz");
                results.fail("the driver panicked".to_owned());
                results
            });
            vec![lint, tests, fuzz, python]
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

fn take_down(results: &mut Results) {
    if let Err(error) = rig::Cluster::down(&rig::default_name()) {
        results.fail(format!("the test cluster can't be taken down: {error:#}"));
    }
}

fn tests(options: &Options) -> Results {
    let mut results = Results::begin("tests");
    let mut test = cargo();
    // Most tests wait for a cluster, a deadline or a process, not for the processor.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    if options.soak {
        test.env(SOAK, "1");
    }
    test.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    need(&mut results, "tests that need more Debian packages", rig::packages::ensure(NEEDS));
    let python = python::with_deepagents().map(|python| {
        test.env("PODBAY_PYTHON", python);
    });
    need(&mut results, "comparisons with the Deep Agents SDK", python);
    let cluster = with_cluster(options, &mut results);
    if cluster {
        test.env("PODBAY_RIG", "1");
    }
    let (heard, outcome) = tools::run_tests(&mut test);
    results.add(heard, outcome);
    if cluster {
        take_down(&mut results);
    }
    results.end()
}

fn python(options: &Options) -> Results {
    let mut results = Results::begin("python");
    python::lint(&mut results);
    match with_cluster(options, &mut results) {
        false => python::test(None, options.soak, &mut results),
        true => {
            match rig::Cluster::up(&rig::default_name(), &BTreeSet::new()).context("the test cluster doesn't start") {
                Ok(cluster) => python::test(Some(&cluster), options.soak, &mut results),
                Err(error) => results.fail(format!("{error:#}")),
            }
            take_down(&mut results);
        }
    }
    results.end()
}
