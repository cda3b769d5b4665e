//! One entry of the audit log.

use std::sync::Arc;

use serde::Serialize;

use super::details::Details;
use super::digest::Digest;

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It was allowed, and done.
    Allowed,
    /// It was allowed, and failed.
    Failed,
    /// A rule denied it.
    Denied,
}

impl Decision {
    /// The word that the log has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Failed => "failed",
            Self::Denied => "denied",
        }
    }
}

/// The beginning or the end of an operation.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// When: milliseconds since 1970.
    pub time_ms: u64,
    /// The operation's id, which its two entries share.
    pub operation: String,
    /// The process that performs it.
    pub pid: u32,
    /// The sandbox's id.
    pub sandbox: String,
    /// The operation: `read`, `write`, `exec`, …
    pub op: &'static str,
    /// What it does. The log has this in the first entry only.
    pub details: Arc<Details>,
    /// How it ended; none when it is about to begin.
    pub outcome: Option<Outcome>,
}

impl AuditEntry {
    /// What the operation is about, for people: a path, or a command in one line.
    pub fn target(&self) -> &str {
        &self.details.target
    }

    /// What became of the operation; none when it is about to begin.
    pub fn decision(&self) -> Option<Decision> {
        self.outcome.as_ref().map(|outcome| outcome.decision)
    }

    /// What is written to a log.
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields {
            time_ms: self.time_ms,
            event: if self.outcome.is_some() { "ended" } else { "begun" },
            operation: &self.operation,
            pid: self.pid,
            sandbox: &self.sandbox,
            op: self.op,
            target: &self.details.target,
            details: self.outcome.is_none().then_some(&*self.details),
            outcome: self.outcome.as_ref(),
        }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// What became of it.
    pub decision: Decision,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// What it moved, and how its command ended.
    #[serde(flatten)]
    pub effect: RecordedEffect,
    /// The code of the failure, or the reason of the denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an operation did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordedEffect {
    /// How many bytes were read, written or printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A command's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// What was written, where that wasn't known at the beginning because it was streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
    /// Whether a sandbox was created, or deleted: neither if it was there already, or wasn't there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
}

impl RecordedEffect {
    /// So many bytes were moved.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..Self::default() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Fields<'a> {
    time_ms: u64,
    event: &'static str,
    operation: &'a str,
    pid: u32,
    sandbox: &'a str,
    op: &'static str,
    target: &'a str,
    #[serde(flatten)]
    details: Option<&'a Details>,
    #[serde(flatten)]
    outcome: Option<&'a Outcome>,
}
