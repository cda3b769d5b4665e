//! `podbay edit`: replaces a text in a file.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Edit;

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay edit box app.py --old 'port = 80' --new 'port = 8080'
  podbay edit box app.py --old DEBUG --new INFO --all

The old text is taken literally and must be in the file once, unless --all is given. The file changes as a whole or not at
all.";

/// Replace text in a file of a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path of the file
    path: OsString,

    /// Text to replace
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    old: String,

    /// Text to put in its place
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    new: String,

    /// Replace every occurrence
    #[arg(long, short)]
    all: bool,
}

/// Replaces the text.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request = Edit { replace_all: arguments.all, ..Edit::in_file(run::path(arguments.path)) };
    let edited = sandbox.edit(request, &arguments.old, &arguments.new).await?;
    output.answer(&edited, || {
        let path = escape(&edited.path.to_string_lossy());
        match edited.occurrences {
            1 => format!("{path}: replaced in line {}", edited.first_line),
            many => format!("{path}: replaced {many} times, first in line {}", edited.first_line),
        }
    })
}
