//! Writing.

use podbay::DEFAULT_OUTPUT_CAP;
use podbay::files::{Edit, EditOutput, LineEndings, Write, WriteOutput};

use crate::conversions::{Content, SandboxPath};
use crate::results::{registered, result_class, seconds};
use crate::sandbox::Sandbox;
use crate::sandbox::commands::exec_id;
use crate::sync_async::sync_and_async;

sync_and_async! {
    impl Sandbox {
        /// Creates or replaces a file atomically, and creates missing parent directories.
        ///
        /// create_only: raise AlreadyExists if the path exists.
        fn write / awrite(
            inner, path: SandboxPath, content: Content, create_only: bool, parents: bool, mode: Option<u32>,
        ) [path, content, *, create_only=false, parents=true, mode=None] -> WriteResult {
            let request = Write { create_only, parents, mode, ..Write::new(path.0) };
            Ok(inner.open().await?.write(request, content.0).await?.into())
        }

        /// Writes the output of a command that was run before to a file, without fetching it. If there are more than limit bytes (1 MiB),
        /// the beginning and the end are written, and gap between them.
        fn write_output_of / awrite_output_of(
            inner, path: SandboxPath, id: String, limit: Option<u64>, gap: Option<Content>,
        ) [path, id, *, limit=None, gap=None] -> WriteResult {
            let (limit, gap) = (limit.unwrap_or(DEFAULT_OUTPUT_CAP), gap.map(|gap| gap.0).unwrap_or_default());
            Ok(inner.open().await?.write_output_of(Write::new(path.0), exec_id(id)?, limit, gap).await?.into())
        }

        /// Replaces a literal text in a file. The text must occur exactly once, unless replace_all is set.
        fn edit / aedit(
            inner, path: SandboxPath, old: Content, new: Content, replace_all: bool, fill_empty: bool,
        ) [path, old, new, *, replace_all=false, fill_empty=false] -> EditResult {
            let request = Edit { replace_all, fill_empty, ..Edit::in_file(path.0) };
            Ok(inner.open().await?.edit(request, &old.0, &new.0).await?.into())
        }
    }
}

result_class! {
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
        /// How many line breaks a command's output had, as it was written.
        line_breaks: Option<u64> = written.line_breaks,
    }

    /// The result of an edit.
    EditResult(EditOutput) as edited, repr(path, occurrences, first_line) {
        /// The file's path.
        path: SandboxPath = (&edited.path).into(),
        /// How many occurrences were replaced.
        occurrences: u64 = edited.occurrences,
        /// With which line endings the old text was found: `as_sent`, `crlf` or `lf`.
        line_endings: &'static str ["as_sent", "crlf", "lf"] = match edited.line_endings {
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
}

registered!(EditResult, WriteResult);
