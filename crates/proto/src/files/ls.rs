//! Listing a directory.

use serde::{Deserialize, Serialize};

use super::{Entry, Partial, Scope};
use crate::{Operation, RawPath, Subject};

/// Lists the direct children of a directory, including hidden ones, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ls {
    /// The directory. The working directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RawPath>,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// The most entries to return.
    #[serde(default = "default_limit")]
    pub limit: u64,
}

fn default_limit() -> u64 {
    100_000
}

impl Ls {
    /// A request to list `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Returns at most this many entries.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }
}

/// The working directory.
impl Default for Ls {
    fn default() -> Self {
        Self { path: None, scope: Scope::default(), limit: default_limit() }
    }
}

impl Operation for Ls {
    const NAME: &'static str = "ls";
    const MUTATES: bool = false;
    type Output = LsOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(self.path.as_ref())
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// What is in the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LsOutput {
    /// The directory's path: absolute, in the caller's view.
    pub path: RawPath,
    /// Its children, sorted by name.
    pub entries: Vec<Entry>,
    /// Present when there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}
