//! Python coroutines that are driven by Rust.
//!
//! Like any coroutine, one does nothing until it is awaited. Its work then runs as a task on the Tokio runtime, and the
//! coroutine waits on a future of whichever event loop awaits it, on any thread. When the coroutine is cancelled, closed or
//! dropped, the task is aborted, and with it the operation in the sandbox.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tokio::task::AbortHandle;

use crate::failure::Failure;
use crate::loop_wakeup::{Completion, LoopWakeup};
use crate::runtime::runtime;

type Work = Pin<Box<dyn Future<Output = Completion> + Send>>;

enum State {
    /// Not awaited yet.
    New(Work),
    /// Waiting on a future of an event loop.
    Waiting { future: Py<PyAny>, wakeup: Py<LoopWakeup>, ticket: u64, task: AbortHandle },
    /// Completed, cancelled or closed.
    Done,
}

impl State {
    /// Aborts the task, except in a forked child: there the task is the parent's, and touching it could wait for a thread that
    /// doesn't exist in this process.
    fn abort(self) {
        if let Self::Waiting { wakeup, ticket, task, .. } = self
            && runtime().is_ok()
        {
            task.abort();
            wakeup.get().forget(ticket);
        }
    }
}

/// An awaitable operation.
#[pyclass(frozen, module = "podbay._native", name = "_Coroutine")]
pub struct Coroutine {
    name: &'static str,
    state: Mutex<State>,
}

impl Coroutine {
    /// Wraps an operation under the name of the method that returned it.
    pub fn new<T>(name: &'static str, work: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        Self::converting(name, work, |py, value| value.into_py_any(py))
    }

    /// Like [`new`](Self::new), with a function that converts the result on the event loop's thread.
    pub fn converting<T: Send + 'static>(
        name: &'static str,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work = async move {
            let result = work.await;
            Box::new(move |py: Python<'_>| convert(py, result.map_err(PyErr::from)?)) as Completion
        };
        Self { name, state: Mutex::new(State::New(Box::pin(work))) }
    }

    fn take(&self) -> State {
        std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Done)
    }

    fn put(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Aborts the work, if it has begun and hasn't completed.
    fn cancel(&self) {
        self.take().abort();
    }

    /// Spawns the work on the runtime and returns the future for the loop to wait on.
    fn begin(&self, py: Python<'_>, work: Work) -> PyResult<Py<PyAny>> {
        let runtime = runtime()?;
        let event_loop = running_loop(py)?;
        let wakeup = LoopWakeup::of(&event_loop)?;
        let future = event_loop.call_method0(intern!(py, "create_future"))?;
        let (ticket, queue) = wakeup.get().register(future.clone().unbind());
        let task = runtime.spawn(async move { queue.push(ticket, work.await) }).abort_handle();
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        self.put(State::Waiting { future: future.clone().unbind(), wakeup: wakeup.unbind(), ticket, task });
        Ok(future.unbind())
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get =
        GET.get_or_try_init(py, || Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind()))?;
    get.bind(py).call0()
}

#[pymethods]
impl Coroutine {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.take() {
            State::New(work) => self.begin(py, work),
            State::Waiting { future, wakeup, ticket, task } => {
                let done: bool = future.bind(py).call_method0(intern!(py, "done"))?.extract()?;
                if !done {
                    // Stepped before its future is done: keep waiting.
                    future.bind(py).setattr(intern!(py, "_asyncio_future_blocking"), true)?;
                    let again = future.clone_ref(py);
                    self.put(State::Waiting { future, wakeup, ticket, task });
                    return Ok(again);
                }
                let result = future.bind(py).call_method0(intern!(py, "result"))?;
                Err(PyStopIteration::new_err((result.unbind(),)))
            }
            State::Done => Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine")),
        }
    }

    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)
    }

    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = traceback;
        self.cancel();
        let raised = match value {
            Some(value) if value.is_instance_of::<pyo3::exceptions::PyBaseException>() => value.clone(),
            Some(value) if !value.is_none() => kind.call1((value,))?,
            _ if kind.is_instance_of::<PyType>() => kind.call0()?,
            _ => kind.clone(),
        };
        Err(PyErr::from_value(raised))
    }

    fn close(&self) {
        self.cancel();
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        self.name
    }

    fn __repr__(&self) -> String {
        format!("<podbay coroutine {}>", self.name)
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        let state = std::mem::replace(self.state.get_mut().unwrap_or_else(PoisonError::into_inner), State::Done);
        match state {
            State::Waiting { .. } => state.abort(),
            // Python warns about its own coroutines in the same words; a forgotten `await` is a common mistake.
            State::New(_) => {
                Python::try_attach(|py| {
                    let message = format!("coroutine '{}' was never awaited\0", self.name);
                    let Ok(message) = std::ffi::CStr::from_bytes_with_nul(message.as_bytes()) else { return };
                    if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), message, 1) {
                        error.write_unraisable(py, None);
                    }
                });
            }
            State::Done => {}
        }
    }
}
