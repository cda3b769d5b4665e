//! Reading a page of a file, and downloading a file.

mod media;
mod page;

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};

use podbay_proto::files::{ByteWindow, Download, DownloadOutput, Encoding, Kind, LineWindow, Read, ReadOutput};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::{OFlags, Stat};

use crate::identity::{kind_of, mode, modified, size};
use crate::resolve::{Access, Lookup};
use crate::resolved_path::ResolvedPath;
use crate::{FileContent, Files};

/// How much of a file decides whether it is text.
const SNIFFED: usize = 8192;

/// How much of a file is read into memory; more is left to the caller.
const IN_MEMORY: u64 = 1 << 20;

impl Files {
    /// Reads a page of a file.
    ///
    /// # Errors
    /// When the path can't be opened or isn't a regular file, when a binary file is larger than asked for, and when the
    /// offset is past the end.
    pub fn read(&self, request: &Read) -> Result<(ReadOutput, FileContent)> {
        self.open_read(request)?.read(request)
    }

    /// Opens the file that a request wants to read. A caller with other work to do checks its
    /// [size](OpenFile::size) before reading it.
    ///
    /// # Errors
    /// When the path can't be opened or isn't a regular file.
    pub fn open_read(&self, request: &Read) -> Result<OpenFile> {
        self.open_file(&request.path, &request.scope)
    }

    /// Opens a file for download, at the first requested byte and limited to the last.
    ///
    /// # Errors
    /// When the path can't be opened or isn't a regular file.
    pub fn open_download(&self, request: &Download) -> Result<(DownloadOutput, std::io::Take<File>)> {
        let OpenFile { resolved, mut file, stat } = self.open_file(&request.path, &request.scope)?;
        let size = size(&stat);
        let start = request.start.min(size);
        let length = (size - start).min(request.length.unwrap_or(u64::MAX));
        file.seek(SeekFrom::Start(start)).map_err(|error| resolved.error(error))?;
        let output =
            DownloadOutput { path: resolved.shown, size, start, length, mode: mode(&stat), modified: modified(&stat) };
        Ok((output, file.take(length)))
    }

    /// Opens a regular file for reading.
    fn open_file(&self, path: &podbay_proto::RawPath, scope: &podbay_proto::files::Scope) -> Result<OpenFile> {
        let resolver = self.resolver(scope)?;
        let resolved = resolver.allowed(path, Lookup { follow: true, parents: false }, Access::Read)?;
        // Checked before it is opened: opening a device can have effects, and opening a pipe waits for a writer.
        expect_file(&resolved, &resolved.stat()?)?;
        let file = resolved.open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&file).map_err(|error| resolved.error(error))?;
        expect_file(&resolved, &stat)?;
        Ok(OpenFile { resolved, file: file.into(), stat })
    }
}

/// A regular file that was opened for reading.
#[derive(Debug)]
pub struct OpenFile {
    resolved: ResolvedPath,
    file: File,
    stat: Stat,
}

impl OpenFile {
    /// Its size when it was opened. The kernel's files, such as those in `/proc`, have no size, whatever they contain.
    pub fn size(&self) -> u64 {
        size(&self.stat)
    }

    /// Reads the page that the request asks for.
    ///
    /// # Errors
    /// When the file can't be read, when a binary file is larger than asked for, and when the offset is past the end.
    pub fn read(self, request: &Read) -> Result<(ReadOutput, FileContent)> {
        let Self { resolved, mut file, stat } = self;
        let mut output = ReadOutput {
            path: resolved.shown.clone(),
            encoding: Encoding::Binary,
            empty: false,
            no_lines_requested: false,
            binary_by_extension: false,
            lines: None,
            bytes: None,
            truncated: None,
            size: size(&stat),
            modified: modified(&stat),
            mode: mode(&stat),
        };
        if let Some(range) = request.bytes {
            let start = range.start.min(output.size);
            let length = (output.size - start).min(range.length.unwrap_or(u64::MAX));
            output.bytes = Some(ByteWindow { start, length });
            let content = part(file, start, length).map_err(|error| resolved.error(error))?;
            return Ok((output, content));
        }
        // One more than there is, so that the end is noticed without growing the buffer.
        let mut head = Vec::with_capacity(output.size.min(SNIFFED as u64) as usize + 1);
        (&mut file).take(SNIFFED as u64).read_to_end(&mut head).map_err(|error| resolved.error(error))?;
        // Files of the kernel have content but no size, so what counts is what can be read.
        if head.is_empty() {
            output.empty = true;
            output.encoding = Encoding::Utf8;
            return Ok((output, FileContent::Bytes(Vec::new())));
        }
        output.binary_by_extension = request.binary_by_extension && media::is_binary(request.path.as_bytes());
        if output.binary_by_extension || !page::is_text(&head) {
            return whole(&resolved, file, output, request.max_binary_bytes);
        }
        if request.limit <= 0 {
            output.no_lines_requested = true;
            output.encoding = Encoding::Utf8;
            return Ok((output, FileContent::Bytes(Vec::new())));
        }
        let offset = request.offset.max(0).unsigned_abs();
        let wanted = page::Wanted {
            offset,
            limit: request.limit.unsigned_abs(),
            bytes: request.max_bytes.saturating_sub(request.reserve_bytes).min(page::MOST),
            count: output.size <= request.count_lines_up_to,
        };
        let page = page::read(&head, &mut file, &wanted).map_err(|error| resolved.error(error))?;
        if std::str::from_utf8(&page.text).is_err() {
            return whole(&resolved, file, output, request.max_binary_bytes);
        }
        if page.complete_lines == 0 && page.truncated.is_none() {
            let lines = page.seen_lines;
            let message = format!("offset {offset} is past the end of the file, which has {lines} lines");
            return Err(Error::at(ErrorCode::OffsetPastEnd, &resolved.asked, message).with_count(lines));
        }
        // A first line that doesn't fit counts as read, so that the next page doesn't start with it again.
        let end_line = offset + page.complete_lines.max(1);
        let next_offset = page.total_lines.is_none_or(|total| end_line < total).then_some(end_line);
        let total_lines = page.total_lines;
        output.lines = Some(LineWindow { start_line: offset + 1, end_line, total_lines, next_offset });
        output.truncated = page.truncated;
        output.encoding = Encoding::Utf8;
        Ok((output, FileContent::Bytes(page.text)))
    }
}

/// An error unless it is a regular file.
pub(crate) fn expect_file(resolved: &ResolvedPath, stat: &Stat) -> Result<()> {
    match kind_of(stat) {
        Kind::File => Ok(()),
        Kind::Dir => Err(resolved.error(rustix::io::Errno::ISDIR)),
        Kind::Link => Err(resolved.error(rustix::io::Errno::LOOP)),
        _ => Err(resolved.error(rustix::io::Errno::NXIO)),
    }
}

/// Reads a binary file as a whole.
fn whole(
    resolved: &ResolvedPath,
    mut file: File,
    mut output: ReadOutput,
    most: u64,
) -> Result<(ReadOutput, FileContent)> {
    let size = file.metadata().map_err(|error| resolved.error(error))?.len();
    if size > most {
        let message =
            format!("is a binary file of {size} bytes; at most {most} bytes of a binary file are read at once");
        return Err(Error::at(ErrorCode::TooLarge, &resolved.asked, message).with_count(size));
    }
    output.encoding = Encoding::Binary;
    output.size = size;
    file.rewind().map_err(|error| resolved.error(error))?;
    let content = part(file, 0, size).map_err(|error| resolved.error(error))?;
    Ok((output, content))
}

fn part(mut file: File, start: u64, length: u64) -> std::io::Result<FileContent> {
    file.seek(SeekFrom::Start(start))?;
    let content = FileContent::File(file.take(length));
    if length > IN_MEMORY {
        return Ok(content);
    }
    Ok(FileContent::Bytes(content.into_bytes()?))
}
