//! A sandbox in full, for people who want to know what they have.

use serde::Serialize;

use crate::provider::Listed;

/// A sandbox in full.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// What a list says of it.
    pub listed: Listed,
    /// What keeps it apart from everything else.
    pub isolation: String,
    /// How long it may live.
    pub ttl_ms: Option<u64>,
    /// How long it may be idle.
    pub idle_ttl_ms: Option<u64>,
    /// How many of its commands have something alive, if it says.
    pub running: Option<u32>,
    /// What it may use.
    pub limits: Vec<Limit>,
    /// What else its provider knows: a name and a value.
    pub facts: Vec<(&'static str, String)>,
    /// What happened to it, oldest first.
    pub events: Vec<Event>,
    /// Why its events can't be told.
    pub no_events: Option<String>,
}

/// How much of something a sandbox may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Of what: `memory`, `cpu`, `processes`, `disk`, `descriptors`.
    pub limit: String,
    /// The most, as people write it; nothing where it is unlimited.
    pub most: Option<String>,
    /// What enforces it.
    pub by: Option<String>,
    /// How far it goes, or why it isn't in force.
    pub note: Option<String>,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When it happened last: milliseconds since 1970.
    pub at_ms: Option<u64>,
    /// How bad it is: `Normal`, `Warning`.
    pub kind: String,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// How often.
    pub count: u32,
}

impl Description {
    /// What a list says, with nothing known beyond that.
    pub fn new(listed: Listed, isolation: impl Into<String>) -> Self {
        Self {
            listed,
            isolation: isolation.into(),
            ttl_ms: None,
            idle_ttl_ms: None,
            running: None,
            limits: Vec::new(),
            facts: Vec::new(),
            events: Vec::new(),
            no_events: None,
        }
    }
}
