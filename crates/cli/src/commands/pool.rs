//! `podbay pool`: sandboxes that are ready before they are needed.

use clap::Args;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay pool --mode raw                                     show how full it is
  podbay pool --mode raw --fill --set raw.warm_pool_size=5   fill it and wait until it is full
  podbay pool --mode agent-sandbox --warm-pool python        show the controller's pool

A sandbox from the warm pool is ready in milliseconds; a new pod takes a second or more. Programs that take a sandbox refill
the pool; --fill is for the first time.";

/// Show how full the warm pool is, or fill it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Fill it and wait until it is full
    #[arg(long)]
    fill: bool,
}

/// Shows the pool, or fills it.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    let status = match arguments.fill {
        true => podbay.refill().await?,
        false => podbay.pool_status().await?,
    };
    let answer = serde_json::json!({
        "available": status.available, "active": status.active, "total": status.total, "target": status.target,
    });
    if !output.is_json() && status.target == 0 && status.total == 0 {
        output.note("there is no warm pool: set raw.warm_pool_size with --mode raw, or use --mode agent-sandbox");
        return Ok(0);
    }
    output.answer(&answer, || {
        format!("{} of {} ready; {} in use; {} in total", status.available, status.target, status.active, status.total)
    })
}
