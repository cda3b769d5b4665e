//! One entry of the audit log.

use std::sync::Arc;

use podbay_client::provider::Cleaned;
use serde::Serialize;

use super::details::Details;
use super::digest::{self, Digest, Text, Total};

/// How many bytes of ids are recorded of what a clean-up deleted: those of about 25,000 sandboxes.
const IDS: usize = 512 << 10;

/// The outcome of an operation.
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
    /// Its name in the log.
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

    /// The outcome of the operation; none when it is about to begin.
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
    /// Whether it was allowed, failed or was denied.
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
    /// The ids of what a clean-up deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<Text>,
    /// All of them, where they are too many to record each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_total: Option<Total>,
    /// The ids of what it should have deleted and couldn't.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_deleted: Vec<Text>,
    /// All of them, where they are too many to record each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_deleted_total: Option<Total>,
}

impl RecordedEffect {
    /// This many bytes were read, written or printed.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..Self::default() }
    }

    /// A sandbox was created, or deleted, or wasn't.
    pub fn changed(changed: bool) -> Self {
        Self { changed: Some(changed), ..Self::default() }
    }

    /// This was deleted by a clean-up.
    pub fn cleaned(cleaned: &Cleaned) -> Self {
        let (deleted, deleted_total) = digest::list(cleaned.deleted.iter().map(String::as_bytes), IDS);
        let (not_deleted, not_deleted_total) = digest::list(cleaned.failed.iter().map(|(id, _)| id.as_bytes()), IDS);
        let changed = Self::changed(!cleaned.deleted.is_empty());
        Self { deleted, deleted_total, not_deleted, not_deleted_total, ..changed }
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
