//! `podbay create`: creates a long-lived sandbox.

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;
use crate::sandbox_options::SandboxOptions;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay create --name box
  podbay create --name box --workspace . --memory 2G --idle-ttl 30m
  box=$(podbay create --label task=42)      keep its name

It exists until 'podbay delete', until --ttl or --idle-ttl expires, or until the machine restarts.";

/// Create a long-lived sandbox and print its name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    sandbox: SandboxOptions,

    /// Use an existing sandbox of that name as it is
    #[arg(long, requires = "name")]
    reuse: bool,
}

/// Creates the sandbox.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let mut config = settings.config()?;
    arguments.sandbox.apply(&mut config)?;
    let sandbox = super::with(config)?.get_or_create(arguments.sandbox.wanted(false)).await?;
    if !sandbox.created() && !arguments.reuse {
        let name = sandbox.id();
        return Err(Failure::new(format!(
            "a sandbox {name:?} already exists: choose another name, delete it, or use it as it is with --reuse"
        ))
        .coded("already_exists"));
    }
    let answer = serde_json::json!({ "id": sandbox.id(), "created": sandbox.created() });
    output.answer(&answer, || sandbox.id().to_owned())
}
