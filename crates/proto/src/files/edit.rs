//! Replacing text in a file.

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::{Operation, RawPath, Subject};

/// Replaces a literal text in a file. The payload is the old text followed by the new one.
///
/// The old text is searched for as sent, then with CRLF line ends, then with LF; the first form that occurs is
/// replaced by the new text in the same form. More than one occurrence is `string_not_unique` unless `replace_all` is set.
/// A file that someone else changes meanwhile is `conflict`, and stays as they left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Edit {
    /// The file.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// How many bytes of the payload are the old text.
    pub old_length: u64,
    /// How many bytes after it are the new text.
    pub new_length: u64,
    /// Replaces every occurrence.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub replace_all: bool,
    /// Accepts an empty old text for an empty file, which then gets the new text. Otherwise an empty old text is an error.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub fill_empty: bool,
}

impl Edit {
    /// A request and its payload.
    pub fn new(path: impl Into<RawPath>, old: &[u8], new: &[u8]) -> (Self, Vec<u8>) {
        let (old_length, new_length) = (old.len() as u64, new.len() as u64);
        (Self { old_length, new_length, ..Self::in_file(path) }, [old, new].concat())
    }

    /// A request to edit the file at `path`. The client fills in the lengths of the two texts.
    pub fn in_file(path: impl Into<RawPath>) -> Self {
        Self {
            path: path.into(),
            scope: Scope::default(),
            old_length: 0,
            new_length: 0,
            replace_all: false,
            fill_empty: false,
        }
    }

    /// Replaces every occurrence.
    #[must_use]
    pub fn replace_all(mut self) -> Self {
        self.replace_all = true;
        self
    }

    /// Accepts an empty old text for an empty file.
    #[must_use]
    pub fn fill_empty(mut self) -> Self {
        self.fill_empty = true;
        self
    }
}

impl Operation for Edit {
    const NAME: &'static str = "edit";
    const MUTATES: bool = true;
    type Output = EditOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Edit { path: &self.path, old_length: self.old_length }
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }

    fn bytes(answer: &EditOutput, _: u64) -> Option<u64> {
        Some(answer.size)
    }
}

/// In which form the old text was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineEndings {
    /// As it was sent.
    AsSent,
    /// With `\r\n` at its line ends.
    Crlf,
    /// With `\n` at its line ends.
    Lf,
}

/// What was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditOutput {
    /// The file's path: absolute, in the caller's view.
    pub path: RawPath,
    /// How many occurrences were replaced.
    pub occurrences: u64,
    /// In which form the old text was found.
    pub line_endings: LineEndings,
    /// The line of the first occurrence; the first line is 1.
    pub first_line: u64,
    /// The file's size now.
    pub size: u64,
    /// Whether the file was overwritten in place, not replaced atomically.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub in_place: bool,
}
