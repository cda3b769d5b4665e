//! `podbay glob`: files by name.

use std::ffi::OsString;

use clap::Args;
use podbay::files::{Glob, Kind};

use crate::commands::{self, ls, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay glob box '*.py'                 at any depth below the working directory
  podbay glob box 'src/**/*.{c,h}'
  podbay glob box '*.conf' /etc
  podbay --json glob box '*' --directories

Prints one path per line, relative to the start of the search. Exits with 1 if nothing is found.";

/// Find files in a sandbox by name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Glob pattern: '*', '?', '[…]', '{a,b}', and '**' for any number of directories
    pattern: OsString,

    /// Where to start [default: the working directory]
    path: Option<OsString>,

    /// Find directories too
    #[arg(long)]
    directories: bool,

    /// Let wildcards match names that begin with a dot
    #[arg(long)]
    hidden: bool,
}

/// Finds files.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request = Glob {
        path: arguments.path.map(run::path),
        directories: arguments.directories,
        dots: arguments.hidden,
        ..Glob::new(run::path(arguments.pattern))
    };
    let found = sandbox.glob(&request).await?;
    if output.is_json() {
        output.json(&found)?;
    } else {
        let line = |path: String, kind| format!("{path}{}\n", if kind == Kind::Dir { "/" } else { "" });
        let lines: String =
            found.matches.iter().map(|found| line(escape(&found.path.to_string_lossy()), found.kind)).collect();
        output.text(&lines)?;
        ls::tell(found.partial.as_ref(), output);
    }
    Ok(u8::from(found.matches.is_empty()))
}
