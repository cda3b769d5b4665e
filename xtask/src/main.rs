//! `cargo xtask`: set-up, tests and benchmarks of the project.

mod cluster;

use clap::Parser;

/// Set-up, tests and benchmarks of Podbay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Runs every check and test, after installing what they need.
    Test,
    /// Starts, shows and ends real Kubernetes clusters for tests.
    #[command(subcommand)]
    Cluster(cluster::Action),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Test => Ok(()),
        Command::Cluster(action) => cluster::run(action),
    }
}
