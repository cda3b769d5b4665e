//! `podbay resume`: sandboxes that were suspended.

use clap::Args;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay resume box --mode agent-sandbox

It gets a new pod, with what is on the PersistentVolumeClaims of its template. This works only in mode agent-sandbox.";

/// Resume suspended sandboxes
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Names of the sandboxes
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// Resumes suspended sandboxes, one after the other.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    for name in &arguments.names {
        podbay.resume(name).await?;
        output.answer(&serde_json::json!({ "id": name, "resumed": true }), || name.clone())?;
    }
    Ok(0)
}
