//! Operations on a sandbox's files.

use podbay::RawPath;
use podbay::files::{ByteRange, Delete, Download, Edit, Glob, Grep, Ls, Mkdir, Move, Read, Stat, Write};

use super::Sandbox;
use crate::results::files::{
    DeleteResult, EditResult, LsResult, MkdirResult, MoveResult, ReadResult, StatResult, WriteResult,
};
use crate::results::search::{GlobResult, GrepResult};
use crate::text::{Content, FileBytes, RemotePath, Seconds};
use crate::twins::twins;

fn optional(path: Option<RemotePath>) -> Option<RawPath> {
    path.map(|path| path.0)
}

twins! {
    impl Sandbox {
        /// Reads a page of a file: lines of text from an offset on, or a binary file whole.
        ///
        /// A page has at most max_bytes, of which reserve_bytes stay free for a notice of the caller's. What isn't text comes whole
        /// up to max_binary_bytes, and is too_large otherwise.
        fn read / aread(
            inner, path: RemotePath, offset: i64, limit: i64, max_bytes: u64, reserve_bytes: u64, max_binary_bytes: u64,
            binary_by_extension: bool, count_lines_up_to: u64,
        ) [
            path, offset=0, limit=2000, *, max_bytes=512_000, reserve_bytes=0, max_binary_bytes=512_000,
            binary_by_extension=true, count_lines_up_to=67_108_864
        ] -> ReadResult {
            let request = Read {
                offset, limit, max_bytes, reserve_bytes, max_binary_bytes, binary_by_extension, count_lines_up_to,
                ..Read::new(path.0)
            };
            Ok(inner.open().await?.guarded.read(&request).await?.into())
        }

        /// Reads a file's bytes, unchanged: all of them, or a range.
        fn read_bytes / aread_bytes(inner, path: RemotePath, start: u64, length: Option<u64>)
        [path, start=0, length=None] -> FileBytes {
            let guarded = &inner.open().await?.guarded;
            let content = if start == 0 && length.is_none() {
                guarded.download(&Download::new(path.0)).await?
            } else {
                let request = Read { bytes: Some(ByteRange { start, length }), ..Read::new(path.0) };
                guarded.read(&request).await?.1
            };
            Ok(FileBytes(content))
        }

        /// Creates or replaces a file at one stroke, and makes the directories above it.
        ///
        /// create_only: fails with AlreadyExists when there is something at the path.
        fn write / awrite(
            inner, path: RemotePath, content: Content, create_only: bool, parents: bool, mode: Option<u32>,
        ) [path, content, *, create_only=false, parents=true, mode=None] -> WriteResult {
            let request = Write { create_only, parents, mode, ..Write::new(path.0) };
            Ok(inner.open().await?.guarded.write(&request, content.0).await?.into())
        }

        /// Replaces a literal text in a file. It has to be there once, unless replace_all is set.
        fn edit / aedit(
            inner, path: RemotePath, old: Content, new: Content, replace_all: bool, fill_empty: bool,
        ) [path, old, new, *, replace_all=false, fill_empty=false] -> EditResult {
            let request = Edit { replace_all, fill_empty, ..Edit::in_file(path.0) };
            Ok(inner.open().await?.guarded.edit(request, &old.0, &new.0).await?.into())
        }

        /// Lists a directory, the working directory unless one is named: direct children, hidden ones too.
        fn ls / als(inner, path: Option<RemotePath>, limit: u64) [path=None, *, limit=100_000] -> LsResult {
            let request = Ls { path: optional(path), limit, ..Ls::new("") };
            Ok(inner.open().await?.guarded.ls(&request).await?.into())
        }

        /// Tells what is at a path. Links are followed unless follow is False.
        fn stat / astat(inner, path: RemotePath, follow: bool) [path, *, follow=true] -> StatResult {
            let request = Stat { follow, ..Stat::new(path.0) };
            Ok(inner.open().await?.guarded.stat(&request).await?.into())
        }

        /// Finds files by name. A pattern without '/' is compared with names at any depth, '**' stands for any directories.
        ///
        /// budget: the most seconds to take, 5 unless given; what is found by then comes with `partial`.
        fn glob / aglob(
            inner, pattern: RemotePath, path: Option<RemotePath>, directories: bool, dots: bool, whole_path: bool,
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
            Ok(inner.open().await?.guarded.glob(&request).await?.into())
        }

        /// Finds lines that contain a literal text.
        ///
        /// glob: only in files whose name matches. max_count: the most lines, all files together. exclude_dirs: names of directories
        /// that aren't entered, [".git"] unless given. budget: the most seconds to take,
        /// 15 unless given.
        fn grep / agrep(
            inner, pattern: String, path: Option<RemotePath>, glob: Option<RemotePath>, max_count: Option<u64>,
            exclude_dirs: Option<Vec<RemotePath>>, budget: Option<Seconds>, max_line_bytes: u64,
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
            Ok(inner.open().await?.guarded.grep(&request).await?.into())
        }

        /// Deletes a file, a link or a directory with all that is in it.
        fn delete / adelete(inner, path: RemotePath, recursive: bool, missing_ok: bool)
        [path, *, recursive=true, missing_ok=false] -> DeleteResult {
            let request = Delete { recursive, missing_ok, ..Delete::new(path.0) };
            Ok(inner.open().await?.guarded.delete(&request).await?.into())
        }

        /// Makes a directory, and those above it.
        fn mkdir / amkdir(inner, path: RemotePath, parents: bool, exist_ok: bool, mode: Option<u32>)
        [path, *, parents=true, exist_ok=true, mode=None] -> MkdirResult {
            let request = Mkdir { parents, exist_ok, mode, ..Mkdir::new(path.0) };
            Ok(inner.open().await?.guarded.mkdir(&request).await?.into())
        }

        /// Moves or renames. The target is the new path itself, also when a directory is there.
        fn r#move / amove(inner, source: RemotePath, target: RemotePath, overwrite: bool, parents: bool)
        [source, target, *, overwrite=false, parents=true] -> MoveResult {
            let request = Move { overwrite, parents, ..Move::new(source.0, target.0) };
            Ok(inner.open().await?.guarded.mv(request).await?.into())
        }
    }
}
