//! The process's Tokio runtime, and blocking calls on it.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// How often a blocking call checks for signals, so that Ctrl-C interrupts it.
const SIGNALS: Duration = Duration::from_millis(50);

/// Two are enough: they mostly wait for sandboxes, and Python code runs under the GIL anyway.
const THREADS: usize = 2;

static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// Returns the runtime, and starts it on first use.
///
/// Its threads don't survive a fork. A forked child that used it would hang forever, so it gets an error instead.
pub fn runtime() -> Result<&'static Runtime, Failure> {
    let (pid, runtime) = match RUNTIME.get() {
        Some(running) => running,
        None => {
            let runtime = Builder::new_multi_thread()
                .worker_threads(THREADS)
                .thread_name("podbay")
                .enable_all()
                .build()
                .map_err(|error| Failure::Runtime(format!("can't start Podbay's threads: {error}")))?;
            // If two threads race, one runtime is kept and the other is dropped unused.
            RUNTIME.get_or_init(|| (std::process::id(), runtime))
        }
    };
    if *pid == std::process::id() { Ok(runtime) } else { Err(Failure::Forked { parent: *pid }) }
}

/// Runs an operation to completion with the GIL released. A signal handler that raises cancels the operation.
pub fn block_on<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T, Failure>> + Send) -> PyResult<T> {
    let runtime = runtime()?;
    py.detach(|| {
        // Work that is dropped halfway spawns a task to cancel itself, so it has to be dropped inside the runtime.
        let _context = runtime.enter();
        let mut work = pin!(work);
        loop {
            let step = async { tokio::time::timeout(SIGNALS, work.as_mut()).await };
            match runtime.block_on(step) {
                Ok(result) => return result.map_err(PyErr::from),
                Err(_) => Python::attach(|py| py.check_signals())?,
            }
        }
    })
}
