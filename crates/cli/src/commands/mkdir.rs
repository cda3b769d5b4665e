//! `podbay mkdir`: a new directory.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Mkdir;

use crate::commands::{self, run, write};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay mkdir box src/lib                the directories above it are created too
  podbay mkdir box private --chmod 700
  podbay mkdir box lock --create-only     fails when it exists";

/// Create a directory in a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path of the directory
    path: OsString,

    /// Fail if the directory exists
    #[arg(long)]
    create_only: bool,

    /// Permissions of a new directory, such as 755
    #[arg(long, value_name = "MODE", value_parser = write::mode)]
    chmod: Option<u32>,
}

/// Creates the directory.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request =
        Mkdir { exist_ok: !arguments.create_only, mode: arguments.chmod, ..Mkdir::new(run::path(arguments.path)) };
    let made = sandbox.mkdir(request).await?;
    output.answer(&made, || escape(&made.path.to_string_lossy()))
}
