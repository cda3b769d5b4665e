//! Finding text in files.

use serde::{Deserialize, Serialize};

use super::{Partial, Scope};
use crate::{Operation, RawPath, Subject};

/// Finds lines that contain a literal text. Hidden files are searched, ignore files have no effect, links aren't followed.
///
/// Files with a NUL byte are binary and are skipped, as is everything that isn't a regular file. A search from `/` skips
/// `/proc`, `/sys` and `/dev`, and one that starts above the working directory searches that first. A text with a line
/// break matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grep {
    /// The text.
    pub pattern: String,
    /// A directory, or one file. The working directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RawPath>,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Searches only files that match this pattern, as in glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<RawPath>,
    /// The most matching lines to return from all files together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u64>,
    /// Skips directories of these names, unless the search starts at one.
    #[serde(default = "default_excluded")]
    pub exclude_dirs: Vec<RawPath>,
    /// The most milliseconds to take.
    #[serde(default = "default_budget")]
    pub budget_ms: u64,
    /// The most bytes of a line to return.
    #[serde(default = "default_line")]
    pub max_line_bytes: u64,
}

fn default_excluded() -> Vec<RawPath> {
    vec![RawPath::from(".git")]
}

fn default_budget() -> u64 {
    15_000
}

fn default_line() -> u64 {
    100_000
}

impl Grep {
    /// A request for the lines that contain `pattern`.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            path: None,
            scope: Scope::default(),
            glob: None,
            max_count: None,
            exclude_dirs: default_excluded(),
            budget_ms: default_budget(),
            max_line_bytes: default_line(),
        }
    }

    /// Searches this file, or below this directory, not the working directory.
    #[must_use]
    pub fn below(mut self, path: impl Into<RawPath>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Searches only files that match this glob pattern.
    #[must_use]
    pub fn glob(mut self, pattern: impl Into<RawPath>) -> Self {
        self.glob = Some(pattern.into());
        self
    }

    /// Returns at most this many matching lines.
    #[must_use]
    pub fn max_count(mut self, count: u64) -> Self {
        self.max_count = Some(count);
        self
    }
}

impl Operation for Grep {
    const NAME: &'static str = "grep";
    const MUTATES: bool = false;
    type Output = GrepOutput;

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

/// One line that contains the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineMatch {
    /// Its number; the first line is 1.
    pub line: u64,
    /// The line without its line end. Bytes that aren't UTF-8 are replaced.
    pub text: String,
    /// Whether the line was cut.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub cut: bool,
}

/// The matches in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileMatches {
    /// The file: the start's path, as requested, joined with the path below it.
    pub path: RawPath,
    /// Its matching lines, in order.
    pub lines: Vec<LineMatch>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrepOutput {
    /// Where the search started: absolute, in the caller's view.
    pub path: RawPath,
    /// The files with matches, sorted by path.
    pub files: Vec<FileMatches>,
    /// How many matching lines they have together.
    pub count: u64,
    /// How many files were searched.
    pub searched: u64,
    /// Present when there may be more: `max_count` or the time limit was reached, or something couldn't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
}
