//! Searching.

use podbay::RawPath;
use podbay::files::{self, Glob, GlobOutput, Grep, GrepOutput, LineMatch};

use super::list::Partial;
use super::optional;
use crate::conversions::{SandboxPath, Seconds};
use crate::results::{Below, FileKind, iterable, kind, nanoseconds, registered, result_class, seconds};
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

sync_and_async! {
    impl Sandbox {
        /// Finds files by name. A pattern without '/' matches names at any depth; '**' matches any number of directories.
        ///
        /// budget: how many seconds the search may take (default 5); after that, `partial` is set and some matches may be missing.
        fn glob / aglob(
            inner, pattern: SandboxPath, path: Option<SandboxPath>, directories: bool, dots: bool, whole_path: bool,
            limit: u64, budget: Option<Seconds>,
        ) [
            pattern, path=None, *, directories=false, dots=false, whole_path=false, limit=10_000,
            budget=None
        ] -> GlobResult {
            let mut request =
                Glob { path: optional(path), directories, dots, whole_path, limit, ..Glob::new(pattern.0) };
            if let Some(budget) = budget {
                request.budget_ms = budget.milliseconds();
            }
            Ok(inner.open().await?.glob(request).await?.into())
        }

        /// Finds lines that contain a literal text.
        ///
        /// glob: search only files whose name matches. max_count: how many lines to return, over all files. exclude_dirs: names of
        /// directories to skip (default [".git"]). budget: how many seconds the search may take (default 15).
        fn grep / agrep(
            inner, pattern: String, path: Option<SandboxPath>, glob: Option<SandboxPath>, max_count: Option<u64>,
            exclude_dirs: Option<Vec<SandboxPath>>, budget: Option<Seconds>, max_line_bytes: u64,
        ) [
            pattern, path=None, glob=None, *, max_count=None, exclude_dirs=None, budget=None,
            max_line_bytes=100_000
        ] -> GrepResult {
            let mut request = Grep {
                path: optional(path), glob: optional(glob), max_count, max_line_bytes,
                ..Grep::new(pattern)
            };
            if let Some(budget) = budget {
                request.budget_ms = budget.milliseconds();
            }
            if let Some(dirs) = exclude_dirs {
                request.exclude_dirs = dirs.into_iter().map(|dir| dir.0).collect();
            }
            Ok(inner.open().await?.grep(request).await?.into())
        }
    }
}

result_class! {
    /// A file that matches a pattern.
    GlobMatch(Below<files::GlobMatch>) as matched, repr(path, kind, size) {
        /// Its absolute path.
        path: SandboxPath = SandboxPath(matched.join(&matched.found.path)),
        /// Its path relative to the directory that was searched.
        relative: SandboxPath = (&matched.found.path).into(),
        /// What it is; for a link, what the link points to.
        kind: FileKind = kind(matched.found.kind),
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
}

iterable! {
    GlobResult.matches: |found| found.matches.len();
    GrepResult.matches: |found| found.files.iter().map(|file| file.lines.len()).sum();
}

registered!(GlobMatch, GlobResult, GrepMatch, GrepResult);
