//! `podbay ls`: what is in a directory.

use std::ffi::OsString;

use clap::Args;
use podbay::files::{Entry, Kind, Ls, Partial};

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::{self, Style};

const EXAMPLES: &str = "\
Examples:
  podbay ls box                 the working directory, /workspace
  podbay ls box /etc
  podbay --json ls box src

Hidden files are shown. Control characters in names are escaped; --json has them unchanged.";

/// List a directory of a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Directory to list [default: the working directory]
    path: Option<OsString>,
}

/// Lists the directory.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let path = run::path(arguments.path.unwrap_or_else(|| ".".into()));
    let listing = sandbox.ls(&Ls::new(path)).await?;
    if output.is_json() {
        return output.json(&listing);
    }
    let mut table = Table::new(&["MODE", ">SIZE", "MODIFIED (UTC)", "NAME"]);
    for entry in &listing.entries {
        table.row([
            plain(mode(entry)),
            plain(terminal::bytes(entry.size)),
            plain(terminal::moment(entry.modified.secs)),
            (style(entry.kind), name(entry)),
        ]);
    }
    output.text(&table.render(output))?;
    tell(listing.partial.as_ref(), output);
    Ok(0)
}

/// The last part of the path, and where a link leads.
fn name(entry: &Entry) -> String {
    let path = entry.path.to_string_lossy();
    with_link(path.rsplit('/').next().unwrap_or_default(), entry)
}

/// A name, and where a link leads.
pub fn with_link(name: &str, entry: &Entry) -> String {
    match &entry.link {
        Some(link) => format!("{name} -> {}", link.target),
        None if entry.kind == Kind::Dir => format!("{name}/"),
        None => name.to_owned(),
    }
}

/// The kind and the permissions in ten characters, as `ls -l` has them.
pub fn mode(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Link => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        _ => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, entry.mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The colour of a kind.
pub fn style(kind: Kind) -> Style {
    match kind {
        Kind::File => Style::Plain,
        Kind::Dir => Style::Bold,
        Kind::Link => Style::Special,
        _ => Style::Warning,
    }
}

/// Notes that a result isn't complete.
pub fn tell(partial: Option<&Partial>, output: &Output) {
    if let Some(partial) = partial {
        output.note(&format!("incomplete: {}", partial.detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        let entry = |kind, mode| Entry {
            path: "/a".into(),
            kind,
            size: 0,
            modified: podbay::files::Time::default(),
            mode,
            link: None,
        };
        assert_eq!(mode(&entry(Kind::Dir, 0o1777)), "drwxrwxrwt");
        assert_eq!(mode(&entry(Kind::File, 0o4755)), "-rwsr-xr-x");
        assert_eq!(mode(&entry(Kind::File, 0o2640)), "-rw-r-S---");
    }
}
