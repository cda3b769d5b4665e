//! What file operations return.

use bytes::Bytes;
use podbay::RawPath;
use podbay::files::{
    self, DeleteOutput, EditOutput, Encoding, LineEndings, LsOutput, MkdirOutput, MoveOutput, PartialReason,
    ReadOutput, StatOutput, WriteOutput,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{iterable, kind, nanoseconds, seconds, shown};
use crate::text::PathText;

/// A page of a file.
#[pyclass(frozen, module = "podbay")]
pub struct ReadResult {
    output: ReadOutput,
    content: Bytes,
}

impl From<(ReadOutput, Bytes)> for ReadResult {
    fn from((output, content): (ReadOutput, Bytes)) -> Self {
        Self { output, content }
    }
}

#[pymethods]
impl ReadResult {
    /// The file's path: absolute, in the caller's view.
    #[getter]
    fn path(&self) -> PathText {
        (&self.output.path).into()
    }

    /// What was read, as bytes.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.content)
    }

    /// What was read, as text. What isn't UTF-8 is replaced.
    #[getter]
    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }

    /// `utf-8`: lines joined by a line feed, without one at the end. `binary`: the whole file.
    #[getter]
    fn encoding(&self) -> &'static str {
        match self.output.encoding {
            Encoding::Utf8 => "utf-8",
            Encoding::Binary => "binary",
        }
    }

    /// The file has no bytes.
    #[getter]
    fn empty(&self) -> bool {
        self.output.empty
    }

    /// No lines were asked for.
    #[getter]
    fn no_lines_requested(&self) -> bool {
        self.output.no_lines_requested
    }

    /// It counts as binary by its extension alone.
    #[getter]
    fn binary_by_extension(&self) -> bool {
        self.output.binary_by_extension
    }

    /// The first line here; the file's first is 1.
    #[getter]
    fn start_line(&self) -> Option<u64> {
        self.output.lines.map(|lines| lines.start_line)
    }

    /// The last complete line here.
    #[getter]
    fn end_line(&self) -> Option<u64> {
        self.output.lines.map(|lines| lines.end_line)
    }

    /// All lines of the file, where they were counted.
    #[getter]
    fn total_lines(&self) -> Option<u64> {
        self.output.lines?.total_lines
    }

    /// The offset of the next page; None at the end of the file.
    #[getter]
    fn next_offset(&self) -> Option<u64> {
        self.output.lines?.next_offset
    }

    /// The first byte here, when a range of bytes was asked for.
    #[getter]
    fn start(&self) -> Option<u64> {
        self.output.bytes.map(|bytes| bytes.start)
    }

    /// The page ended because it was full.
    #[getter]
    fn truncated(&self) -> bool {
        self.output.truncated.is_some()
    }

    /// How many bytes at the end belong to a line that isn't complete, the line break before it included.
    #[getter]
    fn partial_line_bytes(&self) -> u64 {
        self.output.truncated.map_or(0, |cut| cut.partial_line_bytes)
    }

    /// Not even the first line is complete: its rest is reached by `read_bytes` only.
    #[getter]
    fn first_line_cut(&self) -> bool {
        self.output.truncated.is_some_and(|cut| cut.first_line_cut)
    }

    /// The file's size in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.output.size
    }

    /// Last change of the contents: seconds since 1970.
    #[getter]
    fn modified(&self) -> f64 {
        seconds(self.output.modified)
    }

    /// Permission bits.
    #[getter]
    fn mode(&self) -> u32 {
        self.output.mode
    }
}

/// What was written.
#[pyclass(frozen, get_all, module = "podbay")]
#[derive(Clone)]
pub struct WriteResult {
    /// The file's path. A re-rooted artefact has its real path here.
    path: PathText,
    /// Bytes written.
    size: u64,
    /// There was no such file before.
    created: bool,
    /// The file was overwritten in place, not replaced at one stroke.
    in_place: bool,
    /// Permission bits.
    mode: u32,
    /// The time of the write: seconds since 1970.
    modified: f64,
}

impl From<WriteOutput> for WriteResult {
    fn from(output: WriteOutput) -> Self {
        Self {
            path: PathText(output.path),
            size: output.size,
            created: output.created,
            in_place: output.in_place,
            mode: output.mode,
            modified: seconds(output.modified),
        }
    }
}

/// What was replaced.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct EditResult {
    /// The file's path.
    path: PathText,
    /// How many occurrences were replaced.
    occurrences: u64,
    /// In which form the old text was found: `as_sent`, `crlf` or `lf`.
    line_endings: &'static str,
    /// The line of the first occurrence; the first line is 1.
    first_line: u64,
    /// The file's size now.
    size: u64,
    /// The file was overwritten in place, not replaced at one stroke.
    in_place: bool,
}

impl From<EditOutput> for EditResult {
    fn from(output: EditOutput) -> Self {
        Self {
            path: PathText(output.path),
            occurrences: output.occurrences,
            line_endings: match output.line_endings {
                LineEndings::AsSent => "as_sent",
                LineEndings::Crlf => "crlf",
                LineEndings::Lf => "lf",
            },
            first_line: output.first_line,
            size: output.size,
            in_place: output.in_place,
        }
    }
}

/// Why a result isn't complete.
#[pyclass(frozen, get_all, module = "podbay")]
#[derive(Clone)]
pub struct Partial {
    /// `unreadable` or `budget`.
    reason: &'static str,
    /// One sentence for people.
    detail: String,
    /// How many directories and files couldn't be read.
    unreadable: u64,
    /// Whether a limit was reached as well.
    limit_reached: bool,
}

impl From<files::Partial> for Partial {
    fn from(partial: files::Partial) -> Self {
        Self {
            reason: match partial.reason {
                PartialReason::Budget => "budget",
                PartialReason::Unreadable => "unreadable",
                _ => "other",
            },
            detail: partial.detail,
            unreadable: partial.unreadable,
            limit_reached: partial.limit_reached,
        }
    }
}

fn name(path: &RawPath) -> PathText {
    let bytes = path.as_bytes();
    let from = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    PathText(bytes[from..].into())
}

/// The attributes that an entry of a listing and the result of `stat` share.
macro_rules! entry_class {
    ($class:ident, $doc:literal, $entry:ident => $get:expr, $holds:ty) => {
        #[doc = $doc]
        #[pyclass(frozen, module = "podbay")]
        #[derive(Clone)]
        pub struct $class($holds);

        impl $class {
            fn entry(&self) -> &files::Entry {
                let $entry = &self.0;
                $get
            }
        }

        #[pymethods]
        impl $class {
            /// Its path.
            #[getter]
            fn path(&self) -> PathText {
                (&self.entry().path).into()
            }

            /// The last part of its path.
            #[getter]
            fn name(&self) -> PathText {
                name(&self.entry().path)
            }

            /// `file`, `dir`, `link`, …
            #[getter]
            fn kind(&self) -> &'static str {
                kind(self.entry().kind)
            }

            /// Whether it is a directory. A link to one isn't.
            #[getter]
            fn is_dir(&self) -> bool {
                self.entry().kind == files::Kind::Dir
            }

            /// Bytes.
            #[getter]
            fn size(&self) -> u64 {
                self.entry().size
            }

            /// Last change of the contents: seconds since 1970.
            #[getter]
            fn modified(&self) -> f64 {
                seconds(self.entry().modified)
            }

            /// The same in nanoseconds.
            #[getter]
            fn modified_ns(&self) -> i64 {
                nanoseconds(self.entry().modified)
            }

            /// Permission bits.
            #[getter]
            fn mode(&self) -> u32 {
                self.entry().mode
            }

            /// A link's text.
            #[getter]
            fn target(&self) -> Option<PathText> {
                self.entry().link.as_ref().map(|link| (&link.target).into())
            }

            /// What stands at a link's end; None when there is nothing.
            #[getter]
            fn target_kind(&self) -> Option<&'static str> {
                self.entry().link.as_ref()?.target_kind.map(kind)
            }
        }
    };
}

entry_class!(Entry, "One name in a directory.", entry => entry, files::Entry);
entry_class!(StatResult, "What is at a path.", stat => &stat.entry, StatOutput);

impl From<StatOutput> for StatResult {
    fn from(output: StatOutput) -> Self {
        Self(output)
    }
}

#[pymethods]
impl StatResult {
    /// The owner's id.
    #[getter]
    fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group's id.
    #[getter]
    fn gid(&self) -> u32 {
        self.0.gid
    }

    /// How many names it has.
    #[getter]
    fn links(&self) -> u64 {
        self.0.links
    }

    /// The number of the file in its file system.
    #[getter]
    fn inode(&self) -> u64 {
        self.0.inode
    }
}

/// What is in a directory.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct LsResult {
    /// The directory's path.
    path: PathText,
    /// Its children, sorted by name.
    entries: Vec<Entry>,
    /// Present when there are more.
    partial: Option<Partial>,
}

impl From<LsOutput> for LsResult {
    fn from(output: LsOutput) -> Self {
        Self {
            path: PathText(output.path),
            entries: output.entries.into_iter().map(Entry).collect(),
            partial: output.partial.map(Into::into),
        }
    }
}

/// What was deleted.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct DeleteResult {
    /// The path.
    path: PathText,
    /// What it was; None when nothing was there.
    kind: Option<&'static str>,
    /// How many names were removed, all levels together.
    removed: u64,
}

impl From<DeleteOutput> for DeleteResult {
    fn from(output: DeleteOutput) -> Self {
        Self { path: PathText(output.path), kind: output.kind.map(kind), removed: output.removed }
    }
}

/// A directory that was wanted.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct MkdirResult {
    /// Its path.
    path: PathText,
    /// Whether it wasn't there before.
    created: bool,
}

impl From<MkdirOutput> for MkdirResult {
    fn from(output: MkdirOutput) -> Self {
        Self { path: PathText(output.path), created: output.created }
    }
}

/// What was moved.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct MoveResult {
    /// The old path.
    source: PathText,
    /// The new path.
    target: PathText,
    /// What it is.
    kind: &'static str,
    /// It went to another file system, so it was copied.
    copied: bool,
}

impl From<MoveOutput> for MoveResult {
    fn from(output: MoveOutput) -> Self {
        Self {
            source: PathText(output.from),
            target: PathText(output.to),
            kind: kind(output.kind),
            copied: output.copied,
        }
    }
}

shown! {
    ReadResult: "path", "encoding", "size", "start_line", "end_line", "next_offset";
    WriteResult: "path", "size", "created";
    EditResult: "path", "occurrences", "first_line";
    Partial: "reason", "detail";
    Entry: "path", "kind", "size";
    StatResult: "path", "kind", "size", "mode", "uid", "gid";
    LsResult: "path", "entries", "partial";
    DeleteResult: "path", "kind", "removed";
    MkdirResult: "path", "created";
    MoveResult: "source", "target", "kind", "copied";
}

iterable! {
    LsResult.entries;
}
