//! Reports a transfer's progress to a Python function.

use std::sync::{Mutex, PoisonError};

use podbay::Progress;
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::results::transfers;

/// Calls the progress function, and stops the transfer if it raises.
pub struct Reporter {
    callback: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
    stop: Notify,
}

impl Reporter {
    /// Creates a reporter; without a function it does nothing.
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, raised: Mutex::new(None), stop: Notify::new() }
    }

    /// Calls the function.
    pub fn report(&self, progress: Progress) {
        let Some(callback) = &self.callback else { return };
        // This is one of the runtime's threads, and Python may block it: let the other threads take over its tasks.
        let called = tokio::task::block_in_place(|| {
            Python::try_attach(|py| callback.call1(py, (transfers::Progress::from(progress),)).map(drop))
        });
        if let Some(Err(error)) = called {
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.stop.notify_one();
        }
    }

    /// Waits for the transfer to finish or the function to raise.
    pub async fn during<T>(&self, work: impl Future<Output = podbay::Result<T>>) -> Result<T, Failure> {
        let result = tokio::select! {
            biased;
            () = self.stop.notified() => None,
            result = work => Some(result),
        };
        match (self.raised.lock().unwrap_or_else(PoisonError::into_inner).take(), result) {
            (Some(error), _) => Err(Failure::Python(error)),
            (None, Some(result)) => Ok(result?),
            (None, None) => Err(Failure::Runtime("the transfer was stopped".to_owned())),
        }
    }
}
