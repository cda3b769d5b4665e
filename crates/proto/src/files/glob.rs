//! Finding files by name.

use serde::{Deserialize, Serialize};

use super::{Kind, Partial, Scope, Time};
use crate::{Operation, RawPath, Subject};

/// Finds files by a glob pattern.
///
/// A pattern without `/` matches names at any depth, one with `/` matches the path below the start; `**` matches any
/// number of directories. `*`, `?` and `[…]` never match a `/`, nor a dot at the beginning of a name, and `**` doesn't enter
/// directories whose name begins with one. `{a,b}` are alternatives. A `..` in the pattern is `invalid_pattern`.
///
/// It finds regular files, and links to regular files that stay below the start. Links to directories aren't followed. A
/// search from `/` skips `/proc`, `/sys` and `/dev`. A search that starts above the working directory searches that
/// first, so that its files are found before a limit ends the search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Glob {
    /// The pattern.
    pub pattern: RawPath,
    /// The directory to start in. The working directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RawPath>,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Finds directories as well as files.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub directories: bool,
    /// Lets wildcards match names that begin with a dot.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub dots: bool,
    /// Matches a pattern without `/` against the path below the start, so that it finds only direct children.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub whole_path: bool,
    /// The most matches to return.
    #[serde(default = "default_limit")]
    pub limit: u64,
    /// The most milliseconds to take.
    #[serde(default = "default_budget")]
    pub budget_ms: u64,
}

fn default_limit() -> u64 {
    10_000
}

fn default_budget() -> u64 {
    5_000
}

impl Glob {
    /// A request for what matches `pattern`.
    pub fn new(pattern: impl Into<RawPath>) -> Self {
        Self {
            pattern: pattern.into(),
            path: None,
            scope: Scope::default(),
            directories: false,
            dots: false,
            whole_path: false,
            limit: default_limit(),
            budget_ms: default_budget(),
        }
    }

    /// Searches below this directory, not the working directory.
    #[must_use]
    pub fn below(mut self, path: impl Into<RawPath>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Finds directories as well as files.
    #[must_use]
    pub fn directories(mut self) -> Self {
        self.directories = true;
        self
    }

    /// Lets wildcards match names that begin with a dot.
    #[must_use]
    pub fn dots(mut self) -> Self {
        self.dots = true;
        self
    }

    /// Returns at most this many matches.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }
}

impl Operation for Glob {
    const NAME: &'static str = "glob";
    const MUTATES: bool = false;
    type Output = GlobOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Search { path: self.path.as_ref(), pattern: self.pattern.as_bytes() }
    }

    fn answer_within(&self) -> Option<std::time::Duration> {
        Some(crate::operation::PROMPT.saturating_add(std::time::Duration::from_millis(self.budget_ms)))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// One match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GlobMatch {
    /// The path below the start.
    pub path: RawPath,
    /// A file or a directory; for a link, what it leads to.
    pub kind: Kind,
    /// Whether it is a link.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub is_link: bool,
    /// The size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Time,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GlobOutput {
    /// Where the search started: absolute, in the caller's view.
    pub path: RawPath,
    /// The matches, sorted by path.
    pub matches: Vec<GlobMatch>,
    /// Present when there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}
