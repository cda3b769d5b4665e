//! Running commands: iterating over their events, writing to their input, ending them.

use std::sync::Arc;

use podbay::SharedExec;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;

use crate::conversions::{Content, Nothing};
use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::results::exec::{CommandInfo, event};
use crate::runtime::block_on;

/// Kills a command at the end of a `with` block, if it is still running.
async fn leave(running: &SharedExec) -> Result<(), Failure> {
    if running.ended().is_none() {
        running.kill().await?;
        // Wait, so that the command's end is in the audit log when the block ends.
        running.wait().await?;
    }
    Ok(())
}

fn show(running: &SharedExec, class: &str) -> String {
    let state = if running.ended().is_some() { "ended" } else { "running" };
    format!("<podbay.{class} {}, {state}, {} bytes>", running.id(), running.offset())
}

/// A running command: an iterator over its events, the last of which is an `EndEvent`.
///
/// As a context manager, it kills the command at the end of the block. Otherwise a command that nobody follows keeps running;
/// `Sandbox.attach` follows it again.
#[pyclass(frozen, module = "podbay")]
pub struct Exec {
    running: Arc<SharedExec>,
}

impl Exec {
    /// Wraps a running command for blocking calls.
    pub fn new(running: Arc<SharedExec>) -> Self {
        Self { running }
    }
}

#[pymethods]
impl Exec {
    /// The command's id.
    #[getter]
    fn id(&self) -> &str {
        self.running.id().as_str()
    }

    /// How many bytes of its output have been read.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let running = &self.running;
        match block_on(py, async { Ok::<_, Failure>(running.next().await?) })? {
            Some(next) => event(py, next),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Writes to the command's standard input, which must have been kept open. Returns False if the command closed it.
    fn write(&self, py: Python<'_>, data: Content) -> PyResult<bool> {
        block_on(py, async { Ok::<_, Failure>(self.running.write(data.0).await?) })
    }

    /// Closes the command's standard input.
    fn close_input(&self, py: Python<'_>) -> PyResult<()> {
        block_on(py, async { Ok::<_, Failure>(self.running.close_input().await?) })
    }

    /// Sends a signal to all processes of the command. Returns how many got it.
    fn signal(&self, py: Python<'_>, signal: i32) -> PyResult<u32> {
        block_on(py, async { Ok::<_, Failure>(self.running.signal(signal).await?) })
    }

    /// Kills all processes of the command. Returns how many there were.
    fn kill(&self, py: Python<'_>) -> PyResult<u32> {
        block_on(py, async { Ok::<_, Failure>(self.running.kill().await?) })
    }

    /// Waits for the command to end, and discards its output.
    fn wait(&self, py: Python<'_>) -> PyResult<CommandInfo> {
        block_on(py, async { Ok::<CommandInfo, Failure>(self.running.wait().await?.into()) })
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
        block_on(py, leave(&self.running))
    }

    fn __repr__(&self) -> String {
        show(&self.running, "Exec")
    }
}

/// A running command: an asynchronous iterator over its events, the last of which is an `EndEvent`.
///
/// As an asynchronous context manager, it kills the command at the end of the block. Otherwise a command that nobody follows
/// keeps running; `Sandbox.aattach` follows it again.
#[pyclass(frozen, module = "podbay")]
pub struct AsyncExec {
    running: Arc<SharedExec>,
}

impl AsyncExec {
    /// Wraps a running command for coroutines.
    pub fn new(running: Arc<SharedExec>) -> Self {
        Self { running }
    }
}

#[pymethods]
impl AsyncExec {
    /// The command's id.
    #[getter]
    fn id(&self) -> &str {
        self.running.id().as_str()
    }

    /// How many bytes of its output have been read.
    #[getter]
    fn offset(&self) -> u64 {
        self.running.offset()
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::converting("__anext__", async move { Ok(running.next().await?) }, |py, next| match next {
            Some(next) => event(py, next),
            None => Err(PyStopAsyncIteration::new_err(())),
        })
    }

    /// Writes to the command's standard input, which must have been kept open. Returns False if the command closed it.
    fn write(&self, data: Content) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("write", async move { Ok(running.write(data.0).await?) })
    }

    /// Closes the command's standard input.
    fn close_input(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("close_input", async move { Ok(running.close_input().await.map(|()| Nothing)?) })
    }

    /// Sends a signal to all processes of the command. Returns how many got it.
    fn signal(&self, signal: i32) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("signal", async move { Ok(running.signal(signal).await?) })
    }

    /// Kills all processes of the command. Returns how many there were.
    fn kill(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("kill", async move { Ok(running.kill().await?) })
    }

    /// Waits for the command to end, and discards its output.
    fn wait(&self) -> Coroutine {
        let running = self.running.clone();
        Coroutine::new("wait", async move { Ok(CommandInfo::from(running.wait().await?)) })
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
        Coroutine::new("__aexit__", async move { leave(&running).await.map(|()| Nothing) })
    }

    fn __repr__(&self) -> String {
        show(&self.running, "AsyncExec")
    }
}
