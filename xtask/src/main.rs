//! `cargo xtask`: set-up, tests and benchmarks of the project.

mod bench;
mod cluster;
mod dependencies;
mod fuzz;
mod generate;
mod heard;
mod image;
mod mcp;
mod node;
mod programs;
mod python;
mod reference;
mod security;
mod summary;
mod test;
mod tools;

use std::process::ExitCode;

use clap::Parser;

/// Set-up, tests and benchmarks of Podbay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Runs every check and test, after installing what they need.
    Test(test::Options),
    /// Runs the tests with gigabytes instead of megabytes and minutes of load instead of seconds.
    Soak(test::SoakOptions),
    /// Feeds random input to the parsers of hostile input.
    Fuzz(fuzz::Options),
    /// Attacks sandboxes of every kind and writes the results into docs/security-tests.md.
    SecurityTests,
    /// Generates a reference page in docs/reference.
    Reference {
        /// The page to generate.
        #[arg(value_enum)]
        page: reference::Page,
    },
    /// Measures Podbay and its baselines in one run.
    Bench(bench::Options),
    /// Writes the files that are generated: from the table of settings Python's dataclasses, TypeScript's options and tables
    /// in docs/; from the operations TypeScript's types of requests and answers, and Python's stub; and the Dockerfiles.
    Generate,
    /// Makes Podbay's own images as OCI archives, and podbayd for the Dockerfiles, without a container engine.
    Image(image::Options),
    /// Starts, lists and takes down real Kubernetes clusters for tests.
    #[command(subcommand)]
    Cluster(cluster::Action),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Test(options) => return test::run(&options),
        Command::Soak(options) => return test::soak(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::SecurityTests => security::run(),
        Command::Reference { page } => reference::run(page),
        Command::Bench(options) => bench::run(&options),
        Command::Generate => generate::all(),
        Command::Image(options) => image::make(&options),
        Command::Cluster(action) => cluster::run(action),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tools::say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
