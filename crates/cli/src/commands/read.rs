//! `podbay read`: a file's content.

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::Args;
use podbay::files::{ByteRange, Read, ReadOutput};
use podbay::{RawPath, Sandbox};
use serde::Serialize;

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::escape_lines;

/// How much of a whole file is fetched at once.
const PIECE: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  podbay read box note.txt                          the whole file, unchanged
  podbay read box app.log --offset 1000 --limit 50  lines 1001 to 1050
  podbay read box data.bin --start 512 --length 16  bytes
  podbay --json read box note.txt                   a page of 2000 lines, with the file's metadata

On a terminal, control characters other than line feeds and tabs are escaped.";

/// Print a file of a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path of the file
    path: OsString,

    /// Skip this many lines
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(0..))]
    offset: Option<i64>,

    /// Print at most this many lines
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(1..))]
    limit: Option<i64>,

    /// Start at this byte
    #[arg(long, value_name = "BYTE", conflicts_with_all = ["offset", "limit"])]
    start: Option<u64>,

    /// Print at most this many bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["offset", "limit"])]
    length: Option<u64>,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    page: ReadOutput,
    /// A string, or `{"hex": …}` where it isn't text.
    content: RawPath,
}

/// Prints the file.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let mut request = Read::new(run::path(arguments.path));
    let by_lines = arguments.offset.is_some() || arguments.limit.is_some();
    let by_bytes = arguments.start.is_some() || arguments.length.is_some();
    request.offset = arguments.offset.unwrap_or(0);
    request.limit = arguments.limit.unwrap_or(request.limit);
    let (start, length) = (arguments.start.unwrap_or(0), arguments.length);
    if !by_lines && !output.is_json() {
        return pieces(&sandbox, request, start, length.unwrap_or(u64::MAX), output).await;
    }
    if by_bytes {
        request.bytes = Some(ByteRange { start, length: Some(length.unwrap_or(Read::PAGE).min(Read::PAGE)) });
    }
    let (page, content) = sandbox.read(&request).await?;
    if output.is_json() {
        return output.json(&Answer { page, content: content.to_vec().into() });
    }
    print(&content, output)?;
    if let Some(lines) = page.lines {
        output.text("\n")?;
        if let Some(next) = lines.next_offset {
            let of = lines.total_lines.map_or(String::new(), |total| format!(" of {total}"));
            output
                .note(&format!("lines {} to {}{of}; continue with --offset {next}", lines.start_line, lines.end_line));
        }
    }
    Ok(0)
}

/// Prints bytes of any file, a piece at a time. A file that changes meanwhile is an error, not a mixture.
async fn pieces(
    sandbox: &Sandbox,
    mut request: Read,
    mut start: u64,
    mut length: u64,
    output: &Output,
) -> Result<u8, Failure> {
    let mut first: Option<ReadOutput> = None;
    loop {
        request.bytes = Some(ByteRange { start, length: Some(length.min(PIECE)) });
        let (page, content) = sandbox.read(&request).await?;
        let seen = first.get_or_insert_with(|| page.clone());
        if (seen.size, seen.modified) != (page.size, page.modified) {
            return Err(Failure::new(format!(
                "{} changed while it was read, and only part of the old file was printed: read it again",
                page.path
            ))
            .coded("conflict"));
        }
        print(&content, output)?;
        let came = content.len() as u64;
        (start, length) = (start.saturating_add(came), length.saturating_sub(came));
        if came == 0 || length == 0 || start >= page.size {
            return Ok(0);
        }
    }
}

fn print(content: &[u8], output: &Output) -> Result<(), Failure> {
    match std::io::stdout().is_terminal() {
        true => output.text(&escape_lines(&String::from_utf8_lossy(content))).map(drop),
        false => output.bytes(content),
    }
}
