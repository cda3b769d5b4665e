//! `podbay delete`: deletes sandboxes.

use clap::Args;
use podbay::provider::Query;

use crate::commands;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay delete box
  podbay delete box other
  podbay delete --all

Its processes are killed and its files removed. Directories given with --workspace or --mount are left as they are.
Deleting a sandbox that doesn't exist succeeds.";

/// Delete sandboxes and everything in them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Names of the sandboxes
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,

    /// Delete all sandboxes that 'podbay list' shows
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

/// Deletes sandboxes. One that can't be deleted doesn't stop the others.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let podbay = commands::open(settings)?;
    let names = match arguments.all {
        true => podbay.list_all(Query::default()).await?.into_iter().map(|sandbox| sandbox.id).collect(),
        false => arguments.names,
    };
    let mut answers = Vec::with_capacity(names.len());
    let mut code = 0;
    for name in names {
        let deleted = podbay.delete(&name).await.map_err(Failure::from);
        if let Err(failure) = &deleted {
            code = 1;
            if !output.is_json() {
                output.failure(failure);
            }
        }
        if !output.is_json() {
            match deleted {
                Ok(true) => output.text(&format!("{name}\n")).map(drop)?,
                Ok(false) => output.note(&format!("no sandbox {name:?}")),
                Err(_) => {}
            }
            continue;
        }
        answers.push(match deleted {
            Ok(deleted) => serde_json::json!({ "id": name, "deleted": deleted }),
            Err(failure) => serde_json::json!({ "id": name, "deleted": false, "error": failure }),
        });
    }
    if output.is_json() {
        output.json(&answers)?;
    }
    Ok(code)
}
