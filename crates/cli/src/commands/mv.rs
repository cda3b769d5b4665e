//! `podbay mv`: moves or renames a file or directory.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Move;

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay mv box draft.txt final.txt
  podbay mv box new.txt final.txt --overwrite
  podbay mv box src old/src                    the directories above it are created

The target is always the new path itself, even if it is a directory.";

/// Move or rename a file or directory in a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path to move
    from: OsString,

    /// New path
    to: OsString,

    /// Replace a file, a link or an empty directory at the new path
    #[arg(long)]
    overwrite: bool,
}

/// Moves it.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request =
        Move { overwrite: arguments.overwrite, ..Move::new(run::path(arguments.from), run::path(arguments.to)) };
    let moved = sandbox.mv(request).await?;
    output.answer(&moved, || escape(&moved.to.to_string_lossy()))
}
