//! Results of file operations.

use std::borrow::Cow;

use bytes::Bytes;
use podbay::RawPath;
use podbay::files::{
    self, DeleteOutput, EditOutput, Encoding, LineEndings, LsOutput, MkdirOutput, MoveOutput, PartialReason,
    ReadOutput, StatOutput, WriteOutput,
};

use super::{iterable, kind, nanoseconds, result_class, seconds};
use crate::conversions::SandboxPath;

fn name(path: &RawPath) -> SandboxPath {
    let bytes = path.as_bytes();
    let from = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    SandboxPath(bytes[from..].into())
}

result_class! {
    /// A page of a file.
    ReadResult((ReadOutput, Bytes)) as page, repr(path, encoding, size, start_line, end_line, next_offset) {
        /// The file's absolute path.
        path: SandboxPath = (&page.0.path).into(),
        /// The page as bytes.
        content: &[u8] = &page.1,
        /// The page as text. Invalid UTF-8 is replaced.
        text: Cow<'_, str> = String::from_utf8_lossy(&page.1),
        /// `utf-8`: lines joined by line feeds, without a trailing one. `binary`: the whole file.
        encoding: &'static str = match page.0.encoding {
            Encoding::Utf8 => "utf-8",
            Encoding::Binary => "binary",
        },
        /// Whether the file is empty.
        empty: bool = page.0.empty,
        /// Whether the request asked for no lines.
        no_lines_requested: bool = page.0.no_lines_requested,
        /// Whether the file counts as binary because of its extension alone.
        binary_by_extension: bool = page.0.binary_by_extension,
        /// The number of the page's first line; the file's first line is 1.
        start_line: Option<u64> = page.0.lines.map(|lines| lines.start_line),
        /// The number of the page's last complete line.
        end_line: Option<u64> = page.0.lines.map(|lines| lines.end_line),
        /// How many lines the file has, if they were counted.
        total_lines: Option<u64> = page.0.lines.and_then(|lines| lines.total_lines),
        /// The offset of the next page; None at the end of the file.
        next_offset: Option<u64> = page.0.lines.and_then(|lines| lines.next_offset),
        /// The offset of the first byte, if a byte range was requested.
        start: Option<u64> = page.0.bytes.map(|bytes| bytes.start),
        /// Whether the page ended because it was full.
        truncated: bool = page.0.truncated.is_some(),
        /// How many bytes at the end belong to an incomplete line, including the line break before it.
        partial_line_bytes: u64 = page.0.truncated.map_or(0, |cut| cut.partial_line_bytes),
        /// Whether even the first line is incomplete; only `read_bytes` can read the rest of it.
        first_line_cut: bool = page.0.truncated.is_some_and(|cut| cut.first_line_cut),
        /// The file's size in bytes.
        size: u64 = page.0.size,
        /// When the contents last changed: seconds since 1970.
        modified: f64 = seconds(page.0.modified),
        /// Permission bits.
        mode: u32 = page.0.mode,
    }

    /// The result of a write.
    WriteResult(WriteOutput) as written, repr(path, size, created) {
        /// The file's path; for a relocated artefact path, the real one.
        path: SandboxPath = (&written.path).into(),
        /// How many bytes were written.
        size: u64 = written.size,
        /// Whether the file is new.
        created: bool = written.created,
        /// Whether the file was overwritten in place instead of being replaced atomically.
        in_place: bool = written.in_place,
        /// Permission bits.
        mode: u32 = written.mode,
        /// When it was written: seconds since 1970.
        modified: f64 = seconds(written.modified),
    }

    /// The result of an edit.
    EditResult(EditOutput) as edited, repr(path, occurrences, first_line) {
        /// The file's path.
        path: SandboxPath = (&edited.path).into(),
        /// How many occurrences were replaced.
        occurrences: u64 = edited.occurrences,
        /// With which line endings the old text was found: `as_sent`, `crlf` or `lf`.
        line_endings: &'static str = match edited.line_endings {
            LineEndings::AsSent => "as_sent",
            LineEndings::Crlf => "crlf",
            LineEndings::Lf => "lf",
        },
        /// The line of the first occurrence; the first line is 1.
        first_line: u64 = edited.first_line,
        /// The file's new size in bytes.
        size: u64 = edited.size,
        /// Whether the file was overwritten in place instead of being replaced atomically.
        in_place: bool = edited.in_place,
    }

    /// Why a result is incomplete.
    Partial(files::Partial) as partial, repr(reason, detail) {
        /// `unreadable` or `budget`.
        reason: &'static str = match partial.reason {
            PartialReason::Budget => "budget",
            PartialReason::Unreadable => "unreadable",
            _ => "other",
        },
        /// One sentence for people.
        detail: &str = &partial.detail,
        /// How many files and directories couldn't be read.
        unreadable: u64 = partial.unreadable,
        /// Whether a limit was reached as well.
        limit_reached: bool = partial.limit_reached,
    }

    /// The contents of a directory.
    LsResult(LsOutput) as listing, repr(path, entries, partial) {
        /// The directory's path.
        path: SandboxPath = (&listing.path).into(),
        /// Its entries, sorted by name.
        entries: Vec<Entry> = listing.entries.iter().cloned().map(Entry).collect(),
        /// Set if there are more entries.
        partial: Option<Partial> = listing.partial.clone().map(Partial),
    }

    /// The result of a deletion.
    DeleteResult(DeleteOutput) as deleted, repr(path, kind, removed) {
        /// The path.
        path: SandboxPath = (&deleted.path).into(),
        /// What was deleted; None if nothing was there.
        kind: Option<&'static str> = deleted.kind.map(kind),
        /// How many files and directories were removed, at all levels.
        removed: u64 = deleted.removed,
    }

    /// The result of creating a directory.
    MkdirResult(MkdirOutput) as made, repr(path, created) {
        /// The directory's path.
        path: SandboxPath = (&made.path).into(),
        /// Whether the directory is new.
        created: bool = made.created,
    }

    /// The result of a move.
    MoveResult(MoveOutput) as moved, repr(source, target, kind, copied) {
        /// The old path.
        source: SandboxPath = (&moved.from).into(),
        /// The new path.
        target: SandboxPath = (&moved.to).into(),
        /// What was moved.
        kind: &'static str = kind(moved.kind),
        /// Whether it was copied, because the target is on another file system.
        copied: bool = moved.copied,
    }
}

/// Defines a class with the attributes that an entry of a listing and the result of `stat` share.
macro_rules! entry_class {
    ($(#[doc = $doc:literal])+ $class:ident($inner:ty) as $value:ident, entry $entry:expr,
     repr($($shown:ident),+) { $($rest:tt)* }) => {
        result_class! {
            $(#[doc = $doc])+
            $class($inner) as $value, repr($($shown),+) {
                /// Its path.
                path: SandboxPath = (&$entry.path).into(),
                /// The last component of its path.
                name: SandboxPath = name(&$entry.path),
                /// `file`, `dir`, `link`, …
                kind: &'static str = kind($entry.kind),
                /// Whether it is a directory. A link to a directory isn't.
                is_dir: bool = $entry.kind == files::Kind::Dir,
                /// Size in bytes.
                size: u64 = $entry.size,
                /// When the contents last changed: seconds since 1970.
                modified: f64 = seconds($entry.modified),
                /// The same in nanoseconds.
                modified_ns: i64 = nanoseconds($entry.modified),
                /// Permission bits.
                mode: u32 = $entry.mode,
                /// Where a symbolic link points.
                target: Option<SandboxPath> = $entry.link.as_ref().map(|link| (&link.target).into()),
                /// What a symbolic link points to; None if nothing is there.
                target_kind: Option<&'static str> = $entry.link.as_ref().and_then(|link| link.target_kind).map(kind),
                $($rest)*
            }
        }
    };
}

entry_class! {
    /// An entry of a directory.
    Entry(files::Entry) as entry, entry entry, repr(path, kind, size) {}
}

entry_class! {
    /// What is at a path.
    StatResult(StatOutput) as stat, entry stat.entry, repr(path, kind, size, mode, uid, gid) {
        /// The owner's user id.
        uid: u32 = stat.uid,
        /// The owner's group id.
        gid: u32 = stat.gid,
        /// How many hard links it has.
        links: u64 = stat.links,
        /// Its inode number.
        inode: u64 = stat.inode,
    }
}

iterable! {
    LsResult.entries: |listing| listing.entries.len();
}
