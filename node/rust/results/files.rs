//! Results of file operations with content. `src/files.ts` documents their fields, and has all other results.

use bytes::Bytes;
use napi::bindgen_prelude::{Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::files::{EditOutput, Encoding, LineEndings, ReadOutput, WriteOutput};

use super::moment;
use crate::conversions::{array, number, text};

/// A page of a file.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct ReadResult {
    pub path: Utf16String,
    pub content: Uint8Array,
    pub encoding: String,
    pub empty: bool,
    pub no_lines_requested: bool,
    pub binary_by_extension: bool,
    pub start_line: Option<i64>,
    pub end_line: Option<i64>,
    pub total_lines: Option<i64>,
    pub next_offset: Option<i64>,
    pub start: Option<i64>,
    pub truncated: bool,
    pub partial_line_bytes: i64,
    pub first_line_cut: bool,
    pub size: i64,
    pub modified: f64,
    pub mode: u32,
}

impl From<(ReadOutput, Bytes)> for ReadResult {
    fn from((page, content): (ReadOutput, Bytes)) -> Self {
        Self {
            path: text(&page.path),
            content: array(&content),
            encoding: match page.encoding {
                Encoding::Utf8 => "utf-8".to_owned(),
                Encoding::Binary => "binary".to_owned(),
            },
            empty: page.empty,
            no_lines_requested: page.no_lines_requested,
            binary_by_extension: page.binary_by_extension,
            start_line: page.lines.map(|lines| number(lines.start_line)),
            end_line: page.lines.map(|lines| number(lines.end_line)),
            total_lines: page.lines.and_then(|lines| lines.total_lines).map(number),
            next_offset: page.lines.and_then(|lines| lines.next_offset).map(number),
            start: page.bytes.map(|bytes| number(bytes.start)),
            truncated: page.truncated.is_some(),
            partial_line_bytes: page.truncated.map_or(0, |cut| number(cut.partial_line_bytes)),
            first_line_cut: page.truncated.is_some_and(|cut| cut.first_line_cut),
            size: number(page.size),
            modified: moment(page.modified),
            mode: page.mode,
        }
    }
}

/// The result of a write.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct WriteResult {
    pub path: Utf16String,
    pub size: i64,
    pub created: bool,
    pub in_place: bool,
    pub mode: u32,
    pub modified: f64,
}

impl From<WriteOutput> for WriteResult {
    fn from(written: WriteOutput) -> Self {
        Self {
            path: text(&written.path),
            size: number(written.size),
            created: written.created,
            in_place: written.in_place,
            mode: written.mode,
            modified: moment(written.modified),
        }
    }
}

/// The result of an edit.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct EditResult {
    pub path: Utf16String,
    pub occurrences: i64,
    pub line_endings: String,
    pub first_line: i64,
    pub size: i64,
    pub in_place: bool,
}

impl From<EditOutput> for EditResult {
    fn from(edited: EditOutput) -> Self {
        let line_endings = match edited.line_endings {
            LineEndings::AsSent => "as_sent",
            LineEndings::Crlf => "crlf",
            LineEndings::Lf => "lf",
        };
        Self {
            path: text(&edited.path),
            occurrences: number(edited.occurrences),
            line_endings: line_endings.to_owned(),
            first_line: number(edited.first_line),
            size: number(edited.size),
            in_place: edited.in_place,
        }
    }
}
