//! Deleting.

use serde::{Deserialize, Serialize};

use super::{Kind, Scope};
use crate::{Operation, RawPath, Subject};

/// Deletes a file, a link (not its target) or a directory with everything in it.
///
/// The root itself, and directories that contain something that a rule protects, are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Delete {
    /// The file, link or directory.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Deletes a directory with everything in it. Otherwise a directory that isn't empty is `not_empty`.
    #[serde(default = "super::yes")]
    pub recursive: bool,
    /// Succeeds when nothing exists at the path.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub missing_ok: bool,
}

impl Delete {
    /// A request to delete what is at `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: path.into(), scope: Scope::default(), recursive: true, missing_ok: false }
    }

    /// Refuses a directory that isn't empty.
    #[must_use]
    pub fn not_recursive(mut self) -> Self {
        self.recursive = false;
        self
    }

    /// Succeeds when there is nothing at the path.
    #[must_use]
    pub fn missing_ok(mut self) -> Self {
        self.missing_ok = true;
        self
    }
}

impl Operation for Delete {
    const NAME: &'static str = "delete";
    const MUTATES: bool = true;
    type Output = DeleteOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(Some(&self.path))
    }

    fn answer_within(&self) -> Option<std::time::Duration> {
        Some(crate::operation::LONG)
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeleteOutput {
    /// The path: absolute, in the caller's view.
    pub path: RawPath,
    /// What it was; absent when nothing existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How many files and directories were removed in all.
    pub removed: u64,
}
