//! `podbay describe`: everything about one sandbox.

use clap::Args;
use podbay::description::{Description, Limit, SandboxEvent};
use podbay::{Protection, ProtectionReport};

use crate::commands;
use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::{self, Style, escape};

const EXAMPLES: &str = "\
Examples:
  podbay describe box
  podbay --json describe box
  podbay --mode raw describe box      including the events of its pod";

/// Show everything about a sandbox: state, isolation, limits, lifetimes, events
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,
}

/// Describes a sandbox.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    let told = podbay.describe(&arguments.name).await?;
    if output.is_json() {
        return output.json(&json(podbay.mode(), &told));
    }
    output.text(&text(podbay.mode(), &told, output))
}

fn json(mode: &str, told: &Description) -> serde_json::Value {
    let listed = &told.listed;
    let fact = |(name, value): &(&str, String)| serde_json::json!({ "name": name, "value": value });
    let protection = |report: &ProtectionReport| {
        let one = |protection: &Protection| {
            let Protection { what, in_force, detail } = protection;
            serde_json::json!({ "what": what, "in_force": in_force, "detail": detail })
        };
        let all: Vec<_> = report.protections.iter().map(one).collect();
        serde_json::json!({ "landlock_abi": report.landlock_abi, "protections": all })
    };
    serde_json::json!({
        "id": listed.id,
        "mode": mode,
        "phase": listed.phase.as_str(),
        "labels": listed.labels,
        "created_ms": listed.created_ms,
        "active_ms": listed.active_ms,
        "expires_ms": listed.expires_ms,
        "ttl_ms": told.ttl_ms,
        "idle_ttl_ms": told.idle_ttl_ms,
        "running_commands": told.running,
        "isolation": told.isolation,
        "facts": told.facts.iter().map(fact).collect::<Vec<_>>(),
        "protection": told.protection.as_ref().map(protection),
        "limits": told.limits,
        "events": told.events,
        "unknown": told.unknown,
    })
}

fn text(mode: &str, told: &Description, output: &Output) -> String {
    let now = terminal::now_ms();
    let mut parts = vec![summary(mode, told, now, output)];
    if let Some(protection) = &told.protection {
        parts.push(protections(protection).render(output));
    }
    if !told.limits.is_empty() {
        parts.push(limits(&told.limits).render(output));
    }
    if !told.events.is_empty() {
        parts.push(events(&told.events, now).render(output));
    }
    if !told.unknown.is_empty() {
        let lines = told.unknown.iter().map(|line| format!("  {}\n", escape(line)));
        parts.push(format!("Unknown:\n{}", lines.collect::<String>()));
    }
    parts.join("\n")
}

fn summary(mode: &str, told: &Description, now: u64, output: &Output) -> String {
    let listed = &told.listed;
    let most = |ms: Option<u64>| ms.map_or("unlimited".to_owned(), terminal::span);
    let ago = |ms: u64| format!("{} ago", terminal::span(now.saturating_sub(ms)));
    let labels: Vec<String> = listed.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let ends = |end: u64| format!("in {} at the latest", terminal::span(end.saturating_sub(now)));
    let mut rows = vec![
        ("name", listed.id.clone()),
        ("mode", mode.to_owned()),
        ("phase", listed.phase.as_str().to_owned()),
        ("isolation", told.isolation.clone()),
        ("labels", if labels.is_empty() { "-".to_owned() } else { labels.join(",") }),
        ("created", ago(listed.created_ms)),
        ("last used", listed.active_ms.map_or("-".to_owned(), ago)),
        ("ttl", most(told.ttl_ms)),
        ("idle ttl", most(told.idle_ttl_ms)),
        ("ends", listed.expires_ms.map_or("when it is deleted".to_owned(), ends)),
        ("running commands", told.running.map_or("-".to_owned(), |running| running.to_string())),
    ];
    let abi = told.protection.as_ref().map(|protection| match protection.landlock_abi {
        0 => "none".to_owned(),
        abi => format!("ABI {abi}"),
    });
    rows.extend(abi.map(|abi| ("landlock", abi)));
    rows.extend(told.facts.iter().cloned());
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let row = |(name, value): &(&str, String)| {
        format!("{}  {}\n", output.paint(Style::Bold, &format!("{name:width$}")), escape(value))
    };
    rows.iter().map(row).collect()
}

fn protections(report: &ProtectionReport) -> Table {
    let mut table = Table::new(&["PROTECTED FROM COMMANDS", "", "HOW, OR WHY NOT"]);
    for protection in &report.protections {
        let mark = if protection.in_force { (Style::Good, "yes") } else { (Style::Bad, "no") };
        table.row([plain(protection.what.to_string()), (mark.0, mark.1.to_owned()), plain(&protection.detail)]);
    }
    table
}

fn limits(limits: &[Limit]) -> Table {
    let mut table = Table::new(&["LIMIT", ">MAXIMUM", "ENFORCED BY", "NOTE"]);
    for limit in limits {
        let most = limit.most.as_deref().map(|most| match (limit.limit.as_str(), most.parse()) {
            ("memory" | "disk", Ok(count)) => terminal::bytes(count),
            _ => most.to_owned(),
        });
        table.row([
            plain(&limit.limit),
            most.map_or((Style::Warning, "unlimited".to_owned()), plain),
            plain(limit.by.as_deref().unwrap_or("-")),
            plain(limit.note.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn events(events: &[SandboxEvent], now: u64) -> Table {
    let mut table = Table::new(&[">AGO", ">TIMES", "EVENT", "WHAT HAPPENED"]);
    for event in events {
        let style = if event.kind == "Normal" { Style::Plain } else { Style::Warning };
        table.row([
            plain(event.at_ms.map_or("-".to_owned(), |at| terminal::span(now.saturating_sub(at)))),
            plain(event.count.to_string()),
            (style, event.reason.clone()),
            plain(&event.message),
        ]);
    }
    table
}
