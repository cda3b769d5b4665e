//! `podbay list`: all sandboxes.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use podbay::provider::{Listed, Phase, Query};

use crate::commands;
use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::quantity;
use crate::settings::Settings;
use crate::terminal::{self, Style};

const EXAMPLES: &str = "\
Examples:
  podbay list
  podbay list --label task=42
  podbay --json list --phase running";

/// List sandboxes
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Only sandboxes with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = quantity::pair)]
    labels: Vec<(String, String)>,

    /// Only sandboxes in this phase
    #[arg(long, value_enum)]
    phase: Option<Shown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shown {
    Pending,
    Warm,
    Running,
    Suspended,
    Terminated,
}

/// Lists sandboxes.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let phase = arguments.phase.map(|phase| match phase {
        Shown::Pending => Phase::Pending,
        Shown::Warm => Phase::Warm,
        Shown::Running => Phase::Running,
        Shown::Suspended => Phase::Suspended,
        Shown::Terminated => Phase::Terminated,
    });
    let labels: BTreeMap<_, _> = arguments.labels.into_iter().collect();
    let sandboxes = commands::open(settings)?.list_all(Query { labels, phase, ..Query::default() }).await?;
    if output.is_json() {
        return output.json(&sandboxes.iter().map(json).collect::<Vec<_>>());
    }
    let now = terminal::now_ms();
    let mut table = Table::new(&["NAME", "PHASE", ">AGE", ">IDLE", ">ENDS IN", "LABELS"]);
    for sandbox in &sandboxes {
        let labels: Vec<String> = sandbox.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.row([
            plain(&sandbox.id),
            (style(sandbox.phase), sandbox.phase.as_str().to_owned()),
            plain(terminal::span(now.saturating_sub(sandbox.created_ms))),
            plain(sandbox.active_ms.map_or("-".to_owned(), |active| terminal::span(now.saturating_sub(active)))),
            plain(sandbox.expires_ms.map_or("-".to_owned(), |end| terminal::span(end.saturating_sub(now)))),
            plain(labels.join(",")),
        ]);
    }
    output.text(&table.render(output))
}

fn style(phase: Phase) -> Style {
    match phase {
        Phase::Running => Style::Good,
        Phase::Terminated => Style::Dim,
        _ => Style::Warning,
    }
}

fn json(sandbox: &Listed) -> serde_json::Value {
    serde_json::json!({
        "id": sandbox.id,
        "phase": sandbox.phase.as_str(),
        "labels": sandbox.labels,
        "created_ms": sandbox.created_ms,
        "active_ms": sandbox.active_ms,
        "expires_ms": sandbox.expires_ms,
    })
}
