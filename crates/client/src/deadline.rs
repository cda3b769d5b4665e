//! The client's own deadline for a command.
//!
//! podbayd enforces a command's time-out, without the shim's help where it must. But podbayd runs inside the sandbox, next to
//! what it watches, so the caller doesn't trust it to answer: neither silence nor a trickle of output holds it forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use podbay_proto::exec::{Command, ExecId};
use tokio::time::Instant;

use crate::error::{Error, Result};

/// What podbayd may take beyond time-out and grace period, to find a zygote that works and to kill what won't die; and the
/// longest pause in the output that follows.
const SLACK: Duration = Duration::from_secs(10);

/// How long a caller waits altogether for output that arrives after the deadline. A command's log is at most 64 MiB, and a
/// slow network may take minutes for that.
const DRAIN: Duration = Duration::from_secs(300);

/// The most output that a caller takes after the deadline: more than any log holds. Output that never makes the caller wait
/// would otherwise never end.
const DRAIN_BYTES: u64 = 256 << 20;

/// When a caller stops waiting.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(Option<Bound>);

#[derive(Debug, Clone)]
struct Bound {
    at: Instant,
    /// From the start of the command to `at`, for the error.
    after: Duration,
    spent: Arc<Spent>,
}

/// What a command has cost its caller since the deadline. Shared, and kept up to date also by waits that are cancelled.
#[derive(Debug, Default)]
struct Spent {
    /// Time spent waiting. What the caller does between two waits is the caller's own business.
    micros: AtomicU64,
    bytes: AtomicU64,
}

impl Deadline {
    /// The deadline of a command that is started now, in a sandbox that is given `patience` to be reached.
    pub(crate) fn of(command: &Command, patience: Duration) -> Self {
        let limits = Duration::from_millis(command.timeout_ms.saturating_add(command.grace_ms));
        let after = limits.saturating_add(SLACK).saturating_add(patience);
        if command.timeout_ms == 0 {
            return Self::none();
        }
        // A deadline beyond what the clock can represent is none.
        Self(Instant::now().checked_add(after).map(|at| Bound { at, after, spent: Arc::default() }))
    }

    /// No deadline: the command has none, or somebody else started it.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Waits for something that the command's end brings about.
    ///
    /// # Errors
    /// `DeadlineExceeded`.
    pub(crate) async fn wait<T>(&self, id: &ExecId, work: impl Future<Output = T>) -> Result<T> {
        let Some(bound) = &self.0 else { return Ok(work.await) };
        let left = DRAIN.saturating_sub(Duration::from_micros(bound.spent.micros.load(Ordering::Relaxed)));
        let wait = Wait { bound, since: Instant::now() };
        if left.is_zero() {
            return Err(bound.exceeded(id));
        }
        // Output that arrives late but steadily is no reason to give up at once.
        let until = bound.at.max(wait.since + SLACK.min(left));
        tokio::time::timeout_at(until, work).await.map_err(|_| bound.exceeded(id))
    }

    /// Counts output that has arrived.
    ///
    /// # Errors
    /// `DeadlineExceeded` when more has come since the deadline than any log holds.
    pub(crate) fn received(&self, id: &ExecId, bytes: usize) -> Result<()> {
        let Some(bound) = self.0.as_ref().filter(|bound| bound.at < Instant::now()) else { return Ok(()) };
        // An event without bytes isn't free either.
        let bytes = (bytes as u64).max(1);
        let before = bound.spent.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > DRAIN_BYTES { Err(bound.exceeded(id)) } else { Ok(()) }
    }
}

impl Bound {
    fn exceeded(&self, id: &ExecId) -> Error {
        Error::DeadlineExceeded { id: id.clone(), seconds: self.after.as_secs() }
    }
}

/// A wait in progress. Its end, however it comes, is charged to the command.
struct Wait<'a> {
    bound: &'a Bound,
    since: Instant,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let late = Instant::now().saturating_duration_since(self.since.max(self.bound.at));
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.bound.spent.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    fn deadline(timeout_ms: u64) -> Deadline {
        let command = Command { timeout_ms, grace_ms: 2_000, ..Command::shell("true") };
        Deadline::of(&command, Duration::from_secs(1))
    }

    fn id() -> ExecId {
        ExecId::new("a").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_time_out_grace_and_slack() {
        let begun = Instant::now();
        let error = deadline(3_000).wait(&id(), std::future::pending::<()>()).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded { seconds: 16, .. }), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 16);
        assert!(deadline(0).0.is_none());
        assert!(deadline(u64::MAX).wait(&id(), async {}).await.is_ok(), "no clock can represent it");
    }

    /// Each piece of output once bought its sender ten more seconds, without end.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_ends() {
        let deadline = deadline(3_000);
        let begun = Instant::now();
        let mut events = 0;
        while deadline.wait(&id(), tokio::time::sleep(Duration::from_secs(9))).await.is_ok() {
            deadline.received(&id(), 1).unwrap();
            events += 1;
        }
        assert!(events > 20, "what comes steadily is waited for: {events}");
        let most = Duration::from_secs(16) + DRAIN;
        assert!(begun.elapsed() <= most, "{:?}", begun.elapsed());
        assert!(deadline.wait(&id(), async {}).await.is_err(), "it stays exceeded");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cancelled_counts() {
        let deadline = deadline(3_000);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let id = id();
        for _ in 1..DRAIN.as_secs() / 5 {
            let wait = deadline.wait(&id, std::future::pending::<()>());
            assert!(tokio::time::timeout(Duration::from_secs(5), wait).await.is_err(), "cancelled");
        }
        assert!(deadline.wait(&id, std::future::pending::<()>()).await.is_err(), "what is left is used up");
        assert!(deadline.wait(&id, async {}).await.is_err());
    }

    /// A caller may look at the output for as long as it likes, and a flood of output ends all the same.
    #[tokio::test(start_paused = true)]
    async fn only_waiting_takes_time_and_only_logs_are_taken() {
        let deadline = deadline(3_000);
        for _ in 0..10 {
            tokio::time::sleep(DRAIN).await;
            deadline.wait(&id(), async {}).await.unwrap();
        }
        for _ in 0..DRAIN_BYTES >> 20 {
            deadline.received(&id(), 1 << 20).unwrap();
        }
        assert!(deadline.received(&id(), 0).is_err());
    }
}
