//! Fetching a whole file.

use serde::{Deserialize, Serialize};

use super::{Scope, Time};
use crate::{Operation, RawPath, Subject};

/// Fetches a file of any size, unchanged. The content is the answer's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Download {
    /// The file.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// The first byte to send.
    #[serde(default)]
    pub start: u64,
    /// The most bytes to send; to the end of the file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

impl Download {
    /// A request for the whole file at `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self { path: path.into(), scope: Scope::default(), start: 0, length: None }
    }

    /// Fetches only these bytes; to the end of the file when no length is given.
    #[must_use]
    pub fn range(mut self, start: u64, length: Option<u64>) -> Self {
        (self.start, self.length) = (start, length);
        self
    }
}

impl Operation for Download {
    const NAME: &'static str = "download";
    const MUTATES: bool = false;
    type Output = DownloadOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(Some(&self.path))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }

    fn bytes(answer: &DownloadOutput, _: u64) -> Option<u64> {
        Some(answer.length)
    }
}

/// What is being sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DownloadOutput {
    /// The file's path: absolute, in the caller's view.
    pub path: RawPath,
    /// The file's size in bytes, when it was opened.
    pub size: u64,
    /// The first byte that is sent.
    pub start: u64,
    /// How many bytes are announced. A file that shrinks meanwhile sends fewer, which the receiver notices.
    pub length: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of the contents.
    pub modified: Time,
}
