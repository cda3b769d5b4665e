//! Commands that run: their events as iterators, their input, their end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError};

use podbay::{Command, Control, Event, Exec as Followed, ExecId, Info};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::results::exec::{CommandInfo, event};
use crate::runtime::block;
use crate::sandbox::Open;
use crate::text::{Content, Nothing};

/// A command that runs.
pub struct Running {
    exec: Mutex<Followed>,
    control: Mutex<Control>,
    id: ExecId,
    offset: AtomicU64,
    ended: Plain<Option<Info>>,
    /// A leashed sandbox lives as long as someone follows one of its commands.
    open: Arc<Open>,
}

impl Running {
    /// Starts a command.
    pub async fn spawn(open: Arc<Open>, command: Command) -> Result<Arc<Self>, Failure> {
        let exec = open.guarded.spawn(command).await?;
        Ok(Self::new(open, exec, 0))
    }

    /// Follows one that was started before.
    pub async fn attach(open: Arc<Open>, id: ExecId, offset: u64) -> Result<Arc<Self>, Failure> {
        let exec = open.guarded.attach(&id, offset).await?;
        Ok(Self::new(open, exec, offset))
    }

    fn new(open: Arc<Open>, exec: Followed, offset: u64) -> Arc<Self> {
        let (id, control) = (exec.id().clone(), exec.control());
        let (exec, control) = (Mutex::new(exec), Mutex::new(control));
        Arc::new(Self { exec, control, id, offset: offset.into(), ended: Plain::new(None), open })
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
                // It failed before; what became of it is asked for.
                return Ok(self.open.guarded.status(&self.id).await?.into());
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
        Ok(self.open.guarded.signal_to(&self.id, signal, podbay::Target::All).await?)
    }

    async fn kill(&self) -> Result<u32, Failure> {
        Ok(self.open.guarded.kill(&self.id).await?)
    }

    /// At the end of a `with` block nothing is left running.
    async fn leave(&self) -> Result<(), Failure> {
        if self.ended().is_none() {
            self.kill().await?;
            // When the block is left, its end is on record.
            self.wait().await?;
        }
        Ok(())
    }

    fn show(&self, class: &str) -> String {
        let state = if self.ended().is_some() { "ended" } else { "running" };
        format!("<podbay.{class} {}, {state}, {} bytes>", self.id, self.offset.load(Ordering::Relaxed))
    }
}

/// A command that runs: an iterator over what it does, which ends with an `EndEvent`.
///
/// As a context manager it kills what still runs at the end of the block. Without one, a command that isn't followed any more
/// runs on; `Sandbox.attach` finds it.
#[pyclass(frozen, module = "podbay")]
pub struct Exec {
    running: Arc<Running>,
}

impl Exec {
    /// For calls that wait.
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

    /// How many bytes of its output have been seen.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset.load(Ordering::Relaxed)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let running = &self.running;
        match block(py, async { running.next().await })? {
            Some(next) => event(py, next),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Writes to the command's standard input, which must have been kept open. False when it no longer reads.
    fn write(&self, py: Python<'_>, data: Content) -> PyResult<bool> {
        block(py, self.running.write(data))
    }

    /// Closes the command's standard input.
    fn close_input(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.running.close_input())
    }

    /// Sends a signal to everything that the command started; to how many processes.
    fn signal(&self, py: Python<'_>, signal: i32) -> PyResult<u32> {
        block(py, self.running.signal(signal))
    }

    /// Kills everything that the command started; how many processes there were.
    fn kill(&self, py: Python<'_>) -> PyResult<u32> {
        block(py, self.running.kill())
    }

    /// Waits for the end, taking no notice of the output.
    fn wait(&self, py: Python<'_>) -> PyResult<CommandInfo> {
        block(py, self.running.wait())
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
        block(py, self.running.leave())
    }

    fn __repr__(&self) -> String {
        self.running.show("Exec")
    }
}

/// A command that runs: an asynchronous iterator over what it does, which ends with an `EndEvent`.
///
/// As an asynchronous context manager it kills what still runs at the end of the block. Without one, a command that isn't
/// followed any more runs on; `Sandbox.aattach` finds it.
#[pyclass(frozen, module = "podbay")]
pub struct AsyncExec {
    running: Arc<Running>,
}

impl AsyncExec {
    /// For coroutines.
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

    /// How many bytes of its output have been seen.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset.load(Ordering::Relaxed)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::settling("__anext__", async move { running.next().await }, |py, next| match next {
            Some(next) => event(py, next),
            None => Err(PyStopAsyncIteration::new_err(())),
        })
    }

    /// Writes to the command's standard input, which must have been kept open. False when it no longer reads.
    fn write(&self, data: Content) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("write", async move { running.write(data).await })
    }

    /// Closes the command's standard input.
    fn close_input(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("close_input", async move { running.close_input().await.map(|()| Nothing) })
    }

    /// Sends a signal to everything that the command started; to how many processes.
    fn signal(&self, signal: i32) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("signal", async move { running.signal(signal).await })
    }

    /// Kills everything that the command started; how many processes there were.
    fn kill(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("kill", async move { running.kill().await })
    }

    /// Waits for the end, taking no notice of the output.
    fn wait(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("wait", async move { running.wait().await })
    }

    fn __aenter__(slf: Py<Self>) -> Coroutine {
        Coroutine::settling("__aenter__", async { Ok(slf) }, |py, slf| slf.into_py_any(py))
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
