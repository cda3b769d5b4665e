//! `podbay tree`: a directory and everything below it.

use std::ffi::OsString;

use clap::Args;
use podbay::files::{Kind, Tree};

use crate::commands::{self, ls, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape;

const EXAMPLES: &str = "\
Examples:
  podbay tree box                     everything below the working directory, /workspace
  podbay tree box src --depth 2
  podbay --json tree box              with sizes, permissions and times

Each line is a path below the directory. Hidden files are shown, and links aren't followed.";

/// List a directory of a sandbox and everything below it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Directory to list [default: the working directory]
    path: Option<OsString>,

    /// Descend at most this many levels; 1 lists only the directory's children
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
}

/// Lists the tree.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request = Tree { path: arguments.path.map(run::path), max_depth: arguments.depth, ..Tree::default() };
    let found = sandbox.tree(request).await?;
    if output.is_json() {
        return output.json(&found);
    }
    let mut text = String::new();
    for entry in &found.entries {
        let path = entry.path.to_string_lossy();
        text.push_str(&escape(&match &entry.target {
            Some(target) => format!("{path} -> {target}"),
            None if entry.kind == Kind::Dir => format!("{path}/"),
            None => path.into_owned(),
        }));
        text.push('\n');
    }
    output.text(&text)?;
    ls::tell(found.partial.as_ref(), output);
    Ok(0)
}
