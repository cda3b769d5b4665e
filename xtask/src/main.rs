//! `cargo xtask`: set-up, tests and benchmarks of the project.

use clap::Parser;

/// Set-up, tests and benchmarks of Podbay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Runs every check and test, after installing what they need.
    Test,
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Test => Ok(()),
    }
}
