//! `podbay audit`: checking the log of operations.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use podbay::audit::{VerifyReport, verify};

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::{Style, escape};

/// The log isn't as it was written.
const TAMPERED: u8 = 1;

/// How many operations without an end are shown.
const SHOWN: usize = 5;

const EXAMPLES: &str = "\
Examples:
  podbay audit verify audit.jsonl*                 a log and the files that it filled before, in any order
  podbay audit verify audit.jsonl --expect 3f5a…   checks that an entry with this hash is still there

Exit code 0: every entry is as it was written. 1: an entry was changed, removed, inserted or moved; the first is shown.
125: a file can't be read.

The hashes have no key: whoever can write the file can cut entries off its end, or rewrite it from some entry on. To notice
that, keep the last hash where they can't write, and give it to --expect later.";

/// Check the audit log (setting audit.file)
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Verify(Verify),
}

/// Finds the first entry that was changed, removed, inserted or moved
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct Verify {
    /// The log's files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// A hash that an earlier check printed: an entry with it must be in the log
    #[arg(long, value_name = "HASH")]
    expect: Option<String>,
}

/// Checks a log.
pub async fn run(arguments: Arguments, _: &Settings, output: &Output) -> Result<u8, Failure> {
    let Verb::Verify(arguments) = arguments.verb;
    let report = verify(&arguments.files, arguments.expect.as_deref())
        .map_err(|error| Failure::new(error.to_string()).coded("local_file"))?;
    match output.is_json() {
        true => output.json(&report)?,
        false => output.text(&shown(&report, output))?,
    };
    Ok(if report.intact { 0 } else { TAMPERED })
}

fn shown(report: &VerifyReport, output: &Output) -> String {
    let mut lines = Vec::new();
    match &report.fault {
        Some(fault) => {
            let path = escape(&fault.path.display().to_string());
            let place = if fault.line == 0 { path } else { format!("{path}:{}", fault.line) };
            lines.push(format!("{}: {place}: {}", output.paint(Style::Bad, fault.kind.as_str()), fault.message));
            match report.last {
                Some(last) => lines.push(format!(
                    "in order before that: {} up to entry {last}",
                    counted(report.entries, "entry", "entries")
                )),
                None => lines.push("no entry before that is in order".to_owned()),
            }
        }
        None => {
            let files = counted(report.files.len() as u64, "file", "files");
            lines.push(match (report.first, report.last) {
                (Some(first), Some(last)) => {
                    let entries = counted(report.entries, "entry", "entries");
                    format!("intact: {entries} in {files}, from {first} to {last}")
                }
                _ => format!("empty: no entry in {files}"),
            });
        }
    }
    if let Some(first) = report.first.filter(|first| *first > 1) {
        lines.push(format!("entries before {first} are in older files, which weren't given"));
    }
    for torn in &report.torn {
        lines.push(format!(
            "{}:{}: an incomplete line of {} bytes, consistent with an interrupted writer",
            escape(&torn.path.display().to_string()),
            torn.line,
            torn.bytes
        ));
    }
    if report.lost_count > 0 {
        let entries = counted(report.lost_count, "entry is", "entries are");
        lines.push(format!(
            "{}: {entries} missing because they couldn't be written:",
            output.paint(Style::Bad, "incomplete")
        ));
        for lost in report.lost.iter().take(SHOWN) {
            let since = podbay::quantity::format_time(Duration::from_secs(
                lost.time_ms.saturating_sub(lost.since_ms).div_ceil(1000),
            ));
            let line = format!(
                "  before entry {}: {}, over {since} (process {}): {}",
                lost.seq, lost.count, lost.pid, lost.reason
            );
            lines.push(escape(&line));
        }
        if report.lost.len() > SHOWN {
            lines.push("  and more: --json shows them".to_owned());
        }
    }
    if report.unfinished_count > 0 {
        let operations = counted(report.unfinished_count, "operation has", "operations have");
        lines.push(format!("{operations} begun and not ended, because the client was killed or is still running:"));
        for begun in report.unfinished.iter().take(SHOWN) {
            let target: String = begun.target.chars().take(80).collect();
            let line =
                format!("  entry {}: {} {target} in {} (process {})", begun.seq, begun.op, begun.sandbox, begun.pid);
            lines.push(escape(&line));
        }
        if report.unfinished_count > SHOWN as u64 {
            lines.push(format!("  and {} more: --json shows them", report.unfinished_count - SHOWN as u64));
        }
    }
    if let Some(hash) = report.last_hash.as_ref().filter(|_| report.intact) {
        lines.push(format!("last hash: {hash}"));
        lines.push(match (report.expected, report.last) {
            (Some(expected), Some(last)) if expected == last => "the last entry is the expected one".to_owned(),
            (Some(expected), _) => format!("the expected hash is that of entry {expected}"),
            _ => "entries cut off after the last can't be noticed; keep the last hash elsewhere and use --expect"
                .to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use podbay::audit::Lost;

    use super::*;

    /// Such a log was called intact, and nothing else.
    #[test]
    fn missing_entries_are_told() {
        let (time_ms, since_ms, reason) = (90_000, 30_000, "No space left on device\nintact".to_owned());
        let lost = Lost { seq: 7, time_ms, since_ms, pid: 4711, count: 12, reason };
        let report = VerifyReport { intact: true, lost_count: 12, lost: vec![lost], ..VerifyReport::default() };
        let said = shown(&report, &Output::new(true));
        assert!(said.contains("12 entries are missing because they couldn't be written:\n"), "{said}");
        let line = r"  before entry 7: 12, over 1m (process 4711): No space left on device\nintact";
        assert!(said.lines().any(|said| said == line), "{said}");
    }
}
