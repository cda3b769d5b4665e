//! `cargo xtask bench`: measurements, and the pages in docs/ that show them.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rig::packages::Need;
use rig::{AddOn, Cluster};

use crate::tools::{self, cargo, root, say};
use crate::{node, python};

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
    /// Local sandboxes, compared with bubblewrap.
    Local,
    /// The cost of protecting podbayd from commands.
    Protection,
    /// Plain pods on the rig, compared with one API exec per operation, kubectl and a bare WebSocket.
    Raw,
    /// Claims on the rig, compared with the controller's own time to Ready.
    AgentSandbox,
    /// What the MCP server adds to a command.
    Mcp,
    /// The Python backend on the rig, compared with the packages that it replaces and Deep Agents' own scripts.
    Python,
    /// The TypeScript backend on the rig, compared with Deep Agents' own scripts.
    Node,
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
        What::Mcp => ("mcp", "the MCP server", cargo_bench("podbay-cli", "mcp")),
        What::Python => ("python", "the Python backend", python::bench()?),
        What::Node => ("node", "the TypeScript backend", node::bench()?),
    };
    if matches!(options.what, What::Daemon | What::Local) {
        tools::run(cargo().args(["build", "--quiet", "--release", "--package", "podbay-cli"]))?;
        bench.env("BENCH_PODBAY", tools::target_dir().join("release/podbay"));
    }
    let cluster = match options.what {
        What::Raw | What::AgentSandbox | What::Node => Some(Borrowed::cluster(&mut bench, &[])?),
        What::Python => Some(Borrowed::cluster(&mut bench, &[AddOn::AgentSandbox])?),
        What::Daemon | What::Local | What::Protection | What::Mcp => None,
    };
    let mut parts = match (options.what, &cluster) {
        (What::Python, Some(borrowed)) => python::bench_inside(&borrowed.cluster)?,
        _ => vec![],
    };
    parts.push(bench);
    say(&format!("measuring {name}; this takes a few minutes"));
    let measured = parts.iter_mut().try_fold(String::new(), |tables, part| -> Result<String> {
        if !matches!(options.what, What::Raw | What::AgentSandbox) {
            tools::without_rig(part);
        }
        let output = part.stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
        let output = output.context("the benchmark can't be run")?;
        let more = String::from_utf8_lossy(&output.stdout);
        println!("{more}");
        anyhow::ensure!(output.status.success(), "the benchmark failed ({})", output.status);
        Ok(tables + &more)
    });
    if let Some(cluster) = cluster {
        cluster.give_back()?;
    }
    let tables = measured?;
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
    cluster: Cluster,
    was_up: bool,
}

impl Borrowed {
    fn cluster(bench: &mut Command, add_ons: &[AddOn]) -> Result<Self> {
        rig::available()
            .map_err(|reason| anyhow::anyhow!("this is measured on a cluster, and none can run here: {reason}"))?;
        let name = rig::default_name();
        let was_up = Cluster::list()?.iter().any(|status| status.name == name && status.running);
        let cluster = Cluster::up(&name, &add_ons.iter().copied().collect::<BTreeSet<_>>())?;
        bench.env("PODBAY_RIG", "1").env("PODBAY_RIG_NAME", &name).env("KUBECONFIG", cluster.kubeconfig());
        Ok(Self { cluster, was_up })
    }

    fn give_back(self) -> Result<()> {
        if !self.was_up {
            Cluster::down(self.cluster.name()).context("the cluster can't be taken down")?;
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
