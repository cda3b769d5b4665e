//! Reports a transfer's progress to a JavaScript function.

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};

use crate::results::transfers::Progress;

/// A function that is told of progress. It doesn't keep the process alive.
pub type ProgressFunction = ThreadsafeFunction<Progress, (), Progress, Status, false, true>;

/// Calls the progress function, if there is one, without waiting for it.
pub struct Reporter(Option<ProgressFunction>);

impl Reporter {
    /// Creates a reporter; without a function it does nothing.
    pub fn new(function: Option<ProgressFunction>) -> Self {
        Self(function)
    }

    /// Calls the function.
    pub fn report(&self, progress: podbay::Progress) {
        if let Some(function) = &self.0 {
            // A process that is ending has nobody to tell.
            let _ = function.call(progress.into(), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}
