//! `podbay stat`: what is at a path.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Stat;

use crate::commands::{self, ls, run};
use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  podbay stat box note.txt
  podbay stat box link --no-follow      the link itself
  podbay --json stat box /etc/hostname";

/// Show what is at a path of a sandbox: kind, size, permissions, owner
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path of the file or directory
    path: OsString,

    /// Describe a link itself, not what it leads to
    #[arg(long)]
    no_follow: bool,
}

/// Describes the path.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request = Stat { follow: !arguments.no_follow, ..Stat::new(run::path(arguments.path)) };
    let found = sandbox.stat(request).await?;
    if output.is_json() {
        return output.json(&found);
    }
    let mut table = Table::new(&["MODE", ">OWNER", ">GROUP", ">SIZE", "MODIFIED (UTC)", "PATH"]);
    table.row([
        plain(ls::mode(&found.entry)),
        plain(found.uid.to_string()),
        plain(found.gid.to_string()),
        plain(terminal::bytes(found.entry.size)),
        plain(terminal::moment(found.entry.modified.secs)),
        (ls::style(found.entry.kind), ls::with_link(&found.entry.path.to_string_lossy(), &found.entry)),
    ]);
    output.text(&table.render(output))
}
