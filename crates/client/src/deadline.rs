//! The client's own deadline for a command.
//!
//! podbayd enforces a command's time-out, and does so without the shim's help where it must. But it runs inside the sandbox,
//! next to what it watches, so the caller doesn't wait for it for ever either.

use std::time::Duration;

use podbay_proto::exec::{Command, ExecId};
use tokio::time::Instant;

use crate::error::{Error, Result};

/// What podbayd may take beyond time-out and grace period: to find a zygote that works, and to kill what won't die.
const SLACK: Duration = Duration::from_secs(10);

/// When a caller stops waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    after: Duration,
    /// The least that each wait gets: what comes late but steadily, as the rest of a long output does, is no reason to give
    /// up.
    least: Duration,
}

impl Deadline {
    /// The deadline of a command that is started now, in a sandbox that is given `patience` to be reached.
    pub(crate) fn of(command: &Command, patience: Duration) -> Self {
        let limits = Duration::from_millis(command.timeout_ms.saturating_add(command.grace_ms));
        let after = limits.saturating_add(SLACK).saturating_add(patience);
        match command.timeout_ms {
            0 => Self::none(),
            // A deadline that no clock can show is none.
            _ => Self { at: Instant::now().checked_add(after), after, least: SLACK },
        }
    }

    /// No deadline: the command has none, or was started by somebody else.
    pub(crate) fn none() -> Self {
        Self { at: None, after: Duration::ZERO, least: Duration::ZERO }
    }

    /// Waits for something that the command's end brings about.
    ///
    /// # Errors
    /// `DeadlineExceeded`.
    pub(crate) async fn wait<T>(&self, id: &ExecId, work: impl Future<Output = T>) -> Result<T> {
        let Some(at) = self.at else { return Ok(work.await) };
        let overdue = |_| Error::DeadlineExceeded { id: id.clone(), seconds: self.after.as_secs() };
        tokio::time::timeout_at(at.max(Instant::now() + self.least), work).await.map_err(overdue)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    fn until(timeout_ms: u64) -> Option<Duration> {
        let command = Command { timeout_ms, grace_ms: 2_000, ..Command::shell("true") };
        Deadline::of(&command, Duration::from_secs(1)).at.map(|at| at - Instant::now())
    }

    #[tokio::test]
    async fn a_command_is_waited_for_until_its_time_is_long_over() {
        let left = until(3_000).unwrap().as_secs_f64();
        assert!(left > 15.0 && left <= 16.0, "{left}");
        assert_eq!(until(0), None);
        assert_ne!(until(u64::MAX), Some(Duration::ZERO), "no clock shows it");

        let id = ExecId::new("a").unwrap();
        let ms = Duration::from_millis;
        let deadline = Deadline { at: Some(Instant::now() + ms(100)), after: ms(100), least: ms(50) };
        let error = deadline.wait(&id, std::future::pending::<()>()).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
        assert!(deadline.wait(&id, tokio::time::sleep(ms(1))).await.is_ok(), "what comes steadily");
        assert!(Deadline::none().wait(&id, async {}).await.is_ok());
    }
}
