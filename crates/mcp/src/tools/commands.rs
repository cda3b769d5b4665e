//! `run`: a command to its end, or started in the background.

use std::collections::VecDeque;
use std::time::Duration;

use podbay::{Command, Event, Exec, Info, RawPath, Sandbox, State, utf8};
use rmcp::RoleServer;
use rmcp::model::{ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use serde_json::json;

use crate::arguments::{self, RunArguments};
use crate::failure::Failure;
use crate::options::Options;
use crate::progress::{self, Progress};
use crate::reply::{QUOTE, Reply, quoted};
use crate::resources;
use crate::session::Session;

pub(super) async fn run(
    session: &Session,
    arguments: Option<JsonObject>,
    context: &RequestContext<RoleServer>,
) -> Result<Reply, Failure> {
    let arguments: RunArguments = arguments::parse("run", arguments)?;
    let options = session.options();
    let timeout = timeout(arguments.timeout_seconds, options.timeout)?;
    let most = narrowed(arguments.max_output_bytes, options.max_output);
    let background = arguments.background;
    let mut command = Command::shell(arguments.command).merge();
    command.cwd = arguments.cwd;
    command.env = arguments.env.into_iter().map(|(name, value)| (name, RawPath::from(value))).collect();
    let progress = Progress::new("starting the sandbox");
    if background {
        // Nobody waits for it: unless the model wants an end, the sandbox's is its own.
        let own = arguments.timeout_seconds.map_or(Duration::ZERO, |_| timeout);
        let start = async { Ok(session.open().await?.start(command.timeout(own)).await?) };
        return progress::while_working(context, &progress, start).await.map(|info| started(&info));
    }
    let command = command.timeout(timeout);
    let ended = match progress::token(context) {
        None => {
            let work = async {
                let sandbox = session.open().await?;
                let output = sandbox.run_capped(command, most).await?;
                let at = output.cut.map_or(output.bytes().len() as u64, |cut| cut.at);
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(output.bytes().len());
                let (head, tail) = output.bytes().split_at(at);
                let left_out = output.cut.map_or(0, |cut| cut.bytes);
                Ok(Ended { head: head.to_vec(), tail: tail.to_vec(), left_out, info: output.info.clone() })
            };
            progress::while_working(context, &progress, work).await
        }
        Some(_) => {
            let work = async {
                let sandbox = session.open().await?;
                progress.set("running");
                followed(&sandbox, command, most, &progress).await
            };
            progress::while_working(context, &progress, work).await
        }
    }?;
    Ok(ended.reply(timeout))
}

/// A command's time limit: what the model asks for, within what the server allows.
fn timeout(asked: Option<f64>, most: Duration) -> Result<Duration, Failure> {
    let Some(seconds) = asked else { return Ok(most) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(asked) if !asked.is_zero() => Ok(asked.min(most)),
        _ => Err(Failure::Arguments(
            "timeout_seconds must be a positive number; leave it out for the default".to_owned(),
        )),
    }
}

/// A number of bytes that the model asks for, within what the server allows.
pub(super) fn narrowed(asked: Option<u64>, most: u64) -> u64 {
    asked.map_or(most, |asked| asked.clamp(Options::MIN_OUTPUT.min(most), most))
}

/// A command that has ended, with the beginning and the end of its output.
struct Ended {
    head: Vec<u8>,
    left_out: u64,
    tail: Vec<u8>,
    info: Info,
}

impl Ended {
    fn reply(self, timeout: Duration) -> Reply {
        let id = &self.info.id;
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            let (left_out, next) = (self.left_out, self.head.len());
            text.push_str(&format!(
                "\n[{left_out} bytes left out here: call process_output with id {id:?} and offset {next} to read on]\n",
                id = id.as_str()
            ));
        }
        text.push_str(&String::from_utf8_lossy(&self.tail));
        let reply = if text.is_empty() { Reply::default() } else { Reply::text(text) };
        let reply = reply.and_text(format!("[{}]", outcome(&self.info, Some(timeout))));
        let reply = match self.left_out {
            0 => reply,
            _ => reply.and(ContentBlock::resource_link(resources::output(&self.info))),
        };
        reply.with_meta(meta(&self.info))
    }
}

/// Follows a command while it runs, so that its progress can be told. Dropping the future kills the command.
async fn followed(sandbox: &Sandbox, command: Command, most: u64, progress: &Progress) -> Result<Ended, Failure> {
    let mut exec = Killing::new(sandbox.spawn(command).await?);
    let half = usize::try_from(most / 2).unwrap_or(usize::MAX);
    let (mut head, mut tail, mut dropped) = (Vec::new(), VecDeque::new(), 0_u64);
    while let Some(event) = exec.0.next().await? {
        match event {
            Event::Output(_, bytes) => {
                progress.printed(&bytes);
                let room = half.saturating_sub(head.len()).min(bytes.len());
                let (first, rest) = bytes.split_at(room);
                head.extend_from_slice(first);
                tail.extend(rest);
                let over = tail.len().saturating_sub(half);
                tail.drain(..over);
                dropped = dropped.saturating_add(over as u64);
            }
            Event::Lost(bytes) => dropped = dropped.saturating_add(bytes),
            Event::End(info) => {
                exec.1 = false;
                let mut tail = Vec::from(tail);
                if dropped > 0 {
                    // No character is cut in two.
                    let end = utf8::floor_char_boundary(&head);
                    let start = utf8::ceil_char_boundary(&tail);
                    dropped = dropped.saturating_add((head.len() - end + start) as u64);
                    head.truncate(end);
                    tail.drain(..start);
                }
                return Ok(Ended { head, left_out: dropped, tail, info: *info });
            }
        }
    }
    Err(Failure::Arguments(
        "the command ended, and the sandbox didn't say how: call process_list with all set".to_owned(),
    ))
}

/// A command that is killed when nobody waits for it any more.
struct Killing(Exec, bool);

impl Killing {
    fn new(exec: Exec) -> Self {
        Self(exec, true)
    }
}

impl Drop for Killing {
    fn drop(&mut self) {
        if self.1
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let control = self.0.control();
            runtime.spawn(async move {
                if let Err(error) = control.kill().await {
                    tracing::debug!(%error, "a cancelled command couldn't be killed");
                }
            });
        }
    }
}

fn started(info: &Info) -> Reply {
    let id = info.id.as_str();
    Reply::text(format!(
        "[started in the background with id {id:?}: call process_output to read its output, process_kill to end it]"
    ))
    .with_meta(meta(info))
}

/// What programs want to know of a command.
pub(super) fn meta(info: &Info) -> serde_json::Value {
    let (mut code, mut timed_out) = (None, false);
    if let State::Exited(exit) = &info.state {
        (code, timed_out) = (Some(exit.code), exit.timed_out);
    }
    let running = matches!(info.state, State::Running);
    json!({
        "id": info.id.as_str(), "exit_code": code, "timed_out": timed_out, "running": running,
        "output_bytes": info.output_bytes,
    })
}

/// How a command ended, or that it runs, in a few words.
pub(super) fn outcome(info: &Info, limit: Option<Duration>) -> String {
    let mut text = match &info.state {
        State::Running => "running".to_owned(),
        State::Exited(exit) if exit.timed_out => {
            let limit = limit.map_or_else(String::new, |limit| format!(" after {} s", limit.as_secs_f64()));
            format!("exit code {}: timed out{limit}; set background for what takes longer", exit.code)
        }
        State::Exited(exit) => match &exit.signal {
            Some(signal) => format!("exit code {}: ended by {}", exit.code, quoted(signal, QUOTE)),
            None => format!("exit code {}", exit.code),
        },
        State::Failed(error) => format!("not started: {}", quoted(&error.message, QUOTE)),
        State::Lost => "lost: the sandbox was restarted, and how the command ended is unknown".to_owned(),
    };
    if let State::Exited(exit) = &info.state
        && exit.out_of_memory
    {
        text.push_str("; the sandbox ran out of memory");
    }
    let alive = info.processes.len();
    if alive > 0 && !matches!(info.state, State::Running) {
        text.push_str(&format!("; {alive} background processes still run, under the id {:?}", info.id.as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_can_only_narrow() {
        let most = Duration::from_secs(10);
        assert_eq!(timeout(None, most).unwrap(), most);
        assert_eq!(timeout(Some(2.5), most).unwrap(), Duration::from_millis(2500));
        assert_eq!(timeout(Some(1e9), most).unwrap(), most);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(timeout(Some(bad), most).is_err(), "{bad}");
        }
        assert_eq!(narrowed(Some(u64::MAX), 1000), 1000);
        assert_eq!(narrowed(Some(500), 1000), 500);
        assert_eq!(narrowed(Some(0), 1000), Options::MIN_OUTPUT);
        assert_eq!(narrowed(Some(0), 10), 10);
    }
}
