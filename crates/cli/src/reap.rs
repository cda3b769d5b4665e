//! `podbay reap`: cleaning up after others.

use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;
use crate::place::Place;
use crate::quantity;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay reap                 removes what ended sandboxes left behind
  podbay reap --idle 2h       ends those too that nobody used for two hours";

/// Removes sandboxes that are over, and what killed ones left behind
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Ends those too that weren't used for so long, as in 2h
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    idle: Option<Duration>,
}

/// Cleans up.
pub async fn reap(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let cleaned = Place::open(settings).await?.cleanup(arguments.idle).await?;
    let failed = !cleaned.failed.is_empty();
    if output.is_json() {
        let failures: Vec<_> =
            cleaned.failed.iter().map(|(id, why)| serde_json::json!({ "id": id, "message": why })).collect();
        output.json(&serde_json::json!({
            "deleted": cleaned.deleted, "kept": cleaned.kept, "failed": failures,
        }))?;
        return Ok(u8::from(failed));
    }
    for id in &cleaned.deleted {
        output.text(&format!("{}\n", crate::terminal::escape(id)))?;
    }
    output.note(&format!("{} removed, {} kept", cleaned.deleted.len(), cleaned.kept));
    for (id, why) in &cleaned.failed {
        output.failure(&Failure::new(format!("{id} can't be removed: {why}")));
    }
    Ok(u8::from(failed))
}
