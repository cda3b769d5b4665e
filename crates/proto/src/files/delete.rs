//! Deleting.

use serde::{Deserialize, Serialize};

use super::{Kind, Scope};
use crate::{Operation, RawPath, Subject};

/// Deletes a file, a link (not what it leads to) or a directory with all that is in it.
///
/// Refused are the root itself, and directories that contain something a rule protects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Delete {
    /// What to delete.
    pub path: RawPath,
    /// How paths are understood.
    #[serde(default)]
    pub scope: Scope,
    /// Deletes a directory that isn't empty. Otherwise that is `not_empty`.
    #[serde(default = "super::yes")]
    pub recursive: bool,
    /// It is no error when there is nothing at the path.
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
    /// What it was; absent when nothing was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How many names were removed, all levels together.
    pub removed: u64,
}
