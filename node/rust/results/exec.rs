//! Results of commands. `src/results.ts` documents their fields.

use napi::bindgen_prelude::{Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::{Event, Exit, Info, Output, State, Stream};
use serde_json::Value as Json;

use super::{from_microseconds, from_milliseconds};
use crate::conversions::{array, number, text};
use crate::failure::describe_operation;

fn exit_of(info: &Info) -> Option<&Exit> {
    match &info.state {
        State::Exited(exit) => Some(exit),
        _ => None,
    }
}

/// A process that a command started.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Process {
    pub pid: i32,
    pub name: String,
}

/// A command.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct CommandInfo {
    pub id: String,
    pub command: String,
    pub started: f64,
    pub state: String,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub timed_out: bool,
    pub killed: bool,
    pub out_of_memory: bool,
    pub duration: Option<f64>,
    pub user_time: Option<f64>,
    pub system_time: Option<f64>,
    pub peak_memory: Option<i64>,
    pub output_bytes: i64,
    pub dropped_bytes: i64,
    pub input_bytes: i64,
    pub log: Utf16String,
    pub processes: Vec<Process>,
    pub error: Option<Json>,
}

impl From<&Info> for CommandInfo {
    fn from(info: &Info) -> Self {
        let exit = exit_of(info);
        let state = match info.state {
            State::Running => "running",
            State::Exited(_) => "exited",
            State::Failed(_) => "failed",
            State::Lost => "lost",
        };
        let process = |process: &podbay::Process| Process { pid: process.pid, name: process.name.clone() };
        Self {
            id: info.id.as_str().to_owned(),
            command: info.command.clone(),
            started: from_milliseconds(info.started_ms) * 1e3,
            state: state.to_owned(),
            exit_code: exit.map(|exit| exit.code),
            signal: exit.and_then(|exit| exit.signal.clone()),
            timed_out: exit.is_some_and(|exit| exit.timed_out),
            killed: exit.is_some_and(|exit| exit.killed),
            out_of_memory: exit.is_some_and(|exit| exit.out_of_memory),
            duration: exit.map(|exit| from_microseconds(exit.duration_us)),
            user_time: exit.map(|exit| from_microseconds(exit.usage.user_us)),
            system_time: exit.map(|exit| from_microseconds(exit.usage.system_us)),
            peak_memory: exit.map(|exit| number(exit.usage.peak_memory)),
            output_bytes: number(info.output_bytes),
            dropped_bytes: number(info.dropped_bytes),
            input_bytes: number(info.input_bytes),
            log: text(&info.log),
            processes: info.processes.iter().map(process).collect(),
            error: match &info.state {
                State::Failed(error) => Some(describe_operation(error)),
                _ => None,
            },
        }
    }
}

impl From<Info> for CommandInfo {
    fn from(info: Info) -> Self {
        Self::from(&info)
    }
}

/// The result of a command that has ended.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct ExecResult {
    pub raw: Uint8Array,
    pub raw_stdout: Option<Uint8Array>,
    pub raw_stderr: Option<Uint8Array>,
    pub dropped: i64,
    pub cut_at: Option<i64>,
    pub info: CommandInfo,
}

impl From<Output> for ExecResult {
    fn from(output: Output) -> Self {
        let stderr = output.stderr();
        // Most commands write nothing to standard error: then everything is standard output, and isn't sent twice.
        let both = !stderr.is_empty();
        Self {
            raw: array(output.bytes()),
            raw_stdout: both.then(|| output.stdout().into()),
            raw_stderr: both.then(|| stderr.into()),
            dropped: output.cut.map_or(0, |cut| number(cut.bytes)),
            cut_at: output.cut.map(|cut| number(cut.at)),
            info: (&output.info).into(),
        }
    }
}

/// What a running command did.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct ExecEvent {
    pub kind: String,
    pub stream: Option<String>,
    pub data: Option<Uint8Array>,
    pub bytes: Option<i64>,
    pub info: Option<CommandInfo>,
}

impl From<Event> for ExecEvent {
    fn from(event: Event) -> Self {
        let mut result = Self { kind: String::new(), stream: None, data: None, bytes: None, info: None };
        match event {
            Event::Output(stream, data) => {
                let stream = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                result.kind = "output".to_owned();
                result.stream = Some(stream.to_owned());
                result.data = Some(array(&data));
            }
            Event::Lost(bytes) => {
                result.kind = "lost".to_owned();
                result.bytes = Some(number(bytes));
            }
            Event::End(info) => {
                result.kind = "end".to_owned();
                result.info = Some((*info).into());
            }
        }
        result
    }
}
