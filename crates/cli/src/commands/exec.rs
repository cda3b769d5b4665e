//! `podbay exec`: a command in an existing sandbox.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use podbay::{Command, RawPath};

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::quantity;
use crate::session::{self, Passing, SessionEnd};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay exec box -- python3 -c 'print(2 + 2)'
  podbay exec box --cwd /tmp --env MODE=test -- sh -c 'echo $MODE in $PWD'
  podbay exec box -i -- tee note.txt < note.txt      with standard input
  podbay exec box --detach -- sleep 600              print the command's id, for ps, attach and kill

Ctrl-C is passed on to the command; after a second one, or 2 seconds, it is killed with everything that it started.
With --json each line is an event: started, output, lost, end.";

/// How long to wait for the end of a command that was killed.
const END: Duration = Duration::from_secs(5);

/// Run a command in an existing sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Leave the command running and print its id
    #[arg(long, short, conflicts_with = "interactive")]
    detach: bool,

    /// Pass standard input to the command
    #[arg(long, short)]
    interactive: bool,

    /// Time limit, such as 30s; the exit code is then 124
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    timeout: Option<Duration>,

    /// Working directory in the sandbox [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    env: Vec<(String, String)>,

    /// Program and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    words: Vec<OsString>,
}

/// Runs the command.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let env = arguments.env.into_iter().map(|(key, value)| (key, RawPath::from(value))).collect();
    let command = run::command(arguments.words, arguments.cwd, arguments.timeout, arguments.interactive);
    let command = Command { env, ..command };
    if arguments.detach {
        let info = sandbox.start(command).await?;
        return output.answer(&info, || info.id.to_string());
    }
    let mut exec = sandbox.spawn(command).await?;
    let control = exec.control();
    let passing = Passing { input: arguments.interactive, signals: true };
    match session::follow(&mut exec, passing, output).await {
        Ok(SessionEnd::Ended(info)) => {
            session::explain(&info, output);
            session::exit_code(&info)
        }
        Ok(SessionEnd::Interrupted(signal)) => {
            control.kill().await?;
            // A killed process is there until the kernel has ended it, and podbayd until then lists the command as running.
            let _ = tokio::time::timeout(END, exec.wait()).await;
            Ok(128_u8.saturating_add(signal))
        }
        Err(failure) => {
            // Nobody follows it any more. Where the sandbox itself is lost there is nothing to kill.
            if let Err(error) = control.kill().await {
                output.note(&format!("can't end the command {}: {error}", exec.id()));
            }
            Err(failure)
        }
    }
}
