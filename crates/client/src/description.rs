//! Everything there is to know about one sandbox, for people who want to see what they have.

use podbay_proto::session::Protection;
use serde::Serialize;

use crate::provider::Listed;

/// A sandbox in full.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// What a list says about it.
    pub listed: Listed,
    /// What isolates it: `namespaces`, `landlock`, or a pod and its runtime.
    pub isolation: String,
    /// How long it may live, in milliseconds; for ever if not given.
    pub ttl_ms: Option<u64>,
    /// How long it may go unused, in milliseconds; for ever if not given.
    pub idle_ttl_ms: Option<u64>,
    /// How many of its commands are running, if it answers.
    pub running: Option<u32>,
    /// What it may use.
    pub limits: Vec<Limit>,
    /// What keeps its commands away from podbayd, and what this kernel leaves open, if it answers.
    pub protection: Option<Protection>,
    /// What else the provider knows: names and values.
    pub facts: Vec<(&'static str, String)>,
    /// What happened to it, oldest first.
    pub events: Vec<Event>,
    /// What couldn't be found out, and why: one sentence each.
    pub unknown: Vec<String>,
}

/// How much of something a sandbox may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Of what: `memory`, `cpu`, `processes`, `disk`, `descriptors`.
    pub limit: String,
    /// The most, as a Kubernetes quantity: a number, perhaps with a unit. Not given where nothing limits it.
    pub most: Option<String>,
    /// What enforces it.
    pub by: Option<String>,
    /// How far it goes, or why it isn't in force.
    pub note: Option<String>,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When it last happened, in milliseconds since 1970.
    pub at_ms: Option<u64>,
    /// `Normal` or `Warning`.
    pub kind: String,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// How often it happened.
    pub count: u32,
}

impl Description {
    /// What a list says, and nothing beyond that yet.
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
