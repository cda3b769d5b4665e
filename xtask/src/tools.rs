//! What tests and benchmarks need beside Rust: installed when missing, cached outside the repository.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::heard::Heard;

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
    say(&typed(command));
    listen_to(command, |piece| piece.to_vec())
}

/// Runs tests beside others. Each line of their output gets a label.
pub fn run_labelled_tests(command: &mut Command, label: &str) -> (Heard, Result<()>) {
    say(&format!("running {label}"));
    let mut unfinished = Vec::new();
    listen_to(command, |piece| {
        unfinished.extend_from_slice(piece);
        // All that is left at the end.
        let whole = match unfinished.iter().rposition(|&byte| byte == b'\n') {
            _ if piece.is_empty() => unfinished.len(),
            Some(end) => end + 1,
            None => 0,
        };
        let lines: Vec<u8> = unfinished.drain(..whole).collect();
        lines.split_inclusive(|&byte| byte == b'\n').flat_map(|line| [label.as_bytes(), b": ", line].concat()).collect()
    })
}

fn listen_to(command: &mut Command, shown: impl FnMut(&[u8]) -> Vec<u8>) -> (Heard, Result<()>) {
    let mut heard = Heard::default();
    let outcome = listen(command, &mut heard, shown);
    (heard, outcome)
}

/// Runs a program, hears what it prints, and prints what `shown` makes of each piece; the last one is empty.
fn listen(command: &mut Command, heard: &mut Heard, mut shown: impl FnMut(&[u8]) -> Vec<u8>) -> Result<()> {
    let line = typed(command);
    // One pipe for both, so that both stay in order.
    let (mut output, theirs) = std::io::pipe()?;
    without_own_package(command).stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn().with_context(|| format!("can't run: {line}"))?;
    // They would keep the pipe open.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (mut piece, mut unfinished) = ([0; 8192], Vec::new());
    loop {
        let length = output.read(&mut piece).context("the output can't be read")?;
        let mut screen = std::io::stdout().lock();
        // Whoever started this may not want to see it; the tests go on.
        let _ = screen.write_all(&shown(&piece[..length])).and_then(|()| screen.flush());
        drop(screen);
        if length == 0 {
            break;
        }
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

/// Where cargo builds, and where what tests and benchmarks make is put.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
