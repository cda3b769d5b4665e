//! What searches return.

use podbay::RawPath;
use podbay::files::{GlobOutput, GrepOutput};
use pyo3::prelude::*;

use super::files::Partial;
use super::{iterable, kind, nanoseconds, seconds, shown};
use crate::text::PathText;

/// A file that a pattern matches.
#[pyclass(frozen, get_all, module = "podbay")]
#[derive(Clone)]
pub struct GlobMatch {
    /// Its path.
    path: PathText,
    /// Its path below the start.
    relative: PathText,
    /// A file or a directory; for a link, what it leads to.
    kind: &'static str,
    /// It is a link.
    is_link: bool,
    /// Bytes.
    size: u64,
    /// Last change of the contents: seconds since 1970.
    modified: f64,
    /// The same in nanoseconds.
    modified_ns: i64,
}

/// The files that a pattern matches.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct GlobResult {
    /// Where the search started.
    path: PathText,
    /// The matches, sorted by path.
    matches: Vec<GlobMatch>,
    /// Present when that may not be everything.
    partial: Option<Partial>,
}

impl From<GlobOutput> for GlobResult {
    fn from(output: GlobOutput) -> Self {
        let start = output.path;
        let matches = output.matches.into_iter().map(|found| GlobMatch {
            path: PathText(below(&start, &found.path)),
            relative: PathText(found.path),
            kind: kind(found.kind),
            is_link: found.is_link,
            size: found.size,
            modified: seconds(found.modified),
            modified_ns: nanoseconds(found.modified),
        });
        Self { matches: matches.collect(), path: PathText(start), partial: output.partial.map(Into::into) }
    }
}

fn below(start: &RawPath, path: &RawPath) -> RawPath {
    let mut whole = start.as_bytes().to_vec();
    if whole.last() != Some(&b'/') {
        whole.push(b'/');
    }
    whole.extend_from_slice(path.as_bytes());
    whole.into()
}

/// A line with the text that was looked for.
#[pyclass(frozen, get_all, module = "podbay")]
#[derive(Clone)]
pub struct GrepMatch {
    /// The file.
    path: PathText,
    /// The line's number; the first is 1.
    line: u64,
    /// The line without its end.
    text: String,
    /// The line is longer than this.
    cut: bool,
}

/// The lines with the text that was looked for.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct GrepResult {
    /// Where the search started.
    path: PathText,
    /// The lines, sorted by file and number.
    matches: Vec<GrepMatch>,
    /// How many there are.
    count: u64,
    /// How many files were searched.
    searched: u64,
    /// Present when that may not be everything.
    partial: Option<Partial>,
}

impl From<GrepOutput> for GrepResult {
    fn from(output: GrepOutput) -> Self {
        let matches = output.files.into_iter().flat_map(|file| {
            let path = PathText(file.path);
            file.lines.into_iter().map(move |line| GrepMatch {
                path: path.clone(),
                line: line.line,
                text: line.text,
                cut: line.cut,
            })
        });
        Self {
            matches: matches.collect(),
            path: PathText(output.path),
            count: output.count,
            searched: output.searched,
            partial: output.partial.map(Into::into),
        }
    }
}

shown! {
    GlobMatch: "path", "kind", "size";
    GlobResult: "path", "matches", "partial";
    GrepMatch: "path", "line", "text";
    GrepResult: "path", "matches", "searched", "partial";
}

iterable! {
    GlobResult.matches;
    GrepResult.matches;
}
