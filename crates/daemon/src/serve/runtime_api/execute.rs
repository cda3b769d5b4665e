//! `POST /execute`: a command, run as all others are, and its output in JSON.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use podbay_proto::body::Payload;
use podbay_proto::exec::{Command, ExecId, Exit, Info, State, Stream};
use podbay_proto::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Answer};
use super::arriving::{Arriving, Cut};
use super::text::{JsonText, escape};
use super::{Request, RuntimeApi, shell_words};
use crate::exec_registry::Found;
use crate::exec_store::log::{CHUNK, Cursor, Log, Piece};
use crate::serve::blocking::blocking;
use crate::serve::random_name;

/// The largest request. A longer command line couldn't be run anyway.
const LARGEST: usize = 1 << 20;

/// The largest result that is answered in one piece.
const SMALL: u64 = 64 << 10;

/// The most commands with live processes. More would take podbayd's descriptors, which others need too.
const MOST_RUNNING: u32 = 512;

#[derive(Deserialize)]
struct Execute {
    command: String,
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

pub(super) async fn execute(api: Arc<RuntimeApi>, request: Request) -> Answer {
    let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|kind| is_json(kind.as_bytes()));
    let mut body = Arriving::new(request.into_body());
    let body = match body.collect(LARGEST).await {
        Ok(body) => body,
        Err(Cut::TooLarge) => {
            body.drain().await;
            return answer::detail(StatusCode::PAYLOAD_TOO_LARGE, "The request is larger than 1 MiB.");
        }
        Err(Cut::Lost) => return answer::detail(StatusCode::BAD_REQUEST, "There was an error parsing the body"),
    };
    if !is_json {
        return answer::invalid("model_attributes_type", &["body"], "Input should be a valid dictionary");
    }
    let Execute { command, timeout_seconds } = match serde_json::from_slice(&body) {
        Ok(execute) => execute,
        Err(error) if error.is_data() => return answer::invalid("value_error", &["body"], &error.to_string()),
        Err(error) => return answer::invalid("json_invalid", &["body"], &format!("JSON decode error: {error}")),
    };
    let timeout = match timeout_seconds {
        None => api.timeout,
        Some(seconds) => match timeout(seconds) {
            Some(timeout) => timeout,
            None => {
                let text = "Input should be a finite number greater than 0";
                return answer::invalid("greater_than", &["body", "timeout_seconds"], text);
            }
        },
    };
    match run(&api, &command, timeout).await {
        Ok(answer) => answer,
        Err(why) => failed(&why, false),
    }
}

fn is_json(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || (kind.starts_with(b"application/") && kind.ends_with(b"+json"))
}

/// A time limit in seconds, if it is one.
pub(super) fn timeout(seconds: f64) -> Option<Duration> {
    // More than that is forever.
    let seconds = Some(seconds).filter(|seconds| seconds.is_finite())?.min(1e9);
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero())
}

/// What the stock runtime answers when there is no result.
fn failed(why: &str, timed_out: bool) -> Answer {
    let stderr = format!("Failed to execute command: {why}");
    answer::json(StatusCode::OK, &json!({"stdout": "", "stderr": stderr, "exit_code": 1, "timed_out": timed_out}))
}

async fn run(api: &Arc<RuntimeApi>, line: &str, timeout: Duration) -> Result<Answer, String> {
    let words = shell_words::split(line)?;
    if words.is_empty() {
        return Err("the command is empty".into());
    }
    let program = words[0].clone();
    // Commands beyond these wait, as they do in the stock runtime.
    let turn = api.commands.clone().acquire_owned().await.map_err(|error| error.to_string())?;
    let execs = &api.daemon.execs;
    if execs.running() >= MOST_RUNNING {
        return Err(format!("{MOST_RUNNING} commands have processes that still run; end some of them"));
    }
    let base = api.base.path().as_os_str();
    let mut command = Command::argv(words).timeout(timeout).cwd(std::os::unix::ffi::OsStrExt::as_bytes(base));
    // The stock runtime kills at once.
    command.grace_ms = 0;
    let id = random_name().map_err(|error| error.to_string())?;
    let id = ExecId::new(format!("runtime-{id}")).map_err(|error| error.to_string())?;
    let (found, _) = execs.start(&id, command).await.map_err(|error| error.message)?;
    let info = match found {
        Found::Ended(info) => info,
        Found::Live(watched) => {
            // It has its turn until it ends, even if its caller goes.
            let (execs, watched) = (execs.clone(), watched.clone());
            let ended = tokio::spawn(async move {
                let _turn = turn;
                execs.info(&watched, Some(watched.end().await))
            });
            ended.await.map_err(|error| error.to_string())?
        }
    };
    let exit_code = match &info.state {
        State::Exited(exit) if exit.timed_out => {
            let seconds = timeout.as_secs_f64();
            return Ok(failed(&format!("Command {line:?} timed out after {seconds} seconds"), true));
        }
        State::Exited(exit) => python_exit_code(exit),
        State::Failed(error) => return Err(spawn_error(error, &program)),
        State::Running | State::Lost => return Err("podbayd lost track of the command; its outcome is unknown".into()),
    };
    result(api, &id, &info, exit_code).await
}

/// Python has the negated number of the signal that ended a process.
fn python_exit_code(exit: &Exit) -> i32 {
    match exit.signal {
        Some(_) => 128 - exit.code,
        None => exit.code,
    }
}

/// What Python says of a program that can't be started.
fn spawn_error(error: &Error, program: &str) -> String {
    let Some(errno) = error.errno else { return error.message.clone() };
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("[Errno {errno}] {text}: '{program}'")
}

async fn result(api: &Arc<RuntimeApi>, id: &ExecId, info: &Info, exit_code: i32) -> Result<Answer, String> {
    let mut log = api.daemon.execs.log(id).map_err(|error| error.message)?;
    log.extend_to(info.output_bytes);
    let mut writer = ResultWriter::new(log, info.output_bytes, exit_code);
    if info.output_bytes > SMALL {
        return Ok(answer::encoded(Bytes::new(), answer::stream(writer, ResultWriter::next)));
    }
    let all = blocking(move || {
        let mut all = Vec::new();
        while let Some(piece) = writer.next()? {
            all.extend_from_slice(&piece);
        }
        io::Result::Ok(all)
    });
    let all = all.await.map_err(|error| error.message)?.map_err(|error| error.to_string())?;
    Ok(answer::encoded(all.into(), Payload::Bytes(Bytes::new())))
}

/// Writes a result from a command's log, which is read once for each stream: it may be larger than podbayd's memory.
struct ResultWriter {
    log: Log,
    end: u64,
    exit_code: i32,
    cursor: Cursor,
    text: JsonText,
    /// None when everything is written.
    stream: Option<Stream>,
    begun: bool,
}

impl ResultWriter {
    fn new(log: Log, end: u64, exit_code: i32) -> Self {
        let (cursor, text) = (Cursor::at(0), JsonText::default());
        Self { log, end, exit_code, cursor, text, stream: Some(Stream::Stdout), begun: false }
    }

    /// The next piece of JSON.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(stream) = self.stream else { return Ok(None) };
        let mut json = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            json.extend_from_slice(b"{\"stdout\":\"");
        }
        let most = (self.end - self.cursor.offset.min(self.end)).min(CHUNK as u64) as usize;
        let piece = if most == 0 { None } else { self.log.read(&mut self.cursor, most)? };
        match piece {
            Some(Piece::Data(of, data)) if of == stream => self.text.push(&data, &mut json),
            Some(Piece::Data(..)) => {}
            // The log doesn't know whose they were.
            Some(Piece::Lost(count)) if stream == Stream::Stdout => {
                self.text.end(&mut json);
                escape(&format!("\n[{count} bytes of output left out]\n"), &mut json);
            }
            Some(Piece::Lost(_)) => self.text.end(&mut json),
            None => {
                self.text.end(&mut json);
                (self.cursor, self.text) = (Cursor::at(0), JsonText::default());
                self.stream = match stream {
                    Stream::Stdout => {
                        json.extend_from_slice(b"\",\"stderr\":\"");
                        Some(Stream::Stderr)
                    }
                    Stream::Stderr => {
                        let rest = format!("\",\"exit_code\":{},\"timed_out\":false}}", self.exit_code);
                        json.extend_from_slice(rest.as_bytes());
                        None
                    }
                };
            }
        }
        Ok(Some(json.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_a_positive_number() {
        assert_eq!(timeout(0.5), Some(Duration::from_millis(500)));
        assert_eq!(timeout(f64::MAX), Some(Duration::from_secs(1_000_000_000)));
        for bad in [0.0, -1.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-12] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_json_is_taken_for_json() {
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/x+json"] {
            assert!(is_json(good.as_bytes()), "{good}");
        }
        for bad in ["", "text/plain", "application/x-www-form-urlencoded", "text/json"] {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
    }
}
