//! `podbay grep`: text in files.

use std::ffi::OsString;

use clap::Args;
use podbay::files::Grep;

use crate::commands::{self, ls, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::{Style, escape, escape_lines};

const EXAMPLES: &str = "\
Examples:
  podbay grep box TODO
  podbay grep box 'fn main()' src --glob '*.rs'
  podbay --json grep box needle --max-count 10

The text is literal, not a regular expression. Hidden files are searched; binary files and .git are not. Exits with 1 if
nothing is found. Control characters are escaped; --json has them unchanged.";

/// Find text in the files of a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Text to find, taken literally
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pattern: String,

    /// Directory or file to search [default: the working directory]
    path: Option<OsString>,

    /// Search only files that match this pattern
    #[arg(long, value_name = "PATTERN")]
    glob: Option<OsString>,

    /// Stop after this many lines
    #[arg(long, short, value_name = "NUMBER")]
    max_count: Option<u64>,
}

/// Finds text.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let request = Grep {
        path: arguments.path.map(run::path),
        glob: arguments.glob.map(run::path),
        max_count: arguments.max_count,
        ..Grep::new(arguments.pattern)
    };
    let found = sandbox.grep(&request).await?;
    if output.is_json() {
        output.json(&found)?;
        return Ok(u8::from(found.count == 0));
    }
    let mut text = String::new();
    for file in &found.files {
        let path = output.paint(Style::Special, &escape(&file.path.to_string_lossy()));
        for line in &file.lines {
            let number = output.paint(Style::Good, &line.line.to_string());
            // A tab stays; a line has no line feed.
            let cut = if line.cut { "…" } else { "" };
            text.push_str(&format!("{path}:{number}:{}{cut}\n", escape_lines(&line.text).replace('\n', "\\n")));
        }
    }
    output.text(&text)?;
    ls::tell(found.partial.as_ref(), output);
    Ok(u8::from(found.count == 0))
}
