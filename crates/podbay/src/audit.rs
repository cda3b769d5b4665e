//! A record of everything that is done in a sandbox, and of everything that was denied.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use podbay_client::{Error, Result};
use podbay_proto::ErrorCode;
use serde::Serialize;

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is about to be tried. Only a strict audit says this, before the operation: what can't be recorded isn't done.
    Begun,
    /// It was allowed, and done.
    Allowed,
    /// It was allowed, and failed.
    Failed,
    /// A rule denied it.
    Denied,
}

/// One operation.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// When: milliseconds since 1970.
    pub time_ms: u64,
    /// The sandbox's id.
    pub sandbox: String,
    /// The operation: `read`, `write`, `exec`, …
    pub op: &'static str,
    /// What it was done to: a path, or a command in one line.
    pub target: String,
    /// What became of it.
    pub decision: Decision,
    /// How many bytes were read, written or printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// A command's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The code of the failure, or the reason of the denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Someone who is told of every operation.
pub trait Observer: Send + Sync {
    /// Takes note of an operation.
    ///
    /// # Errors
    /// When it can't.
    fn observe(&self, entry: &Entry) -> io::Result<()>;
}

impl<F: Fn(&Entry) -> io::Result<()> + Send + Sync> Observer for F {
    fn observe(&self, entry: &Entry) -> io::Result<()> {
        self(entry)
    }
}

/// Appends each operation to a file, as one line of JSON.
#[derive(Debug)]
pub struct JsonLines {
    file: Mutex<File>,
}

impl JsonLines {
    /// Appends to a file, which is made when it isn't there.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }
}

impl Observer for JsonLines {
    fn observe(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // In one write, so that the lines of several processes don't mix.
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

/// What is recorded of a sandbox's operations, and what happens when that fails.
#[derive(Clone, Default)]
pub struct Audit {
    observer: Option<Arc<dyn Observer>>,
    strict: bool,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("on", &self.observer.is_some()).field("strict", &self.strict).finish()
    }
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Operation {
    begun: Instant,
    entry: Entry,
}

/// What an operation moved, and how it ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effect {
    pub(crate) bytes: Option<u64>,
    pub(crate) exit: Option<i32>,
}

impl Audit {
    /// Tells an observer. When it fails, that is logged and the operation goes on.
    pub fn new(observer: impl Observer + 'static) -> Self {
        Self { observer: Some(Arc::new(observer)), strict: false }
    }

    /// When the observer fails, the operation doesn't happen. Each one is recorded before it begins, too.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    pub(crate) fn begin(&self, sandbox: &str, op: &'static str, target: String) -> Result<Operation> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = Entry {
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            sandbox: sandbox.to_owned(),
            op,
            target,
            decision: Decision::Begun,
            bytes: None,
            duration_us: 0,
            exit: None,
            error: None,
        };
        if self.strict {
            self.tell(&entry)?;
        }
        Ok(Operation { begun: Instant::now(), entry })
    }

    /// Records the end of an operation.
    pub(crate) fn end(&self, operation: Operation, result: Result<Effect, &Error>) -> Result<()> {
        let mut entry = operation.entry;
        entry.duration_us = u64::try_from(operation.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        match result {
            Ok(effect) => {
                (entry.decision, entry.bytes, entry.exit) = (Decision::Allowed, effect.bytes, effect.exit);
            }
            Err(error) => {
                let denied = matches!(error.code(), Some(ErrorCode::PolicyDenied | ErrorCode::EscapesRoot));
                entry.decision = if denied { Decision::Denied } else { Decision::Failed };
                entry.error = Some(match error.code() {
                    Some(ErrorCode::PolicyDenied) => error.to_string(),
                    Some(code) => code.as_str().to_owned(),
                    None => error.to_string(),
                });
            }
        }
        tracing::debug!(op = entry.op, sandbox = entry.sandbox, decision = ?entry.decision, us = entry.duration_us, "operation");
        self.tell(&entry)
    }

    fn tell(&self, entry: &Entry) -> Result<()> {
        let Some(observer) = &self.observer else { return Ok(()) };
        match observer.observe(entry) {
            Ok(()) => Ok(()),
            Err(error) if self.strict => {
                let message = format!("'{}' can't be recorded by the audit, which is strict: {error}", entry.op);
                Err(podbay_proto::Error::new(ErrorCode::PolicyDenied, message).into())
            }
            Err(error) => {
                tracing::warn!(op = entry.op, %error, "an operation couldn't be recorded");
                Ok(())
            }
        }
    }
}
