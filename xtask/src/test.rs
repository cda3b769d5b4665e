//! `cargo xtask test`: every check and every test.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rig::packages::Need;

use crate::python;
use crate::tools::{self, cargo, everything_is_required, say};

/// What tests call that a bare machine may lack.
const NEEDS: &[Need] = &[Need::program("procps", "ps"), Need::program("util-linux", "unshare")];

#[derive(Args)]
pub struct Options {
    /// Runs only this part.
    #[arg(value_enum)]
    part: Option<Part>,
    /// Leaves out what needs a cluster.
    #[arg(long)]
    no_cluster: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting, clippy and documentation.
    Lint,
    /// The tests.
    Tests,
    /// The Python package: style, types and tests.
    Python,
}

/// Runs all parts, or one.
pub fn run(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let mut left_out = Vec::new();
    let parts = options.part.map_or_else(|| vec![Part::Lint, Part::Tests, Part::Python], |part| vec![part]);
    for part in parts {
        match part {
            Part::Lint => lint()?,
            Part::Tests => tests(options, &mut left_out)?,
            Part::Python => python(options, &mut left_out)?,
        }
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let left_out = match left_out.as_slice() {
        [] => "nothing was left out".to_owned(),
        some => format!("left out: {}", some.join("; ")),
    };
    say(&format!("all passed in {minutes:.1} minutes; {left_out}"));
    Ok(())
}

fn lint() -> Result<()> {
    tools::run(cargo().args(["fmt", "--all", "--check"]))?;
    tools::run(cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-features",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    tools::run(
        cargo()
            .args(["doc", "--quiet", "--workspace", "--all-features", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// What isn't met is left out, and said so, unless everything is required.
fn need(left_out: &mut Vec<String>, what: &str, met: Result<()>) -> Result<()> {
    match met {
        Err(error) if everything_is_required() => Err(error.context(format!("PODBAY_REQUIRE=all, and {what}"))),
        Err(error) => {
            say(&format!("{what}: {error:#}"));
            left_out.push(what.to_owned());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn python(options: &Options, left_out: &mut Vec<String>) -> Result<()> {
    python::lint()?;
    let available = rig::available().map_err(|reason| anyhow::anyhow!("{reason}"));
    if options.no_cluster || available.is_err() {
        if !options.no_cluster {
            need(left_out, "the Python package's tests on a cluster are left out", available)?;
        }
        return python::test(None);
    }
    let name = cluster_name();
    let tested = rig::Cluster::up(&name, &BTreeSet::new()).and_then(|cluster| python::test(Some(&cluster)));
    rig::Cluster::down(&name).context("the test cluster can't be taken down")?;
    tested
}

/// The cluster of the tests, which is taken down after them.
fn cluster_name() -> String {
    std::env::var("PODBAY_RIG_NAME").unwrap_or_else(|_| rig::DEFAULT_NAME.to_owned())
}

fn tests(options: &Options, left_out: &mut Vec<String>) -> Result<()> {
    let mut test = cargo();
    // Some tests do more of the same when there is time for it.
    test.env("PODBAY_LONG", "1");
    // Most tests wait for a cluster, a deadline or a process, not for the processor.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    test.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    let mut need = |what: &str, met: Result<()>| need(left_out, what, met);
    need("some Debian packages are missing", rig::packages::ensure(NEEDS))?;
    let python = python::with_deepagents().map(|python| {
        test.env("PODBAY_PYTHON", python);
    });
    need("comparisons with the Deep Agents SDK are left out", python)?;
    let cluster = !options.no_cluster;
    if cluster {
        let available = rig::available().map_err(|reason| anyhow::anyhow!("{reason}"));
        let can = available.is_ok();
        need("tests on a cluster are left out", available)?;
        if can {
            test.env("PODBAY_RIG", "1");
        }
    }
    let tested = tools::run(&mut test);
    if cluster {
        rig::Cluster::down(&cluster_name()).context("the test cluster can't be taken down")?;
    }
    tested
}
