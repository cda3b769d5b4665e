//! `cargo xtask fuzz`: random input for the parsers of hostile input.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::summary::Part;
use crate::tools::{self, cargo, everything_is_required, root};

#[derive(Args)]
pub struct Options {
    /// Only these targets.
    targets: Vec<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Repeats a run.
    #[arg(long)]
    seed: Option<u64>,
    /// Uses libFuzzer, which finds more; needs a nightly compiler and cargo-fuzz.
    #[arg(long)]
    libfuzzer: bool,
}

/// Runs the targets.
pub fn run(options: &Options) -> Result<()> {
    if options.libfuzzer {
        return libfuzzer(options);
    }
    let mut driver = cargo();
    arrange(&mut driver, options.seconds);
    driver.arg("--").args(&options.targets);
    if let Some(seed) = options.seed {
        driver.env("PODBAY_FUZZ_SEED", seed.to_string());
    }
    tools::run(&mut driver)
}

/// As a part of all tests: a minute for each target where everything is required, a few seconds elsewhere.
pub fn part() -> Part {
    let mut results = Part::begin("fuzz");
    let seconds = if everything_is_required() { 60 } else { 5 };
    let mut driver = Command::new("nice");
    driver.current_dir(root()).arg(cargo().get_program());
    arrange(&mut driver, seconds);
    let (heard, outcome) = tools::run_tests(&mut driver);
    results.add(heard, outcome);
    results.end()
}

/// The driver for any compiler. Chosen from the whole workspace, so that what `cargo xtask test` compiled isn't compiled
/// again with other features.
fn arrange(driver: &mut Command, seconds: u64) {
    driver.args(["test", "--quiet", "--workspace", "--all-features", "--test", "fuzz"]);
    driver.env("PODBAY_FUZZ_SECONDS", seconds.to_string());
}

fn libfuzzer(options: &Options) -> Result<()> {
    let all = || -> Result<Vec<String>> {
        let files = std::fs::read_dir(root().join("fuzz/fuzz_targets")).context("fuzz/fuzz_targets can't be read")?;
        let names = files.map(|file| Ok(file?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()));
        names.collect()
    };
    let targets = if options.targets.is_empty() { all()? } else { options.targets.clone() };
    for target in targets {
        let mut fuzz = Command::new("cargo");
        // The compiler that runs this must not be the one that is used.
        fuzz.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").current_dir(root());
        fuzz.args(["+nightly", "fuzz", "run", &target, "--"]).arg(format!("-max_total_time={}", options.seconds));
        if let Some(seed) = options.seed {
            fuzz.arg(format!("-seed={seed}"));
        }
        tools::run(&mut fuzz).context("libFuzzer needs a nightly compiler and `cargo install cargo-fuzz`")?;
    }
    Ok(())
}
