//! Listing: directories, trees, and single paths.

use podbay::RawPath;
use podbay::files::{self, Ls, LsOutput, PartialReason, Stat, StatOutput, Tree, TreeOutput};

use super::optional;
use crate::conversions::{SandboxPath, Seconds};
use crate::results::{Below, FileKind, iterable, kind, nanoseconds, registered, result_class, seconds};
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

sync_and_async! {
    impl Sandbox {
        /// Lists a directory (by default the working directory): its direct children, including hidden ones.
        fn ls / als(inner, path: Option<SandboxPath>, limit: u64) [path=None, *, limit=100_000] -> LsResult {
            let request = Ls { path: optional(path), limit, ..Ls::default() };
            Ok(inner.open().await?.ls(request).await?.into())
        }

        /// Returns what is at a path. Symbolic links are followed unless follow is False.
        fn stat / astat(inner, path: SandboxPath, follow: bool) [path, *, follow=true] -> StatResult {
            let request = Stat { follow, ..Stat::new(path.0) };
            Ok(inner.open().await?.stat(request).await?.into())
        }

        /// Lists everything below a directory (by default the working directory). Symbolic links aren't followed.
        ///
        /// max_depth: how many levels to descend. after: list only what sorts after this relative path, to continue a list whose
        /// `partial` is set. budget: how many seconds the walk may take (default 30).
        fn tree / atree(
            inner, path: Option<SandboxPath>, max_depth: Option<u32>, limit: u64, after: Option<SandboxPath>,
            budget: Option<Seconds>,
        ) [path=None, *, max_depth=None, limit=100_000, after=None, budget=None] -> TreeResult {
            let mut request = Tree { path: optional(path), max_depth, limit, after: optional(after), ..Tree::default() };
            if let Some(budget) = budget {
                request.budget_ms = budget.milliseconds();
            }
            Ok(inner.open().await?.tree(request).await?.into())
        }
    }
}

fn name(path: &RawPath) -> SandboxPath {
    let bytes = path.as_bytes();
    let from = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    SandboxPath(bytes[from..].into())
}

result_class! {
    /// Why a result is incomplete.
    Partial(files::Partial) as partial, repr(reason, detail) {
        /// `unreadable` or `budget`.
        reason: &'static str ["budget", "unreadable", "other"] = match partial.reason {
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

    /// An entry of a tree.
    TreeEntry(Below<files::TreeEntry>) as entry, repr(path, kind, size) {
        /// Its absolute path.
        path: SandboxPath = SandboxPath(entry.join(&entry.found.path)),
        /// Its path relative to the tree's directory.
        relative: SandboxPath = (&entry.found.path).into(),
        /// `file`, `dir`, `link`, …
        kind: FileKind = kind(entry.found.kind),
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
                kind: FileKind = kind($entry.kind),
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
                target_kind: Option<FileKind> = $entry.link.as_ref().and_then(|link| link.target_kind).map(kind),
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
    TreeResult.entries: |tree| tree.entries.len();
}

registered!(Entry, LsResult, Partial, StatResult, TreeEntry, TreeResult);
