//! What creator and supervisor tell each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use podbay_jail::{InForce, Jail};
use serde::{Deserialize, Serialize};

/// The sandbox to create: the creator writes it to [`SPEC`](crate::SPEC).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What the sandbox can see and use.
    pub jail: Jail,
    /// When the sandbox was requested, in milliseconds since 1970.
    pub created_ms: u64,
    /// The user's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The sandbox ends this many milliseconds after its start.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
    /// The sandbox ends after this many milliseconds without use.
    #[serde(default)]
    pub idle_ttl_ms: Option<u64>,
    /// The sandbox ends when its creator closes the leash, which also happens when the creator dies.
    #[serde(default)]
    pub leashed: bool,
    /// The sandbox ends if its creator closes the leash before confirming that it has the sandbox. For sandboxes with a random
    /// id: if the creator dies halfway, nobody else knows the id.
    #[serde(default)]
    pub unconfirmed: bool,
}

/// The sandbox that was started: the supervisor writes it to [`STARTED`](crate::STARTED).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// The supervisor's process id.
    pub supervisor: u32,
    /// The process id of the sandbox's first process, seen from outside.
    pub first: u32,
    /// That process's start time, which tells it from a later process with the same id.
    pub first_began: Option<u64>,
    /// The control groups made for the sandbox.
    pub cgroups: Vec<PathBuf>,
    /// The requested limits, and what enforces each.
    pub limits: Vec<InForce>,
}

/// The supervisor's one message on the leash: a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartReport {
    /// The sandbox is running.
    Ready(Started),
    /// The sandbox couldn't be started.
    Failed {
        /// The reason, and what to do about it.
        message: String,
    },
}
