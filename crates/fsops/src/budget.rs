//! How long an operation may take, and what its result lacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use podbay_proto::files::{Partial, PartialReason};
use podbay_proto::{Error, ErrorCode, Result};

/// Cancels an operation when its caller has gone. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A new handle.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the operation end soon, with the error `cancelled`.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::new(ErrorCode::Cancelled, "the caller went away, so the operation was cancelled")),
            false => Ok(()),
        }
    }
}

/// When an operation has to end.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    end: Option<Instant>,
    milliseconds: u64,
}

impl Deadline {
    pub(crate) fn after(milliseconds: u64) -> Self {
        // A time that the clock can't represent is no limit.
        Self { end: Instant::now().checked_add(Duration::from_millis(milliseconds)), milliseconds }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    pub(crate) fn detail(&self) -> String {
        format!("the time limit of {} ms was reached; start in a subdirectory or be more specific", self.milliseconds)
    }
}

/// What a result lacks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Gaps {
    limit: Option<String>,
    unreadable: u64,
    first: Option<String>,
}

impl Gaps {
    /// Records that a limit was reached. The first one is reported.
    pub(crate) fn limit(&mut self, detail: impl Into<String>) {
        self.limit.get_or_insert(detail.into());
    }

    /// Records that something couldn't be read.
    pub(crate) fn unreadable(&mut self, error: &Error) {
        self.unreadable += 1;
        self.first.get_or_insert_with(|| error.message.clone());
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.first = self.first.take().or(other.first);
        self.limit = self.limit.take().or(other.limit);
    }

    pub(crate) fn into_partial(self) -> Option<Partial> {
        let limit_reached = self.limit.is_some();
        let (reason, detail) = match (self.first, self.limit) {
            (Some(first), _) => (PartialReason::Unreadable, first),
            (None, Some(limit)) => (PartialReason::Budget, limit),
            (None, None) => return None,
        };
        Some(Partial { reason, detail, unreadable: self.unreadable, limit_reached })
    }
}
