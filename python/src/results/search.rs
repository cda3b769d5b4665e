//! Results of glob, grep and tree.

use podbay::RawPath;
use podbay::files::{self, GlobOutput, GrepOutput, LineMatch, TreeOutput};

use super::files::Partial;
use super::{Below, iterable, kind, nanoseconds, result_class, seconds};
use crate::conversions::SandboxPath;

result_class! {
    /// A file that matches a pattern.
    GlobMatch(Below<files::GlobMatch>) as matched, repr(path, kind, size) {
        /// Its absolute path.
        path: SandboxPath = SandboxPath(matched.join(&matched.found.path)),
        /// Its path relative to the directory that was searched.
        relative: SandboxPath = (&matched.found.path).into(),
        /// What it is; for a link, what the link points to.
        kind: &'static str = kind(matched.found.kind),
        /// Whether it is a symbolic link.
        is_link: bool = matched.found.is_link,
        /// Size in bytes.
        size: u64 = matched.found.size,
        /// When the contents last changed: seconds since 1970.
        modified: f64 = seconds(matched.found.modified),
        /// The same in nanoseconds.
        modified_ns: i64 = nanoseconds(matched.found.modified),
    }

    /// The files that match a pattern.
    GlobResult(GlobOutput) as found, repr(path, matches, partial) {
        /// The directory that was searched.
        path: SandboxPath = (&found.path).into(),
        /// The matches, sorted by path.
        matches: Vec<GlobMatch> = Below::all(&found.path, &found.matches).into_iter().map(GlobMatch).collect(),
        /// Set if matches may be missing.
        partial: Option<Partial> = found.partial.clone().map(Into::into),
    }

    /// A line that contains the text.
    GrepMatch((RawPath, LineMatch)) as matched, repr(path, line, text) {
        /// The file.
        path: SandboxPath = (&matched.0).into(),
        /// The line's number; the first is 1.
        line: u64 = matched.1.line,
        /// The line, without its line break.
        text: &str = &matched.1.text,
        /// Whether the line is longer than `text`.
        cut: bool = matched.1.cut,
    }

    /// The lines that contain the text.
    GrepResult(GrepOutput) as found, repr(path, matches, searched, partial) {
        /// The directory or file that was searched.
        path: SandboxPath = (&found.path).into(),
        /// The lines, sorted by file and number.
        matches: Vec<GrepMatch> = found
            .files
            .iter()
            .flat_map(|file| file.lines.iter().map(|line| GrepMatch((file.path.clone(), line.clone()))))
            .collect(),
        /// How many lines were found.
        count: u64 = found.count,
        /// How many files were searched.
        searched: u64 = found.searched,
        /// Set if matches may be missing.
        partial: Option<Partial> = found.partial.clone().map(Into::into),
    }

    /// An entry of a tree.
    TreeEntry(Below<files::TreeEntry>) as entry, repr(path, kind, size) {
        /// Its absolute path.
        path: SandboxPath = SandboxPath(entry.join(&entry.found.path)),
        /// Its path relative to the tree's directory.
        relative: SandboxPath = (&entry.found.path).into(),
        /// `file`, `dir`, `link`, …
        kind: &'static str = kind(entry.found.kind),
        /// Size in bytes.
        size: u64 = entry.found.size,
        /// When the contents last changed: seconds since 1970.
        modified: f64 = seconds(entry.found.modified),
        /// The same in nanoseconds.
        modified_ns: i64 = nanoseconds(entry.found.modified),
        /// Permission bits.
        mode: u32 = entry.found.mode,
        /// Where a symbolic link points.
        target: Option<SandboxPath> = entry.found.target.as_ref().map(Into::into),
    }

    /// Everything below a directory.
    TreeResult(TreeOutput) as tree, repr(path, entries, partial) {
        /// The directory's path.
        path: SandboxPath = (&tree.path).into(),
        /// The entries, sorted by path, a directory before its contents.
        entries: Vec<TreeEntry> = Below::all(&tree.path, &tree.entries).into_iter().map(TreeEntry).collect(),
        /// Set if there are more entries.
        partial: Option<Partial> = tree.partial.clone().map(Into::into),
    }
}

iterable! {
    GlobResult.matches: |found| found.matches.len();
    GrepResult.matches: |found| found.files.iter().map(|file| file.lines.len()).sum();
    TreeResult.entries: |tree| tree.entries.len();
}
