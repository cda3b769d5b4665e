//! The script that every new sandbox runs once.

use std::time::Duration;

use podbay_client::{Command, Event, ExecId, Info, Sandbox, State};

use crate::error::{Error, Result};

/// The script's name among the sandbox's commands. A command runs once, however many ask for it: whoever comes while it
/// runs waits for the same end.
const ID: &str = "podbay-setup";

/// How long it may take: as long as any command for which nobody says otherwise.
pub(crate) const LONGEST: Duration = Duration::from_millis(podbay_proto::exec::DEFAULT_TIMEOUT_MS);

/// How much of what the script printed goes into a message: its end tells most.
const SHOWN: usize = 4 << 10;

/// Runs the script, or waits for whoever runs it.
///
/// # Errors
/// When it fails, with what it printed.
pub(crate) async fn run(sandbox: &Sandbox, script: &str) -> Result<()> {
    let mut printed = Vec::new();
    let info = follow(sandbox, script, &mut printed).await.map_err(Error::Unusable)?;
    let how = match &info.state {
        State::Exited(exit) if exit.code == 0 => return Ok(()),
        State::Exited(exit) if exit.timed_out => format!("wasn't done in time (exit code {})", exit.code),
        State::Exited(exit) => match &exit.signal {
            Some(signal) => format!("was killed by {signal}"),
            None => format!("failed with exit code {}", exit.code),
        },
        State::Failed(error) => format!("couldn't be started: {error}"),
        _ => "was cut short by a restart of its container".into(),
    };
    let text = String::from_utf8_lossy(&printed);
    // It comes from the sandbox: nothing in it may steer a terminal.
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
