//! `cargo xtask bench`: measurements, and the pages in docs/ that show them.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rig::packages::Need;

use crate::python;
use crate::tools::{self, cargo, root, say};

/// What is measured beside Podbay.
const NEEDS: &[Need] = &[Need::program("bubblewrap", "bwrap"), Need::program("ripgrep", "rg")];

/// What follows this line in a page was written by hand, and stays.
const BY_HAND: &str = "<!-- by hand -->";

#[derive(Args)]
pub struct Options {
    /// What to measure.
    #[arg(value_enum)]
    what: What,
    /// Writes the result to docs/benchmarks/.
    #[arg(long)]
    write: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// podbayd over its unix socket.
    Daemon,
    /// Local sandboxes beside bubblewrap.
    Local,
    /// The cost of protecting podbayd from commands.
    Protection,
    /// Plain pods on the rig, beside one API exec per operation, kubectl and a bare WebSocket.
    Raw,
    /// Claims on the rig, beside the controller's own time to Ready.
    AgentSandbox,
    /// The Python backend on the rig, beside langchain-kubernetes and Deep Agents' own scripts.
    Python,
}

/// Measures, prints, and on request writes the page.
pub fn run(options: &Options) -> Result<()> {
    rig::packages::ensure(NEEDS)?;
    let (name, title, mut bench) = match options.what {
        What::Daemon => ("daemon", "podbayd over its socket", cargo_bench("podbay-client", "daemon")),
        What::Local => ("local", "local sandboxes", cargo_bench("podbay", "local")),
        What::Protection => {
            ("protection", "the cost of protecting podbayd from commands", cargo_bench("podbay-client", "protection"))
        }
        What::Raw => ("raw", "pods (raw mode)", cargo_bench("podbay-k8s", "raw")),
        What::AgentSandbox => {
            ("agent-sandbox", "claims (agent-sandbox mode)", cargo_bench("podbay-k8s", "agent_sandbox"))
        }
        What::Python => ("python", "the Python backend", python::bench()?),
    };
    bench.stdout(Stdio::piped());
    if matches!(options.what, What::Daemon | What::Local) {
        tools::run(cargo().args(["build", "--quiet", "--release", "--package", "podbay-cli"]))?;
        bench.env("BENCH_PODBAY", root().join("target/release/podbay"));
    }
    let cluster = match options.what {
        What::Raw | What::AgentSandbox | What::Python => Some(Borrowed::cluster(&mut bench)?),
        What::Daemon | What::Local | What::Protection => None,
    };
    if !matches!(options.what, What::Raw | What::AgentSandbox) {
        // Released programs reject them, as they do any unknown variable with this prefix.
        for name in ["PODBAY_CACHE", "PODBAY_LONG", "PODBAY_REQUIRE", "PODBAY_RIG", "PODBAY_RIG_NAME"] {
            bench.env_remove(name);
        }
    }
    say(&format!("measuring {name}; this takes some minutes"));
    let output = bench.spawn().and_then(std::process::Child::wait_with_output).context("the benchmark can't be run");
    if let Some(cluster) = cluster {
        cluster.give_back()?;
    }
    let output = output?;
    let tables = String::from_utf8_lossy(&output.stdout);
    println!("{tables}");
    anyhow::ensure!(output.status.success(), "the benchmark failed ({})", output.status);
    if options.write {
        let page = root().join("docs").join("benchmarks").join(format!("{name}.md"));
        let before = std::fs::read_to_string(&page).unwrap_or_default();
        let notes = before.split_once(BY_HAND).map(|(_, notes)| format!("\n{BY_HAND}{notes}")).unwrap_or_default();
        std::fs::create_dir_all(page.parent().unwrap_or(&page))?;
        let text = format!(
            "# Benchmarks: {title}\n\nWritten by `cargo xtask bench {name} --write`: all rows come from one run on one machine{}. \
             Numbers differ between machines, so compare rows of one run, not runs. A row marked \"baseline\" does the same work \
             without Podbay.\n{tables}",
            machine()
        );
        std::fs::write(&page, format!("{}\n{notes}", text.trim_end()))?;
        say(&format!("wrote {}", page.display()));
    }
    Ok(())
}

fn cargo_bench(package: &str, name: &str) -> Command {
    let mut bench = cargo();
    bench.args(["bench", "--quiet", "--package", package, "--bench", name]);
    bench
}

/// A cluster to measure on. One that is up already stays up.
struct Borrowed {
    name: String,
    was_up: bool,
}

impl Borrowed {
    fn cluster(bench: &mut Command) -> Result<Self> {
        rig::available()
            .map_err(|reason| anyhow::anyhow!("this is measured on a cluster, and none can run here: {reason}"))?;
        let name = rig::default_name();
        let was_up = rig::Cluster::list()?.iter().any(|status| status.name == name && status.running);
        let cluster = rig::Cluster::up(&name, &BTreeSet::new())?;
        bench.env("PODBAY_RIG", "1").env("PODBAY_RIG_NAME", &name).env("KUBECONFIG", cluster.kubeconfig());
        Ok(Self { name, was_up })
    }

    fn give_back(self) -> Result<()> {
        if !self.was_up {
            rig::Cluster::down(&self.name).context("the cluster can't be taken down")?;
        }
        Ok(())
    }
}

/// What it was measured on.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(" ({cores} cores, Linux {})", kernel.trim())
}
