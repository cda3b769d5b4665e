//! Results of commands.

use std::borrow::Cow;

use bytes::Bytes;
use podbay::{Event, Exit, Info, Output, State, Stream};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use super::{from_microseconds, from_milliseconds, result_class};
use crate::conversions::SandboxPath;
use crate::failure::Exception;

fn exit_of(info: &Info) -> Option<&Exit> {
    match &info.state {
        State::Exited(exit) => Some(exit),
        _ => None,
    }
}

result_class! {
    /// A process that a command started.
    Process(podbay::Process) as process, repr(pid, name) {
        /// Its pid inside the sandbox.
        pid: i32 = process.pid,
        /// Its name, as reported by the kernel.
        name: &str = &process.name,
    }

    /// The result of a command that has ended.
    ExecResult(Output) as output, repr(exit_code, output, signal, timed_out, truncated, id) {
        /// The command's id.
        id: &str = output.info.id.as_str(),
        /// Both streams as text, in order of arrival. Invalid UTF-8 is replaced.
        output: Cow<'_, str> = output.text(),
        /// Standard output as text.
        stdout: String = String::from_utf8_lossy(&output.stdout()).into_owned(),
        /// Standard error as text.
        stderr: String = String::from_utf8_lossy(&output.stderr()).into_owned(),
        /// Both streams as bytes, in order of arrival.
        raw: &[u8] = output.bytes(),
        /// Standard output as bytes.
        raw_stdout: Cow<'_, [u8]> = output.stdout().into(),
        /// Standard error as bytes.
        raw_stderr: Cow<'_, [u8]> = output.stderr().into(),
        /// The exit code: 128 + n if signal n killed the command, 124 after a timeout, None if the outcome is unknown.
        exit_code: Option<i32> = output.code(),
        /// The signal that killed it, such as `SIGKILL`.
        signal: Option<&str> = output.exit().and_then(|exit| exit.signal.as_deref()),
        /// Whether it timed out.
        timed_out: bool = output.exit().is_some_and(|exit| exit.timed_out),
        /// Whether it was killed on request.
        killed: bool = output.exit().is_some_and(|exit| exit.killed),
        /// Whether the kernel's OOM killer killed one of its processes.
        out_of_memory: bool = output.exit().is_some_and(|exit| exit.out_of_memory),
        /// Whether part of the output was left out.
        truncated: bool = output.cut.is_some(),
        /// How many bytes of output were left out.
        dropped: u64 = output.cut.map_or(0, |cut| cut.bytes),
        /// The offset in `raw` where they were left out.
        cut_at: Option<u64> = output.cut.map(|cut| cut.at),
        /// How many bytes the command printed in all.
        output_bytes: u64 = output.info.output_bytes,
        /// How long it ran, in seconds.
        duration: f64 = output.exit().map_or(0.0, |exit| from_microseconds(exit.duration_us)),
        /// Everything else about the command: its log, its resource usage, the processes it left running.
        info: CommandInfo = output.info.clone().into(),
        /// Whether it exited with code 0.
        ok: bool = output.success(),
    }

    /// A command, as listed by `Sandbox.commands`.
    CommandInfo(Info) as info, repr(id, command, state, exit_code, output_bytes) {
        /// Its id.
        id: &str = info.id.as_str(),
        /// The command on one line.
        command: &str = &info.command,
        /// When it was started, by the sandbox's clock: seconds since 1970.
        started: f64 = from_milliseconds(info.started_ms),
        /// `running`, `exited`, `failed` (couldn't be started) or `lost` (the outcome is unknown).
        state: &'static str = match info.state {
            State::Running => "running",
            State::Exited(_) => "exited",
            State::Failed(_) => "failed",
            State::Lost => "lost",
        },
        /// The exit code, once it has exited.
        exit_code: Option<i32> = exit_of(info).map(|exit| exit.code),
        /// The signal that killed it, such as `SIGKILL`.
        signal: Option<&str> = exit_of(info).and_then(|exit| exit.signal.as_deref()),
        /// Whether it timed out.
        timed_out: bool = exit_of(info).is_some_and(|exit| exit.timed_out),
        /// Whether it was killed on request.
        killed: bool = exit_of(info).is_some_and(|exit| exit.killed),
        /// Whether the kernel's OOM killer killed one of its processes.
        out_of_memory: bool = exit_of(info).is_some_and(|exit| exit.out_of_memory),
        /// How long it ran, in seconds.
        duration: Option<f64> = exit_of(info).map(|exit| from_microseconds(exit.duration_us)),
        /// CPU time in user mode, in seconds.
        user_time: Option<f64> = exit_of(info).map(|exit| from_microseconds(exit.usage.user_us)),
        /// CPU time in the kernel, in seconds.
        system_time: Option<f64> = exit_of(info).map(|exit| from_microseconds(exit.usage.system_us)),
        /// Peak memory of its largest process, in bytes.
        peak_memory: Option<u64> = exit_of(info).map(|exit| exit.usage.peak_memory),
        /// How many bytes it has printed.
        output_bytes: u64 = info.output_bytes,
        /// How many of these bytes are no longer in the log.
        dropped_bytes: u64 = info.dropped_bytes,
        /// How many bytes were written to its standard input.
        input_bytes: u64 = info.input_bytes,
        /// The path of its log in the sandbox.
        log: SandboxPath = (&info.log).into(),
        /// The processes it started that are still running.
        processes: Vec<Process> = info.processes.iter().cloned().map(Process).collect(),
        /// Why it couldn't be started.
        error: Option<Exception<'_>> = match &info.state {
            State::Failed(error) => Some(Exception::Operation(error)),
            _ => None,
        },
    }

    /// A running command printed something.
    OutputEvent((Stream, Bytes)) as event, repr(stream, data) {
        /// `stdout` or `stderr`.
        stream: &'static str = match event.0 {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        },
        /// What it printed.
        data: &[u8] = &event.1,
        /// The same as text. A character that is split between two events is replaced; join `data` where that matters.
        text: Cow<'_, str> = String::from_utf8_lossy(&event.1),
    }

    /// A running command printed something here that its log no longer has.
    LostEvent(u64) as lost, repr(bytes) {
        /// How many bytes are missing.
        bytes: u64 = *lost,
    }

    /// A command has ended. This is its last event.
    EndEvent(Info) as end, repr(info) {
        /// How it ended.
        info: CommandInfo = end.clone().into(),
    }
}

#[pymethods]
impl ExecResult {
    /// Returns this result if the command exited with code 0; raises `CommandFailed` otherwise.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let output = &slf.get().0;
        if output.success() {
            return Ok(slf);
        }
        let how = match (output.exit(), output.code()) {
            (Some(exit), _) if exit.timed_out => "timed out".to_owned(),
            (Some(Exit { signal: Some(signal), .. }), _) => format!("was killed by {signal}"),
            (_, Some(code)) => format!("exited with code {code}"),
            _ => "was lost: its outcome is unknown".to_owned(),
        };
        let stderr = String::from_utf8_lossy(&output.stderr()).trim_end().to_owned();
        let said = stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        let message = format!("the command {:?} {how}{said}", output.info.command);
        let class = slf.py().import("podbay.errors")?.getattr("CommandFailed")?;
        Err(PyErr::from_value(class.call1((message, slf))?))
    }
}

/// Converts an event to its Python class.
pub fn event(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Output(stream, data) => OutputEvent((stream, data)).into_py_any(py),
        Event::Lost(bytes) => LostEvent(bytes).into_py_any(py),
        Event::End(info) => EndEvent(*info).into_py_any(py),
    }
}
