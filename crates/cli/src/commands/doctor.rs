//! `podbay doctor`: what this machine or the cluster can do.

use std::time::Duration;

use clap::Args;
use podbay::config::Config;
use podbay::k8s::doctor::{CheckState, Depth, Doctor, Trial};

use crate::failure::Failure;
use crate::local_mode::{self, Isolation};
use crate::output::{Output, Table, plain};
use crate::quantity::positive_span;
use crate::session::signals;
use crate::settings::Settings;
use crate::terminal::{Style, escape};

const EXAMPLES: &str = "\
Examples:
  podbay doctor                         this machine
  podbay doctor --mode raw              a cluster: permissions, image, network policies and more
  podbay doctor --mode raw --quick      the same, without starting pods
  podbay doctor --mode agent-sandbox --hold 60s
                                        every configured connection, each held open for a minute
  podbay --json doctor

Every check is a real test. Exits with 1 if sandboxes can't be created, or only with weaker isolation. With --mode raw
it starts three short-lived pods and deletes them afterwards; with --mode agent-sandbox it claims one sandbox.";

/// Check whether this machine or cluster can run sandboxes, and show how to fix what is missing
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// On a cluster: start no pods, which leaves the image and the network policies unchecked
    #[arg(long)]
    quick: bool,

    /// In mode agent-sandbox: hold each connection open for this long (at most 10m), and say what cut it and when
    #[arg(long, value_name = "TIME", value_parser = hold_time, conflicts_with = "quick")]
    hold: Option<Duration>,

    /// In mode agent-sandbox: test the connections to this existing sandbox instead of creating one
    #[arg(long, value_name = "ID", conflicts_with = "quick")]
    sandbox: Option<String>,
}

/// podbayd ends a connection with its token, after a quarter of an hour.
fn hold_time(text: &str) -> Result<Duration, String> {
    match positive_span(text)? {
        time if time > Duration::from_secs(600) => Err("the time can't be longer than 10m".to_owned()),
        time => Ok(time),
    }
}

/// Checks this machine or the cluster.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let config = settings.config()?;
    let trial = Trial { hold: arguments.hold, sandbox: arguments.sandbox.clone() };
    if trial != Trial::default() && config.mode() != "agent-sandbox" {
        let message = format!("--hold and --sandbox are for mode agent-sandbox, and the mode is {}", config.mode());
        return Err(Failure::new(message).coded("usage"));
    }
    match config.doctor(trial).await? {
        Some(doctor) => cluster(&arguments, doctor, output).await,
        None => machine(&config, output),
    }
}

async fn cluster(arguments: &Arguments, doctor: Doctor, output: &Output) -> Result<u8, Failure> {
    let depth = if arguments.quick { Depth::Quick } else { Depth::Full };
    let report = tokio::select! {
        report = doctor.examine(depth) => report,
        signal = signals::end() => {
            let signal = signal?;
            doctor.clean_up().await?;
            return Ok(128_u8.saturating_add(signal));
        }
    };
    let code = u8::from(!report.usable);
    if output.is_json() {
        output.json(&report)?;
        return Ok(code);
    }
    let mut table = Table::new(&["", "WHAT", "FOUND"]);
    for finding in &report.findings {
        let mark = match finding.state {
            CheckState::Ok => (Style::Good, "ok"),
            CheckState::Skipped => (Style::Dim, "-"),
            CheckState::Warning => (Style::Warning, "warn"),
            CheckState::Failed => (Style::Bad, "fail"),
        };
        // What the cluster recorded comes in more lines, below.
        let first = finding.detail.lines().next().unwrap_or_default();
        table.row([(mark.0, mark.1.to_owned()), plain(&finding.what), plain(first)]);
    }
    let mut text = table.render(output);
    for finding in report.findings.iter().filter(|finding| finding.detail.lines().nth(1).is_some()) {
        text.push_str(&format!("\n{}:\n", escape(&finding.what)));
        text.extend(finding.detail.lines().map(|line| format!("  {}\n", escape(line))));
    }
    let fixes = report.findings.iter().filter_map(|finding| Some((finding, finding.fix.as_deref()?)));
    text.push_str(&remedies(fixes.map(|(finding, fix)| (finding.what.as_str(), fix))));
    text.push('\n');
    text.push_str(&match report.usable {
        true => output.paint(Style::Good, &format!("Sandboxes work in namespace {}.", report.namespace)),
        false => output.paint(Style::Bad, "Sandboxes can't be used in this cluster yet: see above."),
    });
    text.push('\n');
    output.text(&text)?;
    Ok(code)
}

fn remedies<'a>(fixes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let lines: String = fixes.map(|(what, fix)| format!("  {}: {}\n", escape(what), escape(fix))).collect();
    if lines.is_empty() { lines } else { format!("\nHow to fix it:\n{lines}") }
}

fn machine(config: &Config, output: &Output) -> Result<u8, Failure> {
    let report = local_mode::probe();
    let chosen = local_mode::chosen(config)?;
    let usable = match chosen {
        Isolation::Namespaces => report.isolation == Some(Isolation::Namespaces),
        Isolation::Landlock => report.isolation.is_some(),
    };
    let code = u8::from(!usable);
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
    let missing = report.findings.iter().filter(|finding| !finding.available);
    text.push_str(&remedies(
        missing.map(|finding| (finding.what.as_str(), finding.fix.as_deref().unwrap_or("no fix is known"))),
    ));
    text.push('\n');
    text.push_str(&match (report.isolation, chosen) {
        (Some(_), Isolation::Landlock) => output.paint(
            Style::Warning,
            "Sandboxes are isolated by Landlock, as the settings say: they can't open this machine's files, but can \
             see their names.",
        ),
        (Some(Isolation::Namespaces), Isolation::Namespaces) => output.paint(
            Style::Good,
            "Sandboxes are isolated by namespaces: they see nothing of this machine but its programs.",
        ),
        (Some(Isolation::Landlock), Isolation::Namespaces) => output.paint(
            Style::Bad,
            "The default isolation doesn't work on this machine. --isolation landlock does, but protects less.",
        ),
        (None, _) => output.paint(Style::Bad, "Sandboxes don't work here: see above for what is missing."),
    });
    text.push('\n');
    output.text(&text)?;
    Ok(code)
}
