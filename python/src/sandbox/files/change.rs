//! Changing directories: deleting, creating and moving.

use podbay::files::{Delete, DeleteOutput, Mkdir, MkdirOutput, Move, MoveOutput};

use crate::conversions::SandboxPath;
use crate::results::{FileKind, kind, registered, result_class};
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

sync_and_async! {
    impl Sandbox {
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

result_class! {
    /// The result of a deletion.
    DeleteResult(DeleteOutput) as deleted, repr(path, kind, removed) {
        /// The path.
        path: SandboxPath = (&deleted.path).into(),
        /// What was deleted; None if nothing was there.
        kind: Option<FileKind> = deleted.kind.map(kind),
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
        kind: FileKind = kind(moved.kind),
        /// Whether it was copied, because the target is on another file system.
        copied: bool = moved.copied,
    }
}

registered!(DeleteResult, MkdirResult, MoveResult);
