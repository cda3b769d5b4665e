//! A record of everything that is done with sandboxes, and of everything that was denied.
//!
//! Each operation has two entries: one before it begins and one when it has ended, which share an id. A client that is killed in
//! between leaves the first. [`AuditLog`] writes them to a file in which each entry contains the hash of the one before;
//! [`verify`] finds the first that was changed, removed or inserted.

mod chain;
mod details;
mod digest;
mod entry;
mod log;
mod verify;

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use podbay_client::{Error, Result};
use podbay_proto::ErrorCode;

pub use details::Details;
pub use digest::{Digest, Text, Total, WHOLE};
pub use entry::{AuditEntry, Decision, Outcome, RecordedEffect};
pub use log::{AuditLog, Rotation};
pub use verify::{Fault, FaultKind, Torn, Unfinished, VerifyError, VerifyReport, verify};

/// Is told about every operation, before it begins and when it has ended.
pub trait Observer: Send + Sync {
    /// Takes note of an entry.
    ///
    /// # Errors
    /// When it can't.
    fn observe(&self, entry: &AuditEntry) -> io::Result<()>;
}

impl<F: Fn(&AuditEntry) -> io::Result<()> + Send + Sync> Observer for F {
    fn observe(&self, entry: &AuditEntry) -> io::Result<()> {
        self(entry)
    }
}

/// The observer of operations, and what happens when it fails.
#[derive(Clone, Default)]
pub struct Audit {
    observer: Option<Arc<dyn Observer>>,
    strict: bool,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("on", &self.is_on()).field("strict", &self.strict).finish()
    }
}

impl Audit {
    /// Tells an observer. If it fails, a warning is logged and the operation continues.
    pub fn new(observer: impl Observer + 'static) -> Self {
        Self { observer: Some(Arc::new(observer)), strict: false }
    }

    /// Operations that the observer can't record are refused.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Whether there is an observer. If not, details are never computed.
    pub fn is_on(&self) -> bool {
        self.observer.is_some()
    }

    /// Records that an operation is about to begin.
    ///
    /// A [`PendingOperation`] that is dropped instead of [ended](Self::end) is recorded as cancelled.
    ///
    /// # Errors
    /// `policy_denied` when that can't be recorded and the audit is strict: the operation must not be performed.
    pub fn begin(
        &self,
        sandbox: &str,
        op: &'static str,
        details: impl FnOnce() -> Details,
    ) -> Result<PendingOperation> {
        let entry = self.is_on().then(|| AuditEntry {
            time_ms: now_ms(),
            operation: format!("{:016x}", rand::random::<u64>()),
            pid: std::process::id(),
            sandbox: sandbox.to_owned(),
            op,
            details: Arc::new(details()),
            outcome: None,
        });
        if let Some(entry) = &entry {
            self.tell(entry)?;
        }
        Ok(PendingOperation { audit: self.clone(), begun: Instant::now(), entry })
    }

    /// Records how an operation ended.
    ///
    /// # Errors
    /// `policy_denied` when that can't be recorded and the audit is strict. The operation has been performed.
    pub fn end(&self, mut operation: PendingOperation, result: Result<RecordedEffect, &Error>) -> Result<()> {
        let Some(entry) = operation.entry.take() else { return Ok(()) };
        let (decision, effect, error) = match result {
            Ok(effect) => (Decision::Allowed, effect, None),
            Err(error) => {
                let denied = matches!(error.code(), Some(ErrorCode::PolicyDenied | ErrorCode::EscapesRoot));
                let decision = if denied { Decision::Denied } else { Decision::Failed };
                let reason = match error.code() {
                    Some(code) if code != ErrorCode::PolicyDenied => code.as_str().to_owned(),
                    _ => error.to_string(),
                };
                (decision, RecordedEffect::default(), Some(reason))
            }
        };
        self.finish(entry, operation.begun, decision, effect, error)
    }

    fn finish(
        &self,
        entry: AuditEntry,
        begun: Instant,
        decision: Decision,
        effect: RecordedEffect,
        error: Option<String>,
    ) -> Result<()> {
        let duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(op = entry.op, sandbox = entry.sandbox, ?decision, us = duration_us, "operation");
        let outcome = Some(Outcome { decision, duration_us, effect, error });
        self.tell(&AuditEntry { time_ms: now_ms(), outcome, ..entry })
    }

    fn tell(&self, entry: &AuditEntry) -> Result<()> {
        let Some(observer) = &self.observer else { return Ok(()) };
        match observer.observe(entry) {
            Ok(()) => Ok(()),
            Err(error) if self.strict => {
                let what = match entry.outcome {
                    None => "was refused because it can't be recorded in the audit log (audit.strict)",
                    Some(_) => "was carried out, but its result can't be recorded in the audit log (audit.strict)",
                };
                let message = format!("'{}' {what}: {error}", entry.op);
                Err(podbay_proto::Error::new(ErrorCode::PolicyDenied, message).into())
            }
            Err(error) => {
                tracing::warn!(op = entry.op, %error, "an operation couldn't be recorded");
                Ok(())
            }
        }
    }
}

/// An operation under way.
#[derive(Debug)]
#[must_use = "an operation that isn't ended is recorded as cancelled"]
pub struct PendingOperation {
    audit: Audit,
    begun: Instant,
    /// None when nobody is told, or the end has been recorded.
    entry: Option<AuditEntry>,
}

impl Drop for PendingOperation {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let cancelled = Some("cancelled".to_owned());
        // Where the audit is strict, the failure has no caller to go to.
        if let Err(error) = self.audit.finish(entry, self.begun, Decision::Failed, RecordedEffect::default(), cancelled)
        {
            tracing::warn!(%error, "the end of a cancelled operation couldn't be recorded");
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
