//! Creating directories.

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::{Operation, RawPath, Subject};

/// Creates a directory and its parents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mkdir {
    /// The directory.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// Creates missing parent directories.
    #[serde(default = "super::yes")]
    pub parents: bool,
    /// Succeeds when the directory exists.
    #[serde(default = "super::yes")]
    pub exist_ok: bool,
    /// Permission bits of a new directory. 0777 minus the umask when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

impl Mkdir {
    /// A request to create the directory `path` and its parents.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: path.into(), scope: Scope::default(), parents: true, exist_ok: true, mode: None }
    }

    /// Fails when the directory above doesn't exist.
    #[must_use]
    pub fn without_parents(mut self) -> Self {
        self.parents = false;
        self
    }

    /// Fails with `already_exists` when the directory exists.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.exist_ok = false;
        self
    }

    /// Gives the directory these permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }
}

impl Operation for Mkdir {
    const NAME: &'static str = "mkdir";
    const MUTATES: bool = true;
    type Output = MkdirOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(Some(&self.path))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }
}

/// What was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MkdirOutput {
    /// The directory's path: absolute, in the caller's view.
    pub path: RawPath,
    /// Whether the directory is new.
    pub created: bool,
}
