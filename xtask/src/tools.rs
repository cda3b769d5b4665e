//! What tests and benchmarks need beside Rust: installed when missing, cached outside the repository.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::summary::Heard;

/// Whether nothing may be left out.
pub fn everything_is_required() -> bool {
    std::env::var_os("PODBAY_REQUIRE").is_some_and(|value| value == "all")
}

/// Says what is being done.
pub fn say(line: &str) {
    eprintln!("xtask: {line}");
}

/// The command as one would type it.
fn typed(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command, its output on ours.
pub fn run(command: &mut Command) -> Result<()> {
    let line = typed(command);
    say(&line);
    let status = without_own_package(command).status().with_context(|| format!("can't run: {line}"))?;
    if !status.success() {
        bail!("failed ({status}): {line}");
    }
    Ok(())
}

/// Runs tests: their output goes to ours as it comes, and what it says of passed and failed tests is heard.
pub fn run_tests(command: &mut Command) -> (Heard, Result<()>) {
    let mut heard = Heard::default();
    let outcome = listen(command, &mut heard);
    (heard, outcome)
}

fn listen(command: &mut Command, heard: &mut Heard) -> Result<()> {
    let line = typed(command);
    say(&line);
    // One pipe for both: cargo says on standard error which program runs, and the program prints its results.
    let (mut output, theirs) = std::io::pipe()?;
    without_own_package(command).stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn().with_context(|| format!("can't run: {line}"))?;
    // They would keep the pipe open.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (mut piece, mut unfinished) = ([0; 8192], Vec::new());
    loop {
        let length = output.read(&mut piece).context("the output can't be read")?;
        if length == 0 {
            break;
        }
        let mut screen = std::io::stdout().lock();
        // Whoever started this may not want to see it; the tests go on.
        let _ = screen.write_all(&piece[..length]).and_then(|()| screen.flush());
        unfinished.extend_from_slice(&piece[..length]);
        while let Some(end) = unfinished.iter().position(|&byte| byte == b'\n') {
            let whole: Vec<u8> = unfinished.drain(..=end).collect();
            heard.line(&String::from_utf8_lossy(&whole));
        }
    }
    heard.line(&String::from_utf8_lossy(&unfinished));
    let status = child.wait()?;
    if !status.success() {
        bail!("failed ({status}): {line}");
    }
    Ok(())
}

/// Removes what cargo told this program about its own package. Build scripts of dependencies (ring's) run again when it changes, so
/// `cargo test` would compile half of the dependencies again after `cargo xtask test`.
fn without_own_package(command: &mut Command) -> &mut Command {
    let is_own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let given: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_own) && !given.contains(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Cargo, as it runs this.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    without_own_package(cargo.current_dir(root()));
    cargo
}

/// Removes what only tests and benchmarks read from a program's environment. Podbay rejects unknown variables with its prefix.
pub fn without_rig(command: &mut Command) -> &mut Command {
    for name in ["PODBAY_CACHE", "PODBAY_LONG", "PODBAY_REQUIRE", "PODBAY_RIG", "PODBAY_RIG_NAME"] {
        command.env_remove(name);
    }
    command
}

/// Builds all tests, and the command line with them. Nothing less: a part alone has other features, so its dependencies would be
/// compiled again.
pub fn build_tests() -> Command {
    let mut build = cargo();
    build.args(["test", "--quiet", "--workspace", "--all-features", "--no-run"]);
    build
}

/// The command line, built with the tests.
pub fn command_line() -> Result<PathBuf> {
    run(&mut build_tests())?;
    Ok(target_dir().join("debug/podbay"))
}

/// A test program, built with all others, and its package's directory, in which cargo would run it. `source` is the end of its main
/// file's path.
pub fn test_program(source: &str) -> Result<(PathBuf, PathBuf)> {
    let output =
        build_tests().args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the tests can't be built ({})", output.status);
    }
    let built = String::from_utf8_lossy(&output.stdout);
    let built = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = built.into_iter().find_map(|message| {
        let is_it = message["target"]["src_path"].as_str()?.ends_with(source) && message["profile"]["test"] == true;
        let file = message["executable"].as_str().filter(|_| is_it)?;
        let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some((file.into(), dir.to_owned()))
    });
    program.with_context(|| format!("cargo built no test from {source}"))
}

/// Where cargo builds, and where what tests and benchmarks make is put.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
