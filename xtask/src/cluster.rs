//! `cargo xtask cluster`: a real Kubernetes, up and down. The work is done by the `rig` library.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rig::{AddOn, Cluster};

/// What to do with a cluster.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Starts a cluster, or adds to one that is up.
    Up {
        #[command(flatten)]
        which: Which,
        /// Adds agent-sandbox, gvisor or gateway-api. May be given more than once.
        #[arg(long = "with", value_name = "ADD-ON")]
        with: Vec<AddOn>,
    },
    /// Takes down a cluster and removes everything that belongs to it.
    Down {
        #[command(flatten)]
        which: Which,
        /// Takes down every cluster.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Lists the clusters.
    Status,
    /// Prints the settings for a shell: eval "$(cargo xtask cluster env)".
    Env(Which),
    /// Creates a namespace and a least-privilege account in it, and prints its kubeconfig.
    Account {
        #[command(flatten)]
        which: Which,
        /// A manifest file with the roles of the account.
        #[arg(long, value_name = "FILE")]
        roles: PathBuf,
    },
    /// Shows the log of one of a cluster's programs, or lists them.
    Logs {
        #[command(flatten)]
        which: Which,
        /// The program: kubelet, kube-apiserver, containerd, …
        program: Option<String>,
        /// Keeps showing new lines as they arrive.
        #[arg(long, short)]
        follow: bool,
    },
    /// Opens a shell inside the node, or runs a command there.
    Shell {
        #[command(flatten)]
        which: Which,
        /// The command; a shell by default.
        #[arg(last = true)]
        command: Vec<String>,
    },
}

/// Which cluster is meant.
#[derive(Args)]
pub(crate) struct Which {
    /// The cluster's name; by default PODBAY_RIG_NAME from the environment.
    #[arg(long, default_value_t = rig::default_name())]
    name: String,
}

impl Which {
    fn find(&self) -> Result<Cluster> {
        Cluster::find(&self.name)?
            .with_context(|| format!("cluster {0} isn't up: cargo xtask cluster up --name {0}", self.name))
    }
}

/// Performs an action on the cluster that it names.
pub(crate) fn run(action: Action) -> Result<()> {
    match action {
        Action::Up { which, with } => {
            let cluster = Cluster::up(&which.name, &with.into_iter().collect())?;
            println!("cluster {} is up at {}", cluster.name(), cluster.server());
            println!("to use it: eval \"$(cargo xtask cluster env --name {})\"", cluster.name());
            Ok(())
        }
        Action::Down { all: true, .. } => Cluster::list()?.iter().try_for_each(|status| down(&status.name)),
        Action::Down { which, .. } => down(&which.name),
        Action::Status => status(),
        Action::Env(which) => {
            let cluster = which.find()?;
            println!("export KUBECONFIG='{}'", cluster.kubeconfig().display());
            println!("export PATH='{}':\"$PATH\"", cluster.programs().display());
            Ok(())
        }
        Action::Account { which, roles } => {
            println!("{}", which.find()?.account(&roles)?);
            Ok(())
        }
        Action::Logs { which, program, follow } => logs(&which.find()?, program.as_deref(), follow),
        Action::Shell { which, command } => {
            let (program, arguments) = match command.split_first() {
                Some((program, arguments)) => (program.as_str(), arguments),
                None => ("bash", &[][..]),
            };
            let mut inside = which.find()?.inside(program)?;
            Err(inside.args(arguments).stdin(std::process::Stdio::inherit()).exec()).context("cannot start nsenter")
        }
    }
}

fn down(name: &str) -> Result<()> {
    let was_there = Cluster::down(name)?;
    println!("cluster {name} {}", if was_there { "is down" } else { "wasn't up" });
    Ok(())
}

fn status() -> Result<()> {
    let clusters = Cluster::list()?;
    if clusters.is_empty() {
        println!("no cluster is up");
    }
    for status in clusters {
        let health = match (status.running, status.ready) {
            (true, true) => "ready",
            (true, false) => "up, but not ready",
            (false, _) => "not up: being started, or left by a crash",
        };
        let add_ons: Vec<&str> = status.add_ons.iter().map(|add_on| add_on.name()).collect();
        let memory = status.memory.map(|bytes| format!("{} MB", bytes / 1_000_000)).unwrap_or_default();
        println!("{:12} {health}  {}  {memory}  {}", status.name, status.server, add_ons.join(" "));
    }
    Ok(())
}

fn logs(cluster: &Cluster, program: Option<&str>, follow: bool) -> Result<()> {
    let directory = cluster.logs();
    let mut names: Vec<String> = std::fs::read_dir(&directory)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".log")?.to_owned()))
        .collect();
    names.sort();
    let Some(program) = program else {
        println!("{}", names.join("\n"));
        return Ok(());
    };
    if !names.iter().any(|name| name == program) {
        bail!("no log of {program:?}; use one of {}", names.join(", "));
    }
    let mut tail = Command::new("tail");
    tail.args(["-n", "+1"]).args(follow.then_some("-f")).arg(directory.join(program).with_extension("log"));
    Err(tail.exec()).context("cannot start tail")
}
