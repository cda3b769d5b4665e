//! `podbay reap`: removes expired sandboxes and what killed ones left behind.

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
  podbay reap                             remove expired sandboxes and the remains of killed ones
  podbay reap --idle 2h                   also delete sandboxes that were idle for two hours
  podbay reap --mode raw --every 15m      repeat until it is terminated

Sandboxes end by themselves when their lifetime is over. This is for those that can't, because their node or machine is gone.";

/// Remove expired sandboxes and the remains of killed ones
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Also delete sandboxes that were idle for this long, such as 2h
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    idle: Option<Duration>,

    /// Repeat at this interval, such as 15m; failures are reported and don't end it
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    every: Option<Duration>,
}

/// Cleans up, once or repeatedly.
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
        output.failure(&Failure::new(format!("can't remove {id}: {why}")));
    }
    Ok(u8::from(failed))
}
