//! `cargo xtask`: set-up, tests and benchmarks of the project.

mod bench;
mod cluster;
mod python;
mod test;
mod tools;

use clap::Parser;

/// Set-up, tests and benchmarks of Podbay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Runs every check and test, after installing what they need.
    Test(test::Options),
    /// Measures, both sides in one run.
    Bench(bench::Options),
    /// Starts, shows and ends real Kubernetes clusters for tests.
    #[command(subcommand)]
    Cluster(cluster::Action),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Cluster(action) => cluster::run(action),
    }
}
