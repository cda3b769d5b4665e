//! Whether a sandbox is in use: requests in progress, and the time of the last one.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of requests in progress, and when it last changed.
pub struct Activity {
    state: Mutex<(u32, Instant)>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { state: Mutex::new((0, Instant::now())) }
    }
}

/// A request in progress.
pub struct Busy<'a>(&'a Activity);

impl Activity {
    /// A request begins; it ends when the returned value is dropped.
    pub fn begin(&self) -> Busy<'_> {
        self.change(|count| count + 1);
        Busy(self)
    }

    /// Notes activity other than a request.
    pub fn touch(&self) {
        self.change(|count| count);
    }

    /// Whether exactly one request is in progress.
    pub fn is_single(&self) -> bool {
        self.lock().0 == 1
    }

    /// How long no request has been in progress.
    pub fn idle(&self) -> Duration {
        match *self.lock() {
            (0, last) => last.elapsed(),
            _ => Duration::ZERO,
        }
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let mut state = self.lock();
        *state = (change(state.0), Instant::now());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u32, Instant)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.change(|count| count.saturating_sub(1));
    }
}
