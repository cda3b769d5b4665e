//! `cargo xtask fuzz`: random input for the parsers of hostile input.
//!
//! Two drivers run the same targets: one of our own on any compiler, and libFuzzer, which is guided by coverage and finds
//! more, where a nightly compiler is installed. cargo-fuzz isn't needed: what it would do is little, and done here.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::programs;
use crate::summary::Part;
use crate::tools::{self, everything_is_required, root, target_dir};

#[derive(Args)]
pub struct Options {
    /// Only these targets.
    targets: Vec<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Repeats the run that had this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Uses libFuzzer, which finds more; needs a nightly compiler.
    #[arg(long)]
    libfuzzer: bool,
}

/// Runs the targets.
pub fn run(options: &Options) -> Result<()> {
    if options.libfuzzer {
        let targets = if options.targets.is_empty() { targets()? } else { options.targets.clone() };
        return targets.iter().try_for_each(|target| libfuzzer(target, options.seconds, options.seed));
    }
    let mut driver = driver(options.seconds)?;
    driver.args(&options.targets);
    if let Some(seed) = options.seed {
        driver.env("PODBAY_FUZZ_SEED", seed.to_string());
    }
    tools::run(&mut driver)
}

/// As a part of all tests: a minute for each target where everything is required, a few seconds elsewhere. Not by libFuzzer: at low
/// priority its build outlasted all other parts.
pub fn part() -> Part {
    let mut results = Part::begin("fuzz");
    let seconds = if everything_is_required() { 60 } else { 5 };
    match driver(seconds) {
        Ok(mut driver) => {
            let (heard, outcome) = tools::run_tests(&mut driver);
            results.add(heard, outcome);
        }
        Err(error) => results.fail(format!("{error:#}")),
    }
    results.end()
}

/// What makes the compiler instrument code for libFuzzer, as cargo-fuzz has it.
const INSTRUMENTATION: &str = "--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
     -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// What makes a program leave the processor to the tests beside it.
const NICE: [&str; 3] = ["nice", "-n", "19"];

fn nice(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(NICE[0]);
    command.args(&NICE[1..]).arg(program);
    command
}

/// cargo of the nightly compiler, whichever compiler runs this.
fn nightly() -> Command {
    let mut cargo = nice("cargo");
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC").current_dir(root()).arg("+nightly");
    cargo
}

/// The driver for any compiler.
fn driver(seconds: u64) -> Result<Command> {
    let mut program = programs::find("podbay/fuzz")?.command(&NICE);
    program.env("PODBAY_FUZZ_SECONDS", seconds.to_string());
    Ok(program)
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let files = std::fs::read_dir(root().join("fuzz/fuzz_targets")).context("can't read fuzz/fuzz_targets")?;
    let names = files.map(|file| Ok(file?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Builds a target for libFuzzer and runs it. What crashes it is left below `fuzz/artifacts`.
fn libfuzzer(target: &str, seconds: u64, seed: Option<u64>) -> Result<()> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = nightly();
    build.args(["build", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--release", "--bin", target]);
    // With a target given, macros and build scripts aren't instrumented.
    build.args(["--target", &triple]).env("RUSTFLAGS", INSTRUMENTATION);
    // Not with the other builds: they would wait for each other.
    let built = target_dir().join("libfuzzer");
    build.arg("--target-dir").arg(&built);
    tools::run(&mut build).context("libFuzzer needs a nightly compiler and a C++ compiler")?;
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| root().join("fuzz").join(kind).join(target));
    for directory in [&corpus, &artifacts] {
        std::fs::create_dir_all(directory).with_context(|| format!("can't create {}", directory.display()))?;
    }
    let mut fuzz = nice(built.join(&triple).join("release").join(target));
    fuzz.current_dir(root()).arg(format!("-artifact_prefix={}/", artifacts.display()));
    fuzz.args([format!("-max_total_time={seconds}"), "-timeout=60".to_owned(), "-print_final_stats=1".to_owned()]);
    if let Some(seed) = seed {
        fuzz.arg(format!("-seed={seed}"));
    }
    tools::run(fuzz.arg(corpus))
}
