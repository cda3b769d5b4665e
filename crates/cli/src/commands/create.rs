//! `podbay create`: a sandbox that stays.

use clap::Args;
use podbay::Podbay;

use crate::failure::Failure;
use crate::output::Output;
use crate::sandbox_options::SandboxOptions;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay create --name box
  podbay create --name box --workspace . --memory 2G --idle-ttl 30m
  box=$(podbay create --label task=42)      prints the name

It stays until 'podbay delete', the end of --ttl or --idle-ttl, or a restart of the machine.";

/// Makes a sandbox that stays, and prints its name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    sandbox: SandboxOptions,

    /// Takes the sandbox of that name as it is, when there is one
    #[arg(long, requires = "name")]
    reuse: bool,
}

/// Makes the sandbox.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let mut config = settings.config()?;
    arguments.sandbox.apply(&mut config)?;
    let sandbox = Podbay::new(config)?.get_or_create(arguments.sandbox.wanted(false)).await?;
    if !sandbox.created() && !arguments.reuse {
        let name = sandbox.id();
        return Err(Failure::new(format!(
            "there is a sandbox {name:?} already: choose another name, delete it, or take it as it is with --reuse"
        ))
        .coded("already_exists"));
    }
    let answer = serde_json::json!({ "id": sandbox.id(), "created": sandbox.created() });
    output.answer(&answer, || sandbox.id().to_owned())
}
