//! The tools for commands that were started before.

use std::time::Duration;

use podbay::{Event, ExecId, Info, Sandbox, State, utf8};
use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::commands::{meta, narrowed, outcome};
use crate::arguments::{self, ProcessKillArguments, ProcessListArguments, ProcessOutputArguments};
use crate::failure::Failure;
use crate::progress::{self, Progress};
use crate::reply::{Lines, QUOTE, Reply, quoted};
use crate::session::Session;

/// The signal that nothing can ignore.
const SIGKILL: i32 = 9;

/// The longest that a call waits for output.
const LONGEST: Duration = Duration::from_secs(60);

/// How long output that the sandbox has may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn list(session: &Session, arguments: Option<JsonObject>) -> Result<Reply, Failure> {
    let arguments: ProcessListArguments = arguments::parse("process_list", arguments)?;
    // No sandbox, no processes: none is created for the answer.
    let commands = match (session.current(), session.owns_sandbox()) {
        (None, true) => Vec::new(),
        _ => session.open().await?.commands(!arguments.all).await?,
    };
    let mut lines = Lines::new(session.options().max_output);
    // The newest first: the oldest may not fit.
    for info in commands.iter().rev() {
        let id = info.id.as_str();
        lines.push(&format!(
            "{id}  {}  {} bytes of output  {}",
            outcome(info, None),
            info.output_bytes,
            quoted(&info.command, QUOTE)
        ));
    }
    let none = if arguments.all { "[no commands so far]" } else { "[nothing is running]" };
    Ok(lines.finish(none, None, "they are older"))
}

pub(super) async fn output(
    session: &Session,
    arguments: Option<JsonObject>,
    context: &RequestContext<RoleServer>,
) -> Result<Reply, Failure> {
    let arguments: ProcessOutputArguments = arguments::parse("process_output", arguments)?;
    let id = ExecId::new(arguments.id)?;
    let most = narrowed(arguments.max_output_bytes, session.options().max_output);
    let wait = match arguments.wait_seconds.map(Duration::try_from_secs_f64) {
        None => Duration::ZERO,
        Some(Ok(wait)) => wait.min(LONGEST),
        Some(Err(_)) => return Err(Failure::Arguments("wait_seconds must be 0 or more".to_owned())),
    };
    let work = async { page(&session.open().await?, &id, arguments.offset, most, wait).await };
    let page = progress::while_working(context, &Progress::new("waiting for output"), work).await?;
    let state = outcome(&page.info, None);
    let (next, total) = (page.next, page.info.output_bytes);
    let text = String::from_utf8_lossy(&page.bytes).into_owned();
    let reply = if text.is_empty() { Reply::default() } else { Reply::text(text) };
    let lost = match page.lost {
        0 => String::new(),
        lost => format!("; {lost} bytes before this are no longer kept"),
    };
    let more = match (next < total, &page.info.state) {
        (true, _) => format!("; {} more bytes: call process_output with offset {next}", total - next),
        (false, State::Running) => format!("; call process_output with offset {next} for what comes next"),
        (false, _) => String::new(),
    };
    let mut about = meta(&page.info);
    about["next_offset"] = json!(next);
    Ok(reply.and_text(format!("[{state}{lost}{more}]")).with_meta(about))
}

/// A part of a command's output.
pub(crate) struct Page {
    /// The bytes, whole characters.
    pub(crate) bytes: Vec<u8>,
    /// The offset of what follows.
    pub(crate) next: u64,
    /// How many bytes before them the log no longer has.
    pub(crate) lost: u64,
    /// The command.
    pub(crate) info: Info,
}

/// What a command printed from an offset on. If there is nothing yet, waits for a while.
pub(crate) async fn page(
    sandbox: &Sandbox,
    id: &ExecId,
    offset: u64,
    most: u64,
    wait: Duration,
) -> Result<Page, Failure> {
    let mut info = sandbox.status(id).await?;
    let (mut bytes, mut lost) = (Vec::new(), 0_u64);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let running = matches!(info.state, State::Running);
    if offset < info.output_bytes || (running && !wait.is_zero()) {
        let known = info.output_bytes;
        let mut exec = sandbox.attach(id, offset).await?;
        let waiting = if offset < known { PATIENCE } else { wait };
        let until = Instant::now() + waiting;
        while let Ok(event) = timeout_at(until, exec.next()).await {
            match event? {
                Some(Event::Output(_, piece)) => bytes.extend_from_slice(&piece),
                Some(Event::Lost(count)) => lost = lost.saturating_add(count),
                Some(Event::End(_)) | None => break,
            }
            if bytes.len() >= most
                || offset.saturating_add(lost).saturating_add(bytes.len() as u64) >= known.max(offset.saturating_add(1))
            {
                break;
            }
        }
        drop(exec);
        if running {
            info = sandbox.status(id).await?;
        }
    }
    bytes.truncate(most);
    let whole = utf8::floor_char_boundary(&bytes);
    if whole > 0 {
        bytes.truncate(whole);
    }
    let next = offset.saturating_add(lost).saturating_add(bytes.len() as u64);
    Ok(Page { bytes, next, lost, info })
}

pub(super) async fn kill(session: &Session, arguments: Option<JsonObject>) -> Result<Reply, Failure> {
    let arguments: ProcessKillArguments = arguments::parse("process_kill", arguments)?;
    let id = ExecId::new(arguments.id)?;
    let reached = session.open().await?.signal(&id, arguments.signal.unwrap_or(SIGKILL)).await?;
    Ok(Reply::text(match reached {
        0 => "[it had ended already]".to_owned(),
        1 => "[sent to 1 process]".to_owned(),
        several => format!("[sent to {several} processes]"),
    }))
}
