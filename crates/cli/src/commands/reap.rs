//! `podbay reap`: cleaning up after others.

use std::time::Duration;

use clap::Args;
use podbay::provider::Cleaned;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::quantity;
use crate::session::signals;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay reap                             removes what ended sandboxes left behind
  podbay reap --idle 2h                   ends those too that nobody used for two hours
  podbay reap --mode raw --every 15m      again and again, until it is told to end

Sandboxes end by themselves when their time is up. This is for what can't: those whose node or machine went away.";

/// Removes sandboxes that are over, and what killed ones left behind
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Ends those too that weren't used for so long, as in 2h
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    idle: Option<Duration>,

    /// Does it again and again, so long after each time, as in 15m; a failure is told and doesn't end it
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    every: Option<Duration>,
}

/// Cleans up.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    let Some(pause) = arguments.every else {
        return tell(podbay.cleanup(arguments.idle).await?, output);
    };
    let rounds = async {
        loop {
            match podbay.cleanup(arguments.idle).await {
                Ok(cleaned) => drop(tell(cleaned, output)?),
                Err(error) => drop(output.failure(&error.into())),
            }
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        ended = rounds => ended,
        signal = signals::end() => Ok(128_u8.saturating_add(signal?)),
    }
}

fn tell(cleaned: Cleaned, output: &Output) -> Result<u8, Failure> {
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
