//! One entry of the audit log.

use std::sync::Arc;

use podbay_client::provider::{Cleaned, Provided};
use serde::Serialize;

use super::details::Details;
use super::digest::{self, Digest, Text, Total};

/// How many bytes of ids are recorded of what a clean-up deleted: those of about 25,000 sandboxes.
const IDS: usize = 512 << 10;

/// How many bytes of a sandbox's id are recorded. Ids are shorter, but this one may be whatever a model asked for.
const ID: usize = 1024;

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It was allowed, and done.
    Allowed,
    /// It was allowed, and failed.
    Failed,
    /// A rule denied it, or the confinement to a directory: [`Outcome::denied_by`] tells who says so.
    Denied,
}

/// Who says that an operation was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedBy {
    /// This process, which sent nothing to the sandbox.
    Client,
    /// The sandbox, where rules on paths are enforced. It is no more than the sandbox's answer.
    Sandbox,
}

impl DeniedBy {
    /// The word that the log has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Sandbox => "sandbox",
        }
    }
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
            sandbox: Text::within(self.sandbox.as_bytes(), ID),
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
    /// The code of the failure: never a text that a sandbox or a cluster has sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Who denied it, if it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<DeniedBy>,
    /// Why this process denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
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
    /// What was sent, where that wasn't known at the beginning because it was streamed. If the operation failed, this is as much
    /// as was sent by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
    /// Whether a sandbox was created, or deleted: neither if it was there already, or wasn't there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// Whether a suspended sandbox was resumed because somebody wanted to use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
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

    /// A sandbox was created or found.
    pub fn provided(provided: &Provided) -> Self {
        Self { resumed: provided.resumed, ..Self::changed(provided.created) }
    }

    /// A sandbox was found.
    pub fn reconnected(provided: &Provided) -> Self {
        Self { resumed: provided.resumed, ..Self::default() }
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
    sandbox: Text,
    op: &'static str,
    target: &'a str,
    #[serde(flatten)]
    details: Option<&'a Details>,
    #[serde(flatten)]
    outcome: Option<&'a Outcome>,
}
