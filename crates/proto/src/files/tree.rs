//! Listing a tree.

use serde::{Deserialize, Serialize};

use super::{Kind, Partial, Scope, Time};
use crate::{Operation, RawPath, Subject};

/// Lists everything below a directory, as a client needs it to fetch the whole tree. Links aren't followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tree {
    /// The directory. The working directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RawPath>,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Lists only what sorts after this relative path. To continue a result that was cut, pass its last path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RawPath>,
    /// How many levels to descend; 1 lists the children only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// The most entries to return.
    #[serde(default = "default_limit")]
    pub limit: u64,
    /// The most milliseconds to take.
    #[serde(default = "default_budget")]
    pub budget_ms: u64,
}

fn default_limit() -> u64 {
    100_000
}

fn default_budget() -> u64 {
    30_000
}

impl Tree {
    /// A request to list everything below `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Descends at most this many levels; 1 lists only the directory's children.
    #[must_use]
    pub fn max_depth(mut self, levels: u32) -> Self {
        self.max_depth = Some(levels);
        self
    }

    /// Returns at most this many entries.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }
}

/// Everything below the working directory.
impl Default for Tree {
    fn default() -> Self {
        Self {
            path: None,
            scope: Scope::default(),
            after: None,
            max_depth: None,
            limit: default_limit(),
            budget_ms: default_budget(),
        }
    }
}

impl Operation for Tree {
    const NAME: &'static str = "tree";
    const MUTATES: bool = false;
    type Output = TreeOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(self.path.as_ref())
    }

    fn answer_within(&self) -> Option<std::time::Duration> {
        Some(crate::operation::PROMPT.saturating_add(std::time::Duration::from_millis(self.budget_ms)))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeEntry {
    /// Its path below the tree's directory.
    pub path: RawPath,
    /// What it is.
    pub kind: Kind,
    /// The size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of the contents.
    pub modified: Time,
    /// For a symbolic link: its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RawPath>,
}

/// What is in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeOutput {
    /// The directory's path: absolute, in the caller's view.
    pub path: RawPath,
    /// Everything below it, sorted by path, a directory before what it contains.
    pub entries: Vec<TreeEntry>,
    /// Present when there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}
