//! A Python function that is told how far a transfer is.

use std::sync::{Mutex, PoisonError};

use podbay::Progress;
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::results::transfers;

/// Calls a function, and ends the transfer when it raises.
pub struct Reporter {
    callback: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
    stop: Notify,
}

impl Reporter {
    /// A reporter to a function, or to nobody.
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, raised: Mutex::new(None), stop: Notify::new() }
    }

    /// Tells how far it is.
    pub fn tell(&self, progress: Progress) {
        let Some(callback) = &self.callback else { return };
        // The thread is one of the runtime's, and Python may keep it waiting: the others take over its work.
        let told = tokio::task::block_in_place(|| {
            Python::try_attach(|py| callback.call1(py, (transfers::Progress::from(progress),)).map(drop))
        });
        if let Some(Err(error)) = told {
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.stop.notify_one();
        }
    }

    /// Waits for a transfer, or for the function to raise.
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
