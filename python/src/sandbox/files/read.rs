//! Reading.

use std::borrow::Cow;

use bytes::Bytes;
use podbay::files::{ByteRange, Encoding, Read, ReadOutput};

use crate::conversions::{Content, SandboxPath};
use crate::results::{registered, result_class, seconds};
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

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
    }
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
        encoding: &'static str ["utf-8", "binary"] = match page.0.encoding {
            Encoding::Utf8 => "utf-8",
            Encoding::Binary => "binary",
        },
        /// Whether the file is empty.
        empty: bool = page.0.empty,
        /// Whether no lines were requested.
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
}

registered!(ReadResult);
