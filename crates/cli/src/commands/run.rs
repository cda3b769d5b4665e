//! `podbay run`: one command in a sandbox of its own.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use podbay::config::Config;
use podbay::provider::Wanted;
use podbay::{Command, Podbay, RawPath, Sandbox};

use crate::failure::Failure;
use crate::output::Output;
use crate::quantity;
use crate::sandbox_options::SandboxOptions;
use crate::session::{self, Passing, SessionEnd, signals};
use crate::settings::Settings;

/// How long a sandbox on a cluster outlives its command at most if nobody could delete it.
const SPARE: Duration = Duration::from_secs(600);

/// How long to wait for a cluster's answer when only the deletion is left.
const PATIENCE: Duration = Duration::from_secs(15);

const EXAMPLES: &str = "\
Examples:
  podbay run -- python3 -c 'print(2 + 2)'
  podbay run -- sh -c 'wc -l < /etc/passwd'
  podbay run --workspace . -- make test             in this directory, writable
  podbay run --memory 512M --timeout 30s -- ./untrusted
  podbay run --mount ~/data:/data -- ls /data       with another directory, read-only
  tar c src | podbay run -- tar t                   with standard input
  podbay run --mode raw --image python:3.12-slim -- python3 -V      in a pod on a cluster

Output, input, signals and the exit code are those of the command. Ctrl-C ends the command and the sandbox.
With --json each line is an event: started, output, lost, end.";

/// Run one command in a temporary sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    sandbox: SandboxOptions,

    /// Time limit of the command, such as 30s; exits with 124 if it is exceeded
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    timeout: Option<Duration>,

    /// Working directory in the sandbox [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// Program and arguments
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

/// A path or argument in the sandbox, byte for byte.
pub fn path(text: OsString) -> RawPath {
    text.into_vec().into()
}

/// Runs the command.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let mut config = settings.config()?;
    arguments.sandbox.apply(&mut config)?;
    // A cluster doesn't see the end of this process. There the sandbox is deleted, and ends by itself where that fails.
    let leashed = config.mode_row().leashes;
    if !leashed {
        backstop(&mut config, arguments.timeout)?;
    }
    let podbay = super::with(config)?;
    let wanted = arguments.sandbox.wanted(leashed);
    let sandbox = match leashed {
        true => podbay.get_or_create(wanted).await?,
        false => match create(&podbay, wanted, output).await? {
            Ok(sandbox) => sandbox,
            Err(signal) => return Ok(128_u8.saturating_add(signal)),
        },
    };
    if !sandbox.created() {
        let name = sandbox.id();
        return Err(Failure::new(format!(
            "a sandbox {name:?} already exists, and 'run' creates a new one: choose another name, or use 'podbay exec \
             {name}'"
        ))
        .coded("already_exists"));
    }
    let input = session::has_input();
    let command = command(arguments.words, arguments.cwd, arguments.timeout, input);
    let outcome = async {
        let mut exec = sandbox.spawn(command).await?;
        session::follow(&mut exec, Passing { input, signals: true }, output).await
    }
    .await;
    // Whatever happened, nothing stays. The command's own outcome matters more than a failed clean-up.
    let deleted =
        if leashed { sandbox.destroy().await.map_err(Failure::from) } else { end(&podbay, sandbox.id()).await };
    let code = match outcome? {
        SessionEnd::Ended(info) => {
            session::explain(&info, output);
            session::exit_code(&info)?
        }
        SessionEnd::Interrupted(signal) => 128_u8.saturating_add(signal),
    };
    if let Err(failure) = deleted {
        let name = sandbox.id();
        output.note(&format!("can't delete the sandbox {name}: {}; try 'podbay delete {name}'", failure.message()));
    }
    Ok(code)
}

/// Limits the lifetime of a sandbox whose creator may be killed.
fn backstop(config: &mut Config, timeout: Option<Duration>) -> Result<(), Failure> {
    const FLAG: &str = "podbay run";
    if let Some(timeout) = timeout.filter(|_| !config.is_set("ttl")) {
        let ttl = timeout.saturating_add(SPARE);
        config.set_by(FLAG, "ttl", &format!("{}s", ttl.as_secs()))?;
    }
    if !config.is_set("idle_ttl") {
        config.set_by(FLAG, "idle_ttl", &format!("{}s", SPARE.as_secs()))?;
    }
    Ok(())
}

/// Creates a sandbox on a cluster, which takes a while. If a signal comes meanwhile, deletes it and returns the signal.
async fn create(podbay: &Podbay, wanted: Wanted, output: &Output) -> Result<Result<Sandbox, u8>, Failure> {
    // With a name known from the beginning it can be deleted whatever became of it. A name that was given may be another's.
    let own = wanted.id.is_none();
    let id = wanted.id.clone().unwrap_or_else(|| format!("pb-{:016x}", rand::random::<u64>()));
    let wanted = Wanted { id: Some(id.clone()), ..wanted };
    let mut creation = std::pin::pin!(podbay.get_or_create(wanted));
    let signal = tokio::select! {
        created = &mut creation => return Ok(Ok(created?)),
        signal = signals::end() => signal?,
    };
    let ours = own || matches!(tokio::time::timeout(PATIENCE, creation).await, Ok(Ok(sandbox)) if sandbox.created());
    if ours && let Err(failure) = end(podbay, &id).await {
        output.note(&format!("the sandbox {id} may still exist: {}; try 'podbay delete {id}'", failure.message()));
    }
    Ok(Err(signal))
}

/// Deletes a sandbox, unless that takes too long or a second signal comes.
async fn end(podbay: &Podbay, id: &str) -> Result<bool, Failure> {
    tokio::select! {
        deleted = podbay.delete(id) => Ok(deleted?),
        () = tokio::time::sleep(PATIENCE) => Err(Failure::new("the cluster doesn't answer")),
        signal = signals::end() => Err(Failure::new(format!("interrupted by signal {}", signal?))),
    }
}
