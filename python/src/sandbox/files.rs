//! File operations.

use podbay::RawPath;
use podbay::files::{ByteRange, Delete, Edit, Glob, Grep, Ls, Mkdir, Move, Read, Stat, Tree, Write};

use super::Sandbox;
use crate::conversions::{Content, SandboxPath, Seconds};
use crate::results::files::{
    DeleteResult, EditResult, LsResult, MkdirResult, MoveResult, ReadResult, StatResult, WriteResult,
};
use crate::results::search::{GlobResult, GrepResult, TreeResult};
use crate::sync_async::sync_and_async;

fn optional(path: Option<SandboxPath>) -> Option<RawPath> {
    path.map(|path| path.0)
}

sync_and_async! {
    impl Sandbox {
        /// Reads a page of a file: lines of text starting at an offset, or a whole binary file.
        ///
        /// A page has at most max_bytes, minus reserve_bytes that the caller wants to append. A binary file is returned whole up to
        /// max_binary_bytes; a larger one fails with the code too_large.
        fn read / aread(
            inner, path: SandboxPath, offset: i64, limit: i64, max_bytes: u64, reserve_bytes: u64, max_binary_bytes: u64,
            binary_by_extension: bool, count_lines_up_to: u64,
        ) [
            path, offset=0, limit=2000, *, max_bytes=512_000, reserve_bytes=0, max_binary_bytes=512_000,
            binary_by_extension=true, count_lines_up_to=67_108_864
        ] -> ReadResult {
            let request = Read {
                offset, limit, max_bytes, reserve_bytes, max_binary_bytes, binary_by_extension, count_lines_up_to,
                ..Read::new(path.0)
            };
            Ok(inner.open().await?.read(request).await?.into())
        }

        /// Reads a file's bytes unchanged, all of them or a range.
        fn read_bytes / aread_bytes(inner, path: SandboxPath, start: u64, length: Option<u64>)
        [path, start=0, length=None] -> Content {
            let sandbox = inner.open().await?;
            let content = if start == 0 && length.is_none() {
                sandbox.download(path.0).await?
            } else {
                let request = Read { bytes: Some(ByteRange { start, length }), ..Read::new(path.0) };
                sandbox.read(request).await?.1
            };
            Ok(Content(content))
        }

        /// Creates or replaces a file atomically, and creates missing parent directories.
        ///
        /// create_only: raise AlreadyExists if the path exists.
        fn write / awrite(
            inner, path: SandboxPath, content: Content, create_only: bool, parents: bool, mode: Option<u32>,
        ) [path, content, *, create_only=false, parents=true, mode=None] -> WriteResult {
            let request = Write { create_only, parents, mode, ..Write::new(path.0) };
            Ok(inner.open().await?.write(request, content.0).await?.into())
        }

        /// Replaces a literal text in a file. The text must occur exactly once, unless replace_all is set.
        fn edit / aedit(
            inner, path: SandboxPath, old: Content, new: Content, replace_all: bool, fill_empty: bool,
        ) [path, old, new, *, replace_all=false, fill_empty=false] -> EditResult {
            let request = Edit { replace_all, fill_empty, ..Edit::in_file(path.0) };
            Ok(inner.open().await?.edit(request, &old.0, &new.0).await?.into())
        }

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

        /// Deletes a file, a symbolic link, or a directory with its contents.
        fn delete / adelete(inner, path: SandboxPath, recursive: bool, missing_ok: bool)
        [path, *, recursive=true, missing_ok=false] -> DeleteResult {
            let request = Delete { recursive, missing_ok, ..Delete::new(path.0) };
            Ok(inner.open().await?.delete(request).await?.into())
        }

        /// Creates a directory and its missing parents.
        fn mkdir / amkdir(inner, path: SandboxPath, parents: bool, exist_ok: bool, mode: Option<u32>)
        [path, *, parents=true, exist_ok=true, mode=None] -> MkdirResult {
            let request = Mkdir { parents, exist_ok, mode, ..Mkdir::new(path.0) };
            Ok(inner.open().await?.mkdir(request).await?.into())
        }

        /// Moves or renames a file or directory. The target is the new path, even if it names an existing directory.
        fn r#move / amove(inner, source: SandboxPath, target: SandboxPath, overwrite: bool, parents: bool)
        [source, target, *, overwrite=false, parents=true] -> MoveResult {
            let request = Move { overwrite, parents, ..Move::new(source.0, target.0) };
            Ok(inner.open().await?.mv(request).await?.into())
        }
    }
}
