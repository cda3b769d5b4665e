//! Reading a page of a file.

use serde::{Deserialize, Serialize};

use super::{Scope, Time};
use crate::{Operation, RawPath, Subject};

/// Reads a page of a file: whole lines, or a range of bytes. The content is the answer's payload.
///
/// In this order: anything but a regular file is an error; an empty file is [`ReadOutput::empty`]; a file that isn't text,
/// by its extension or its first 8 KiB, is returned whole as [`Encoding::Binary`] (or is the error `too_large`); a `limit`
/// of zero or less returns no lines; an offset past the end is `offset_past_end`, with the number of lines in
/// [`Error::count`](crate::Error::count).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Read {
    /// The file.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// How many lines to skip. A negative number skips none.
    #[serde(default, deserialize_with = "super::number::saturating")]
    pub offset: i64,
    /// The most lines to return; none if zero or less.
    #[serde(default = "default_limit", deserialize_with = "super::number::saturating")]
    pub limit: i64,
    /// Reads this range of bytes unchanged, whatever the file's lines and encoding are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteRange>,
    /// The most bytes of text in one page.
    #[serde(default = "default_page")]
    pub max_bytes: u64,
    /// How many bytes of `max_bytes` to leave free for a notice that the caller appends, whether the page overflows or not.
    #[serde(default)]
    pub reserve_bytes: u64,
    /// The largest file that is returned whole when it isn't text.
    #[serde(default = "default_page")]
    pub max_binary_bytes: u64,
    /// Treats images, sound, video and documents as binary by their extension, whatever their content.
    #[serde(default = "super::yes")]
    pub binary_by_extension: bool,
    /// Counts all lines of files up to this size, for `total_lines`.
    #[serde(default = "default_count")]
    pub count_lines_up_to: u64,
}

fn default_limit() -> i64 {
    2000
}

fn default_page() -> u64 {
    Read::PAGE
}

fn default_count() -> u64 {
    64 << 20
}

impl Read {
    /// The default size of a page, and of the largest binary file that is returned whole.
    pub const PAGE: u64 = 512_000;

    /// A request for the first page of the file at `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self {
            path: path.into(),
            scope: Scope::default(),
            offset: 0,
            limit: default_limit(),
            bytes: None,
            max_bytes: default_page(),
            reserve_bytes: 0,
            max_binary_bytes: default_page(),
            binary_by_extension: true,
            count_lines_up_to: default_count(),
        }
    }

    /// Skips `offset` lines and returns at most `limit`.
    #[must_use]
    pub fn lines(mut self, offset: i64, limit: i64) -> Self {
        (self.offset, self.limit) = (offset, limit);
        self
    }

    /// Reads these bytes unchanged; to the end of the file when no length is given.
    #[must_use]
    pub fn range(mut self, start: u64, length: Option<u64>) -> Self {
        self.bytes = Some(ByteRange { start, length });
        self
    }
}

impl Operation for Read {
    const NAME: &'static str = "read";
    const MUTATES: bool = false;
    type Output = ReadOutput;

    fn subject(&self) -> Subject<'_> {
        Subject::Path(Some(&self.path))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }

    fn bytes(_: &ReadOutput, payload: u64) -> Option<u64> {
        Some(payload)
    }
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByteRange {
    /// The first byte.
    #[serde(default)]
    pub start: u64,
    /// How many bytes; to the end when absent. A range that reaches past the end is cut there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// What the payload of a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Text in UTF-8.
    Utf8,
    /// Any bytes.
    Binary,
}

/// Which lines a page has. The first line is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineWindow {
    /// The first line.
    pub start_line: u64,
    /// The last complete line; the first line if not even that is complete.
    pub end_line: u64,
    /// How many lines the file has, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
    /// The offset of the next page; absent at the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
}

/// Which bytes the payload has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByteWindow {
    /// The first byte.
    pub start: u64,
    /// The number of bytes.
    pub length: u64,
}

/// A page that reached its size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Truncation {
    /// How many bytes at the payload's end belong to a line that isn't complete, the line break before it included.
    pub partial_line_bytes: u64,
    /// Whether not even the first line is complete: only a range of bytes reaches the rest of it.
    pub first_line_cut: bool,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadOutput {
    /// The file's path: absolute, in the caller's view.
    pub path: RawPath,
    /// What the payload is.
    pub encoding: Encoding,
    /// Whether the file is empty.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub empty: bool,
    /// Whether no lines were requested.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub no_lines_requested: bool,
    /// Whether it is binary only by its extension.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub binary_by_extension: bool,
    /// Which lines the payload has. They are joined by `\n`, whatever ended them in the file, without one at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineWindow>,
    /// Which bytes the payload has, if a range of bytes was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteWindow>,
    /// Present when the page ended because it was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncation>,
    /// The file's size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Time,
    /// Permission bits.
    pub mode: u32,
}
