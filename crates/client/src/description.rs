//! The full description of a sandbox, for `podbay describe`.

use podbay_proto::session::ProtectionReport;
use serde::Serialize;

use crate::provider::Listed;

/// The full description of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// What lists show of it.
    pub listed: Listed,
    /// How it is isolated: `namespaces`, `landlock`, or a pod and its runtime.
    pub isolation: String,
    /// How long it may live, in milliseconds; no limit if absent.
    pub ttl_ms: Option<u64>,
    /// How long it may be idle, in milliseconds; no limit if absent.
    pub idle_ttl_ms: Option<u64>,
    /// How many commands are running, if it answers.
    pub running: Option<u32>,
    /// Its resource limits.
    pub limits: Vec<Limit>,
    /// How podbayd is protected from its commands, and what isn't protected, if it answers.
    pub protection: Option<ProtectionReport>,
    /// Other facts from the provider, by name.
    pub facts: Vec<(&'static str, String)>,
    /// Its events, oldest first.
    pub events: Vec<SandboxEvent>,
    /// What couldn't be determined and why, one sentence each.
    pub unknown: Vec<String>,
}

/// A resource limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The resource: `memory`, `cpu`, `processes`, `disk`, `descriptors`.
    pub limit: String,
    /// The limit as a Kubernetes quantity, a number with or without a unit; absent if there is none.
    pub most: Option<String>,
    /// What enforces it.
    pub by: Option<String>,
    /// What it covers, or why it isn't in force.
    pub note: Option<String>,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxEvent {
    /// When it last happened, in milliseconds since 1970.
    pub at_ms: Option<u64>,
    /// `Normal` or `Warning`.
    pub kind: String,
    /// The reason in one word.
    pub reason: String,
    /// The message in a sentence.
    pub message: String,
    /// How often it happened.
    pub count: u32,
}

impl Description {
    /// A description with nothing but what lists show.
    pub fn new(listed: Listed, isolation: impl Into<String>) -> Self {
        Self {
            listed,
            isolation: isolation.into(),
            ttl_ms: None,
            idle_ttl_ms: None,
            running: None,
            limits: Vec::new(),
            protection: None,
            facts: Vec::new(),
            events: Vec::new(),
            unknown: Vec::new(),
        }
    }
}
