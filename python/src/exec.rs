//! Running commands: iterating over their events, writing to their input, ending them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError};

use podbay::{Command, Control, Event, ExecId, Info, Sandbox};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::conversions::{Content, Nothing};
use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::results::exec::{CommandInfo, event};
use crate::runtime::block_on;

/// A running command, shared by its Python object and its coroutines.
pub struct Running {
    exec: Mutex<podbay::Exec>,
    control: Mutex<Control>,
    id: ExecId,
    offset: AtomicU64,
    ended: Plain<Option<Info>>,
    /// Keeps a leashed sandbox alive while somebody follows one of its commands.
    sandbox: Sandbox,
}

impl Running {
    /// Starts a command.
    pub async fn spawn(sandbox: Sandbox, command: Command) -> Result<Arc<Self>, Failure> {
        let exec = sandbox.spawn(command).await?;
        Ok(Self::new(sandbox, exec, 0))
    }

    /// Follows a command that was started earlier.
    pub async fn attach(sandbox: Sandbox, id: ExecId, offset: u64) -> Result<Arc<Self>, Failure> {
        let exec = sandbox.attach(&id, offset).await?;
        Ok(Self::new(sandbox, exec, offset))
    }

    fn new(sandbox: Sandbox, exec: podbay::Exec, offset: u64) -> Arc<Self> {
        let (id, control) = (exec.id().clone(), exec.control());
        let (exec, control) = (Mutex::new(exec), Mutex::new(control));
        Arc::new(Self { exec, control, id, offset: offset.into(), ended: Plain::new(None), sandbox })
    }

    fn ended(&self) -> Option<Info> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn next(&self) -> Result<Option<Event>, Failure> {
        let event = self.exec.lock().await.next().await?;
        let seen = match &event {
            Some(Event::Output(_, data)) => data.len() as u64,
            Some(Event::Lost(bytes)) => *bytes,
            Some(Event::End(info)) => {
                *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((**info).clone());
                0
            }
            None => 0,
        };
        self.offset.fetch_add(seen, Ordering::Relaxed);
        Ok(event)
    }

    async fn wait(&self) -> Result<CommandInfo, Failure> {
        loop {
            if let Some(info) = self.ended() {
                return Ok(info.into());
            }
            if self.next().await?.is_none() && self.ended().is_none() {
                // The stream failed earlier, so ask the sandbox how the command ended.
                return Ok(self.sandbox.status(&self.id).await?.into());
            }
        }
    }

    async fn write(&self, data: Content) -> Result<bool, Failure> {
        Ok(self.control.lock().await.write(data.0).await?)
    }

    async fn close_input(&self) -> Result<(), Failure> {
        Ok(self.control.lock().await.close_input().await?)
    }

    async fn signal(&self, signal: i32) -> Result<u32, Failure> {
        Ok(self.sandbox.signal_to(&self.id, signal, podbay::Target::All).await?)
    }

    async fn kill(&self) -> Result<u32, Failure> {
        Ok(self.sandbox.kill(&self.id).await?)
    }

    /// Kills the command at the end of a `with` block, if it is still running.
    async fn leave(&self) -> Result<(), Failure> {
        if self.ended().is_none() {
            self.kill().await?;
            // Wait, so that the command's end is in the audit log when the block ends.
            self.wait().await?;
        }
        Ok(())
    }

    fn show(&self, class: &str) -> String {
        let state = if self.ended().is_some() { "ended" } else { "running" };
        format!("<podbay.{class} {}, {state}, {} bytes>", self.id, self.offset.load(Ordering::Relaxed))
    }
}

/// A running command: an iterator over its events, the last of which is an `EndEvent`.
///
/// As a context manager, it kills the command at the end of the block. Otherwise a command that nobody follows keeps running;
/// `Sandbox.attach` follows it again.
#[pyclass(frozen, module = "podbay")]
pub struct Exec {
    running: Arc<Running>,
}

impl Exec {
    /// Wraps a running command for blocking calls.
    pub fn new(running: Arc<Running>) -> Self {
        Self { running }
    }
}

#[pymethods]
impl Exec {
    /// The command's id.
    #[getter]
    fn id(&self) -> &str {
        self.running.id.as_str()
    }

    /// How many bytes of its output have been read.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset.load(Ordering::Relaxed)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let running = &self.running;
        match block_on(py, async { running.next().await })? {
            Some(next) => event(py, next),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Writes to the command's standard input, which must have been kept open. Returns False if the command closed it.
    fn write(&self, py: Python<'_>, data: Content) -> PyResult<bool> {
        block_on(py, self.running.write(data))
    }

    /// Closes the command's standard input.
    fn close_input(&self, py: Python<'_>) -> PyResult<()> {
        block_on(py, self.running.close_input())
    }

    /// Sends a signal to all processes of the command. Returns how many got it.
    fn signal(&self, py: Python<'_>, signal: i32) -> PyResult<u32> {
        block_on(py, self.running.signal(signal))
    }

    /// Kills all processes of the command. Returns how many there were.
    fn kill(&self, py: Python<'_>) -> PyResult<u32> {
        block_on(py, self.running.kill())
    }

    /// Waits for the command to end, and discards its output.
    fn wait(&self, py: Python<'_>) -> PyResult<CommandInfo> {
        block_on(py, self.running.wait())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (kind, value, traceback);
        block_on(py, self.running.leave())
    }

    fn __repr__(&self) -> String {
        self.running.show("Exec")
    }
}

/// A running command: an asynchronous iterator over its events, the last of which is an `EndEvent`.
///
/// As an asynchronous context manager, it kills the command at the end of the block. Otherwise a command that nobody follows
/// keeps running; `Sandbox.aattach` follows it again.
#[pyclass(frozen, module = "podbay")]
pub struct AsyncExec {
    running: Arc<Running>,
}

impl AsyncExec {
    /// Wraps a running command for coroutines.
    pub fn new(running: Arc<Running>) -> Self {
        Self { running }
    }
}

#[pymethods]
impl AsyncExec {
    /// The command's id.
    #[getter]
    fn id(&self) -> &str {
        self.running.id.as_str()
    }

    /// How many bytes of its output have been read.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset.load(Ordering::Relaxed)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::converting("__anext__", async move { running.next().await }, |py, next| match next {
            Some(next) => event(py, next),
            None => Err(PyStopAsyncIteration::new_err(())),
        })
    }

    /// Writes to the command's standard input, which must have been kept open. Returns False if the command closed it.
    fn write(&self, data: Content) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("write", async move { running.write(data).await })
    }

    /// Closes the command's standard input.
    fn close_input(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("close_input", async move { running.close_input().await.map(|()| Nothing) })
    }

    /// Sends a signal to all processes of the command. Returns how many got it.
    fn signal(&self, signal: i32) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("signal", async move { running.signal(signal).await })
    }

    /// Kills all processes of the command. Returns how many there were.
    fn kill(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("kill", async move { running.kill().await })
    }

    /// Waits for the command to end, and discards its output.
    fn wait(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("wait", async move { running.wait().await })
    }

    fn __aenter__(slf: Py<Self>) -> Coroutine {
        Coroutine::converting("__aenter__", async { Ok(slf) }, |py, slf| slf.into_py_any(py))
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __aexit__(
        &self,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> Coroutine {
        let _ = (kind, value, traceback);
        let running = self.running.clone();
        Coroutine::new("__aexit__", async move { running.leave().await.map(|()| Nothing) })
    }

    fn __repr__(&self) -> String {
        self.running.show("AsyncExec")
    }
}
