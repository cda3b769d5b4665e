//! `podbay doctor`: what this machine can do.

use clap::Args;

use crate::failure::Failure;
use crate::local_mode;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::{Style, escape};

const EXAMPLES: &str = "\
Examples:
  podbay doctor
  podbay --json doctor

Everything is tried, not guessed. Ends with code 1 when no sandbox can be made here.";

/// Tells what isolation this machine has, what is missing, and how to get it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {}

/// Looks at this machine.
pub async fn doctor(_arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    settings.config()?;
    let report = local_mode::probe();
    let code = u8::from(report.isolation != Some(local_mode::Isolation::Namespaces));
    if output.is_json() {
        output.json(&report)?;
        return Ok(code);
    }
    let mut table = Table::new(&["", "WHAT", "FOUND"]);
    for finding in &report.findings {
        let mark = if finding.available { (Style::Good, "yes") } else { (Style::Bad, "no") };
        table.row([(mark.0, mark.1.to_owned()), plain(&finding.what), plain(&finding.detail)]);
    }
    let mut text = table.render(output);
    let missing: Vec<_> = report.findings.iter().filter(|finding| !finding.available).collect();
    if !missing.is_empty() {
        text.push_str("\nWhat is missing, and how to get it:\n");
        for finding in missing {
            let fix = finding.fix.as_deref().unwrap_or("nothing is known to help");
            text.push_str(&format!("  {}: {}\n", escape(&finding.what), escape(fix)));
        }
    }
    text.push('\n');
    text.push_str(&match report.isolation {
        Some(local_mode::Isolation::Namespaces) => output.paint(
            Style::Good,
            "Sandboxes are isolated by namespaces: they see nothing of this machine but its programs.",
        ),
        // What Landlock alone can do isn't enough for a sandbox yet.
        Some(local_mode::Isolation::Landlock) | None => {
            output.paint(Style::Bad, "No sandbox can be made here: see what is missing above.")
        }
    });
    text.push('\n');
    output.text(&text)?;
    Ok(code)
}
