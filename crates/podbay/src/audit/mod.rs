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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use podbay_client::{Error, Result};
use podbay_proto::ErrorCode;

use crate::errors::ErrorName;
pub use details::Details;
pub use digest::{Digest, Text, Total, Variable, WHOLE};
pub use entry::{AuditEntry, Decision, DeniedBy, Outcome, RecordedEffect};
pub use log::{AuditLog, Rotation};
pub use verify::{Fault, FaultKind, Lost, Torn, Unfinished, VerifyError, VerifyReport, verify};

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

/// Who is told that operations aren't recorded: a front end, which shows it to its user.
pub(crate) type Alarm = Arc<dyn Fn(&str) + Send + Sync>;

/// The observers of operations, and what happens when one fails.
#[derive(Clone, Default)]
pub struct Audit {
    observers: Arc<[Watched]>,
    strict: bool,
    alarm: Option<Alarm>,
}

/// An observer, and whether it failed when it was last told that an operation has ended.
struct Watched {
    observer: Arc<dyn Observer>,
    is_failing: AtomicBool,
}

impl Watched {
    fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, is_failing: AtomicBool::new(false) }
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("observers", &self.observers.len()).field("strict", &self.strict).finish()
    }
}

impl Audit {
    /// Tells an observer. If it fails, a warning is logged and the operation continues.
    pub fn new(observer: impl Observer + 'static) -> Self {
        Self { observers: Arc::new([Watched::new(Arc::new(observer))]), ..Self::default() }
    }

    /// Operations that an observer can't record are refused.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Tells the observers of both, in this order. It is strict if either is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let all = self.observers.iter().chain(other.observers.iter());
        Self {
            observers: all.map(|watched| Watched::new(watched.observer.clone())).collect(),
            strict: self.strict || other.strict,
            alarm: self.alarm.or(other.alarm),
        }
    }

    /// Calls this when operations begin to go unrecorded, and again when they do after having been recorded in between.
    #[must_use]
    pub(crate) fn with_alarm(self, alarm: Option<Alarm>) -> Self {
        Self { alarm, ..self }
    }

    /// Whether there is an observer. If not, details are never computed.
    pub fn is_on(&self) -> bool {
        !self.observers.is_empty()
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

    /// Records how an operation ended. An error is taken for the sandbox's answer.
    ///
    /// # Errors
    /// `policy_denied` when that can't be recorded and the audit is strict. The operation has been performed.
    pub fn end(&self, operation: PendingOperation, result: Result<RecordedEffect, &Error>) -> Result<()> {
        match result {
            Ok(effect) => self.finish(operation, Decision::Allowed, effect, None),
            Err(error) => self.fail(operation, error, RecordedEffect::default()),
        }
    }

    /// Records that an operation failed, and what it did until then.
    pub(crate) fn fail(&self, operation: PendingOperation, error: &Error, effect: RecordedEffect) -> Result<()> {
        let denied = matches!(error.code(), Some(ErrorCode::PolicyDenied | ErrorCode::EscapesRoot));
        let decision = if denied { Decision::Denied } else { Decision::Failed };
        let code = ErrorName::of(error).code;
        let failed = Failed { error: code, denied_by: denied.then_some(DeniedBy::Sandbox), reason: None };
        self.finish(operation, decision, effect, Some(failed))
    }

    /// The end of an operation couldn't be recorded, and its caller isn't there any more to be told.
    pub(crate) fn end_failed_unheard(&self, error: &str) {
        tracing::warn!(error, "the end of an operation couldn't be recorded");
        self.raise_alarm(error);
    }

    /// Records that this process denied an operation, so that nothing was sent.
    pub(crate) fn deny(&self, operation: PendingOperation, error: &Error) -> Result<()> {
        self.finish(operation, Decision::Denied, RecordedEffect::default(), Some(Failed::denied_here(error)))
    }

    fn finish(
        &self,
        mut operation: PendingOperation,
        decision: Decision,
        effect: RecordedEffect,
        failed: Option<Failed>,
    ) -> Result<()> {
        match operation.entry.take() {
            Some(entry) => self.tell(&ended(entry, operation.begun, decision, effect, failed)),
            None => Ok(()),
        }
    }

    /// Tells all observers. Where the audit is strict, an operation that one of them can't record is not to begin; those that know
    /// of its beginning learn that it was refused.
    fn tell(&self, entry: &AuditEntry) -> Result<()> {
        let mut refusal = None;
        for (told, watched) in self.observers.iter().enumerate() {
            let Err(error) = self.tell_one(watched, entry) else { continue };
            if !self.strict {
                continue;
            }
            let what = match &entry.outcome {
                None => "was refused because it can't be recorded in the audit log (audit.strict)",
                Some(outcome) if outcome.denied_by == Some(DeniedBy::Client) => {
                    "was denied, and that can't be recorded in the audit log (audit.strict)"
                }
                Some(outcome) if outcome.error == Some(ErrorCode::Cancelled.as_str()) => {
                    "was cancelled, and that can't be recorded in the audit log (audit.strict)"
                }
                Some(_) => "was carried out, but its result can't be recorded in the audit log (audit.strict)",
            };
            let error = podbay_proto::Error::new(ErrorCode::PolicyDenied, format!("'{}' {what}: {error}", entry.op));
            let error = Error::from(error);
            if entry.outcome.is_none() {
                let failed = Some(Failed::denied_here(&error));
                let effect = RecordedEffect::default();
                let refused = ended(entry.clone(), Instant::now(), Decision::Denied, effect, failed);
                for watched in &self.observers[..told] {
                    if let Err(error) = self.tell_one(watched, &refused) {
                        tracing::warn!(op = entry.op, %error, "a refusal couldn't be recorded");
                    }
                }
                return Err(error);
            }
            refusal.get_or_insert(error);
        }
        refusal.map_or(Ok(()), Err)
    }

    fn tell_one(&self, watched: &Watched, entry: &AuditEntry) -> io::Result<()> {
        let told = watched.observer.observe(entry);
        match &told {
            // Some observers don't care how operations begin, so that alone doesn't show that they work again.
            Ok(()) if entry.outcome.is_some() => watched.is_failing.store(false, Ordering::Relaxed),
            Ok(()) => {}
            // The caller is told.
            Err(_) if self.strict => {}
            Err(error) => {
                tracing::warn!(op = entry.op, %error, "an operation couldn't be recorded");
                if !watched.is_failing.swap(true, Ordering::Relaxed) {
                    self.raise_alarm(&format!(
                        "can't record '{}' in the audit log: {error}. Operations go on without being recorded there; set \
                         audit.strict to refuse them instead",
                        entry.op
                    ));
                }
            }
        }
        told
    }

    fn raise_alarm(&self, message: &str) {
        if let Some(alarm) = &self.alarm {
            alarm(message);
        }
    }
}

/// Why an operation wasn't done.
struct Failed {
    error: &'static str,
    denied_by: Option<DeniedBy>,
    reason: Option<Text>,
}

impl Failed {
    fn denied_here(error: &Error) -> Self {
        Self {
            error: ErrorName::of(error).code,
            denied_by: Some(DeniedBy::Client),
            reason: Some(Text::within(error.to_string().as_bytes(), REASON)),
        }
    }
}

/// How many bytes of the reason for a denial are recorded: it may quote a command.
const REASON: usize = 4096;

/// The last entry of an operation.
fn ended(
    entry: AuditEntry,
    begun: Instant,
    decision: Decision,
    effect: RecordedEffect,
    failed: Option<Failed>,
) -> AuditEntry {
    let duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(op = entry.op, sandbox = entry.sandbox, ?decision, us = duration_us, "operation");
    let (error, denied_by, reason) = match failed {
        Some(failed) => (Some(failed.error), failed.denied_by, failed.reason),
        None => (None, None, None),
    };
    let outcome = Some(Outcome { decision, duration_us, effect, error, denied_by, reason });
    AuditEntry { time_ms: now_ms(), outcome, ..entry }
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
        let failed = Failed { error: ErrorCode::Cancelled.as_str(), denied_by: None, reason: None };
        let entry = ended(entry, self.begun, Decision::Failed, RecordedEffect::default(), Some(failed));
        // Where the audit is strict, the failure has no caller to go to.
        if let Err(error) = self.audit.tell(&entry) {
            self.audit.end_failed_unheard(&error.to_string());
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
