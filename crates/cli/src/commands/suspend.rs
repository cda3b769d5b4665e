//! `podbay suspend`: sandboxes without a pod for a while.

use clap::Args;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay suspend box --mode agent-sandbox

A suspended sandbox has no pod and costs no CPU or memory. Its memory and the container's files are lost; what is on a
PersistentVolumeClaim of its template stays. 'podbay resume', or the next use, gives it a new pod. This works only in
mode agent-sandbox.";

/// Suspend sandboxes: end their processes, and keep what is on persistent volumes
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Names of the sandboxes
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// Suspends sandboxes, one after the other.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    for name in &arguments.names {
        podbay.suspend(name).await?;
        output.answer(&serde_json::json!({ "id": name, "suspended": true }), || name.clone())?;
    }
    Ok(0)
}
