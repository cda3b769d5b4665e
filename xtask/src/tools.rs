//! What tests and benchmarks need beside Rust: installed when missing, cached outside the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Whether nothing may be left out.
pub fn everything_is_required() -> bool {
    std::env::var_os("PODBAY_REQUIRE").is_some_and(|value| value == "all")
}

/// Says what is being done.
pub fn say(line: &str) {
    eprintln!("xtask: {line}");
}

/// Runs a command, its output on ours.
pub fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    say(&line);
    let status = command.status().with_context(|| format!("can't run: {line}"))?;
    if !status.success() {
        bail!("failed ({status}): {line}");
    }
    Ok(())
}

/// Cargo, as it runs this.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
