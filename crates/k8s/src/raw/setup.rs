//! The setup script, which every new sandbox runs once.

use std::time::Duration;

use podbay_client::{Command, Event, ExecId, Info, Sandbox, State};

use crate::error::{Error, Result};

/// The script's id among the sandbox's commands. A command runs once, however many clients start it: those who come while it
/// runs wait for the same result.
const ID: &str = "podbay-setup";

/// How long it may take: a command's default timeout.
pub(crate) const LONGEST: Duration = Duration::from_millis(podbay_proto::exec::DEFAULT_TIMEOUT_MS);

/// How much of the script's output goes into a message: the end says most.
const SHOWN: usize = 4 << 10;

/// Runs the script, or waits for whoever is running it.
///
/// # Errors
/// When it fails, with its output.
pub(crate) async fn run(sandbox: &Sandbox, script: &str) -> Result<()> {
    let mut printed = Vec::new();
    let info = follow(sandbox, script, &mut printed).await.map_err(Error::Unusable)?;
    let how = match &info.state {
        State::Exited(exit) if exit.code == 0 => return Ok(()),
        State::Exited(exit) if exit.timed_out => format!("timed out (exit code {})", exit.code),
        State::Exited(exit) => match &exit.signal {
            Some(signal) => format!("was killed by {signal}"),
            None => format!("failed with exit code {}", exit.code),
        },
        State::Failed(error) => format!("couldn't be started: {error}"),
        _ => "was interrupted by a restart of its container".into(),
    };
    let text = String::from_utf8_lossy(&printed);
    // It comes from the sandbox: control characters mustn't reach a terminal.
    let plain = |line: &str| line.chars().filter(|one| !one.is_control()).collect::<String>();
    let lines: String = text.trim().lines().map(|line| format!("\n  {}", plain(line))).collect();
    let output = if lines.is_empty() { "; it printed nothing".into() } else { format!("; it printed:{lines}") };
    Err(Error::Setup { how, output })
}

async fn follow(sandbox: &Sandbox, script: &str, printed: &mut Vec<u8>) -> podbay_client::Result<Info> {
    let id = ExecId::new(ID)?;
    sandbox.start_as(id.clone(), Command::shell(script)).await?;
    let mut exec = sandbox.attach(&id, 0).await?;
    loop {
        match exec.next().await? {
            Some(Event::Output(_, bytes)) => {
                printed.extend_from_slice(&bytes);
                if printed.len() > 2 * SHOWN {
                    printed.drain(..printed.len() - SHOWN);
                }
            }
            Some(Event::Lost(_)) => {}
            Some(Event::End(info)) => return Ok(*info),
            None => return sandbox.status(&id).await,
        }
    }
}
