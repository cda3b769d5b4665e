//! `podbay rm`: deletes a file or directory.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Delete;

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay rm box note.txt
  podbay rm box build --recursive      a directory and everything in it
  podbay rm box cache -r --force       don't fail if it doesn't exist

'podbay delete' deletes sandboxes.";

/// Delete a file, a link or a directory in a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path to delete
    path: OsString,

    /// Delete a directory with everything in it
    #[arg(long, short)]
    recursive: bool,

    /// Succeed if the path doesn't exist
    #[arg(long, short)]
    force: bool,
}

/// Deletes it.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let path = run::path(arguments.path);
    let request = Delete { recursive: arguments.recursive, missing_ok: arguments.force, ..Delete::new(path) };
    let deleted = sandbox.delete(request).await?;
    output.answer(&deleted, || escape(&deleted.path.to_string_lossy()))
}
