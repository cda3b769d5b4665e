//! Moving and renaming.

use serde::{Deserialize, Serialize};

use super::{Kind, Scope};
use crate::{Operation, RawPath, Subject};

/// Moves or renames a file, a link (not its target) or a directory. `to` is the new path itself, even if it is a directory.
///
/// On one file system this is atomic. A file or link that moves to another file system is copied and then deleted; a directory
/// can't be (`unsupported`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Move {
    /// What to move.
    pub from: RawPath,
    /// Its new path.
    pub to: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Replaces a file, a link or an empty directory at `to`. Otherwise that is `already_exists`.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub overwrite: bool,
    /// Creates missing parent directories of `to`.
    #[serde(default = "super::yes")]
    pub parents: bool,
}

impl Move {
    /// A request to move what is at `from` to `to`.
    pub fn new(from: impl Into<RawPath>, to: impl Into<RawPath>) -> Self {
        Self { from: from.into(), to: to.into(), scope: Scope::default(), overwrite: false, parents: true }
    }

    /// Replaces what is at the new path.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }

    /// Fails when the directory above the new path doesn't exist.
    #[must_use]
    pub fn without_parents(mut self) -> Self {
        self.parents = false;
        self
    }
}

impl Operation for Move {
    const NAME: &'static str = "move";
    const MUTATES: bool = true;
    type Output = MoveOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Move { from: &self.from, to: &self.to }
    }

    fn answer_within(&self) -> Option<std::time::Duration> {
        Some(crate::operation::LONG)
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveOutput {
    /// The old path: absolute, in the caller's view.
    pub from: RawPath,
    /// The new path: absolute, in the caller's view.
    pub to: RawPath,
    /// What it is.
    pub kind: Kind,
    /// Whether it was copied, because it moved to another file system.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub copied: bool,
}
