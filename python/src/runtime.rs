//! The one Tokio runtime of the process, and synchronous calls on it.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// How often a waiting call looks for signals: Ctrl-C interrupts it.
const SIGNALS: Duration = Duration::from_millis(50);

/// The work is waiting for sandboxes; Python does the rest under its lock.
const THREADS: usize = 2;

static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// The runtime, which is started when it is first needed.
///
/// Its threads don't survive a fork. A child that is used in spite of that would hang for ever, so it is told.
pub fn runtime() -> Result<&'static Runtime, Failure> {
    let (pid, runtime) = match RUNTIME.get() {
        Some(running) => running,
        None => {
            let runtime = Builder::new_multi_thread()
                .worker_threads(THREADS)
                .thread_name("podbay")
                .enable_all()
                .build()
                .map_err(|error| Failure::Runtime(format!("Podbay's threads can't be started: {error}")))?;
            // Where two threads come at once, one runtime stays and the other ends unused.
            RUNTIME.get_or_init(|| (std::process::id(), runtime))
        }
    };
    if *pid == std::process::id() { Ok(runtime) } else { Err(Failure::Forked { parent: *pid }) }
}

/// Waits for an operation with the GIL released. A signal that raises ends the wait and cancels the operation.
pub fn block<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T, Failure>> + Send) -> PyResult<T> {
    let runtime = runtime()?;
    py.detach(|| {
        // Work that is dropped half-way cancels itself by a task of its own, so it has to end inside the runtime.
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
