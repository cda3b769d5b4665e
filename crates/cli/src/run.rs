//! `podbay run`: one command in a sandbox of its own.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use podbay::{Command, RawPath};

use crate::failure::Failure;
use crate::output::Output;
use crate::place::Place;
use crate::quantity;
use crate::sandbox_options::SandboxOptions;
use crate::session::{self, Outcome, Passing};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay run -- python3 -c 'print(2 + 2)'
  podbay run -- sh -c 'wc -l < /etc/passwd'
  podbay run --workspace . -- make test             in this directory, which it can change
  podbay run --memory 512M --timeout 30s -- ./untrusted
  podbay run --mount ~/data:/data -- ls /data       a directory more, read-only
  tar c src | podbay run -- tar t                   standard input is passed on

Output, input, signals and the exit code are the command's own. Ctrl-C ends the command and the sandbox.
With --json each line is an event: started, output, lost, end.";

/// Runs one command in a sandbox that is gone afterwards
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    sandbox: SandboxOptions,

    /// How long the command may run, as in 30s; then it ends with code 124
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    timeout: Option<Duration>,

    /// Where in the sandbox; /workspace when not given
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    words: Vec<OsString>,
}

/// A command from the command line.
pub fn command(words: Vec<OsString>, cwd: Option<PathBuf>, timeout: Option<Duration>, stdin: bool) -> Command {
    Command {
        // A person is waiting, who knows Ctrl-C: no time-out unless one is asked for. Less than a millisecond is one.
        timeout_ms: timeout.map_or(0, |timeout| (timeout.as_millis() as u64).max(1)),
        cwd: cwd.map(|cwd| path(cwd.into_os_string())),
        stdin,
        ..Command::argv(words.into_iter().map(path))
    }
}

/// A path or word in the sandbox, byte for byte.
pub fn path(text: OsString) -> RawPath {
    text.into_vec().into()
}

/// Runs the command.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let mut config = settings.config()?;
    arguments.sandbox.apply(&mut config)?;
    let place = Place::of(&config).await?;
    let made = place.make(&arguments.sandbox.wanted(true)).await?;
    if !made.created {
        let name = &made.id;
        return Err(Failure::new(format!(
            "there is a sandbox {name:?} already, and 'run' makes one of its own: choose another name, or use 'podbay exec {name}'"
        ))
        .coded("already_exists"));
    }
    let input = session::has_input();
    let command = command(arguments.words, arguments.cwd, arguments.timeout, input);
    let outcome = async {
        let mut exec = made.sandbox.spawn(command).await?;
        session::follow(&mut exec, Passing { input, signals: true }, output).await
    }
    .await;
    // Whatever happened, nothing stays. The command's own outcome is worth more than a word about cleaning up.
    let deleted = place.delete(&made.id).await;
    let code = match outcome? {
        Outcome::Ended(info) => {
            session::explain(&info, output);
            session::exit_code(&info)?
        }
        Outcome::Interrupted(signal) => 128_u8.saturating_add(signal),
    };
    if let Err(failure) = deleted {
        output.note(&format!("the sandbox can't be removed: {}; 'podbay reap' tries again", failure.message()));
    }
    Ok(code)
}
