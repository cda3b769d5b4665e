//! What is at a path.

use serde::{Deserialize, Serialize};

use super::{Entry, Scope};
use crate::{Operation, RawPath, Subject};

/// Asks what is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stat {
    /// The path.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Describes the target of a link, not the link.
    #[serde(default = "super::yes")]
    pub follow: bool,
}

impl Stat {
    /// A request to describe `path`, with links followed.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: path.into(), scope: Scope::default(), follow: true }
    }

    /// Describes a link at the path, not what it leads to.
    #[must_use]
    pub fn no_follow(mut self) -> Self {
        self.follow = false;
        self
    }
}

impl Operation for Stat {
    const NAME: &'static str = "stat";
    const MUTATES: bool = false;
    type Output = StatOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(Some(&self.path))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// What is at the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatOutput {
    /// The fields of a directory entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// The owner's id.
    pub uid: u32,
    /// The group's id.
    pub gid: u32,
    /// How many hard links it has.
    pub links: u64,
    /// The inode number.
    pub inode: u64,
}
