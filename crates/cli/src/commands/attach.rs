//! `podbay attach`: the output of a command that was started before.

use clap::Args;

use crate::commands::{self, ps};
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{self, Passing, SessionEnd};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay attach box 3f9a                  all output so far, then new output until it ends
  podbay attach box 3f9a --from 1048576   skip the first mebibyte

Exits with the command's exit code. Ctrl-C leaves the command running.";

/// Show the output of a command, until it ends
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Id of the command, or a unique prefix of it
    id: String,

    /// Skip this many bytes of output
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    from: u64,
}

/// Shows the output.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let info = ps::resolve(&sandbox, &arguments.name, &arguments.id).await?;
    let mut exec = sandbox.attach(&info.id, arguments.from).await?;
    match session::follow(&mut exec, Passing { input: false, signals: false }, output).await? {
        SessionEnd::Ended(info) => {
            session::explain(&info, output);
            session::exit_code(&info)
        }
        SessionEnd::Interrupted(signal) => {
            output.note(&format!("the command {} keeps running in {}", info.id, arguments.name));
            Ok(128_u8.saturating_add(signal))
        }
    }
}
