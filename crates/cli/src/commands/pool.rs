//! `podbay pool`: sandboxes that wait for someone to want them.

use clap::Args;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay pool --mode raw                                     how full it is
  podbay pool --mode raw --fill --set raw.warm_pool_size=5   fills it, and returns when it is full

A sandbox from the pool is there in a moment; a new pod takes a second or more. Whoever takes one sees to the next, so the
pool stays full while programs use it; --fill is for the beginning.";

/// Tells how full the pool of waiting sandboxes is, and fills it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Fills it, and returns when it is full
    #[arg(long)]
    fill: bool,
}

/// Tells, or fills.
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
        output.note("there is no pool: set how many sandboxes shall wait, with --mode raw and raw.warm_pool_size");
        return Ok(0);
    }
    output.answer(&answer, || {
        format!("{} of {} wait; {} in use; {} in all", status.available, status.target, status.active, status.total)
    })
}
