//! What commands return.

use bytes::Bytes;
use podbay::{Event, Exit, Info, Output, State, Stream};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{from_milliseconds, shown};
use crate::failure::exception;
use crate::text::PathText;

fn exit_of(info: &Info) -> Option<&Exit> {
    match &info.state {
        State::Exited(exit) => Some(exit),
        _ => None,
    }
}

/// A process that a command started.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Process {
    /// Its id inside the sandbox.
    pid: i32,
    /// Its name, as the kernel has it.
    name: String,
}

/// A command that was run to its end.
#[pyclass(frozen, module = "podbay")]
pub struct ExecResult {
    output: Output,
}

impl From<Output> for ExecResult {
    fn from(output: Output) -> Self {
        Self { output }
    }
}

#[pymethods]
impl ExecResult {
    /// The command's id.
    #[getter]
    fn id(&self) -> &str {
        self.output.info.id.as_str()
    }

    /// What it printed, both streams in order of arrival. What isn't UTF-8 is replaced.
    #[getter]
    fn output(&self) -> std::borrow::Cow<'_, str> {
        self.output.text()
    }

    /// What it printed to standard output.
    #[getter]
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout()).into_owned()
    }

    /// What it printed to standard error.
    #[getter]
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr()).into_owned()
    }

    /// What it printed, unchanged.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.output.bytes())
    }

    /// What it printed to standard output, unchanged.
    #[getter]
    fn raw_stdout<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.output.stdout())
    }

    /// What it printed to standard error, unchanged.
    #[getter]
    fn raw_stderr<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.output.stderr())
    }

    /// The exit code: 128 + n when signal n ended it, 124 after a time-out; None when the outcome isn't known.
    #[getter]
    fn exit_code(&self) -> Option<i32> {
        self.output.code()
    }

    /// The signal that ended it, such as `SIGKILL`.
    #[getter]
    fn signal(&self) -> Option<&str> {
        self.output.exit()?.signal.as_deref()
    }

    /// Whether its time was up.
    #[getter]
    fn timed_out(&self) -> bool {
        self.output.exit().is_some_and(|exit| exit.timed_out)
    }

    /// Whether it was ended on request.
    #[getter]
    fn killed(&self) -> bool {
        self.output.exit().is_some_and(|exit| exit.killed)
    }

    /// Whether the kernel killed something of it for want of memory.
    #[getter]
    fn out_of_memory(&self) -> bool {
        self.output.exit().is_some_and(|exit| exit.out_of_memory)
    }

    /// Whether there was more output than this.
    #[getter]
    fn truncated(&self) -> bool {
        self.output.cut.is_some()
    }

    /// How many bytes of output are missing here.
    #[getter]
    fn dropped(&self) -> u64 {
        self.output.cut.map_or(0, |cut| cut.bytes)
    }

    /// The offset in `raw` at which they are missing.
    #[getter]
    fn cut_at(&self) -> Option<u64> {
        self.output.cut.map(|cut| cut.at)
    }

    /// How many bytes it printed in all.
    #[getter]
    fn output_bytes(&self) -> u64 {
        self.output.info.output_bytes
    }

    /// From start to end, in seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.output.exit().map_or(0.0, |exit| exit.duration_us as f64 / 1e6)
    }

    /// All about the command: its log, what it used, what it left running.
    #[getter]
    fn info(&self) -> CommandInfo {
        self.output.info.clone().into()
    }

    /// Whether it ended with code 0.
    #[getter]
    fn ok(&self) -> bool {
        self.output.success()
    }

    /// Returns this result when the command ended with code 0, and raises `CommandFailed` otherwise.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let output = &slf.get().output;
        if output.success() {
            return Ok(slf);
        }
        let how = match (output.exit(), output.code()) {
            (Some(exit), _) if exit.timed_out => "ran out of time".to_owned(),
            (Some(Exit { signal: Some(signal), .. }), _) => format!("was ended by {signal}"),
            (_, Some(code)) => format!("ended with code {code}"),
            _ => "was lost: its outcome isn't known".to_owned(),
        };
        let stderr = String::from_utf8_lossy(&output.stderr()).trim_end().to_owned();
        let said = stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        let message = format!("the command {:?} {how}{said}", output.info.command);
        let class = slf.py().import("podbay.errors")?.getattr("CommandFailed")?;
        Err(PyErr::from_value(class.call1((message, slf))?))
    }
}

/// A command, as lists and results show it.
#[pyclass(frozen, module = "podbay")]
pub struct CommandInfo {
    info: Info,
}

impl From<Info> for CommandInfo {
    fn from(info: Info) -> Self {
        Self { info }
    }
}

impl CommandInfo {
    fn exit(&self) -> Option<&Exit> {
        exit_of(&self.info)
    }
}

#[pymethods]
impl CommandInfo {
    /// Its id.
    #[getter]
    fn id(&self) -> &str {
        self.info.id.as_str()
    }

    /// The command in one line.
    #[getter]
    fn command(&self) -> &str {
        &self.info.command
    }

    /// When it was started, by the sandbox's clock: seconds since 1970.
    #[getter]
    fn started(&self) -> f64 {
        from_milliseconds(self.info.started_ms)
    }

    /// `running`, `exited`, `failed` (couldn't be started) or `lost` (the outcome isn't known).
    #[getter]
    fn state(&self) -> &'static str {
        match self.info.state {
            State::Running => "running",
            State::Exited(_) => "exited",
            State::Failed(_) => "failed",
            State::Lost => "lost",
        }
    }

    /// Its exit code, once it has one.
    #[getter]
    fn exit_code(&self) -> Option<i32> {
        self.exit().map(|exit| exit.code)
    }

    /// The signal that ended it.
    #[getter]
    fn signal(&self) -> Option<&str> {
        self.exit()?.signal.as_deref()
    }

    /// Whether its time was up.
    #[getter]
    fn timed_out(&self) -> bool {
        self.exit().is_some_and(|exit| exit.timed_out)
    }

    /// Whether it was ended on request.
    #[getter]
    fn killed(&self) -> bool {
        self.exit().is_some_and(|exit| exit.killed)
    }

    /// Whether the kernel killed something of it for want of memory.
    #[getter]
    fn out_of_memory(&self) -> bool {
        self.exit().is_some_and(|exit| exit.out_of_memory)
    }

    /// From start to end, in seconds.
    #[getter]
    fn duration(&self) -> Option<f64> {
        self.exit().map(|exit| exit.duration_us as f64 / 1e6)
    }

    /// Processor time in user mode, in seconds.
    #[getter]
    fn user_time(&self) -> Option<f64> {
        self.exit().map(|exit| exit.usage.user_us as f64 / 1e6)
    }

    /// Processor time in the kernel, in seconds.
    #[getter]
    fn system_time(&self) -> Option<f64> {
        self.exit().map(|exit| exit.usage.system_us as f64 / 1e6)
    }

    /// Peak memory of its largest process, in bytes.
    #[getter]
    fn peak_memory(&self) -> Option<u64> {
        self.exit().map(|exit| exit.usage.peak_memory)
    }

    /// How many bytes it has printed.
    #[getter]
    fn output_bytes(&self) -> u64 {
        self.info.output_bytes
    }

    /// How many of these the log no longer has.
    #[getter]
    fn dropped_bytes(&self) -> u64 {
        self.info.dropped_bytes
    }

    /// How many bytes of standard input it was given.
    #[getter]
    fn input_bytes(&self) -> u64 {
        self.info.input_bytes
    }

    /// Its log, as a file in the sandbox.
    #[getter]
    fn log(&self) -> PathText {
        (&self.info.log).into()
    }

    /// What it started and is still alive.
    #[getter]
    fn processes(&self) -> Vec<Process> {
        self.info.processes.iter().map(|process| Process { pid: process.pid, name: process.name.clone() }).collect()
    }

    /// Why it couldn't be started.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.info.state {
            State::Failed(error) => Some(exception(py, &error.clone().into()).into_value(py).into_any()),
            _ => None,
        }
    }
}

/// A running command printed something.
#[pyclass(frozen, module = "podbay")]
pub struct OutputEvent {
    stream: Stream,
    data: Bytes,
}

#[pymethods]
impl OutputEvent {
    /// `stdout` or `stderr`.
    #[getter]
    fn stream(&self) -> &'static str {
        match self.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }

    /// What it printed.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }

    /// The same as text. A character that is cut at an event's border is replaced; join `data` where that matters.
    #[getter]
    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.data)
    }
}

/// A running command printed something here that is no longer to be had.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct LostEvent {
    /// How many bytes.
    bytes: u64,
}

/// A command has ended. The last event.
#[pyclass(frozen, module = "podbay")]
pub struct EndEvent {
    info: Info,
}

#[pymethods]
impl EndEvent {
    /// How it ended.
    #[getter]
    fn info(&self) -> CommandInfo {
        self.info.clone().into()
    }
}

/// An event as Python's.
pub fn event(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Output(stream, data) => OutputEvent { stream, data }.into_py_any(py),
        Event::Lost(bytes) => LostEvent { bytes }.into_py_any(py),
        Event::End(info) => EndEvent { info: *info }.into_py_any(py),
    }
}

shown! {
    Process: "pid", "name";
    ExecResult: "exit_code", "output", "signal", "timed_out", "truncated", "id";
    CommandInfo: "id", "command", "state", "exit_code", "output_bytes";
    OutputEvent: "stream", "data";
    LostEvent: "bytes";
    EndEvent: "info";
}
