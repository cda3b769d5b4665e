//! A command's output on disk: bounded, readable as a file, and readable from any offset with its streams told apart.
//!
//! The output stands in segments, files named by their first offset: `output` for the first 16 MiB, then `output.OFFSET` of
//! 2 MiB each, of which the last 48 MiB are kept. A segment with standard error in it has an index beside it,
//! `index.OFFSET`: the lengths of the runs in it, as variable-length numbers whose lowest bit is the stream. Without an
//! index all is standard output, so that the common case writes one file.
//!
//! A segment's size counts its index, so that a command which changes the stream with every byte stays in bounds too.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use podbay_proto::exec::Stream;
use rustix::fs::{Mode, OFlags};

/// The first segment, which bears the log's name.
pub const HEAD: &str = "output";

/// How much of the beginning is kept.
pub const HEAD_BYTES: u64 = 16 << 20;

/// How much of the end is kept.
pub const TAIL_BYTES: u64 = 48 << 20;

/// How large a segment of the tail becomes.
pub const SEGMENT_BYTES: u64 = 2 << 20;

/// The most that one call appends.
pub const CHUNK: usize = 64 << 10;

#[derive(Debug, Clone)]
struct Segment {
    start: u64,
    length: u64,
    /// Data and index together.
    size: u64,
    indexed: bool,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.length
    }

    fn data_name(&self) -> String {
        if self.start == 0 { HEAD.to_owned() } else { format!("{HEAD}.{:015}", self.start) }
    }

    fn index_name(&self) -> String {
        format!("index.{:015}", self.start)
    }
}

/// What one step of reading gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of one stream.
    Data(Stream, Vec<u8>),
    /// That many bytes are gone.
    Lost(u64),
}

/// The segments of one log: what can be read of it.
#[derive(Debug)]
pub struct Log {
    dir: OwnedFd,
    segments: VecDeque<Segment>,
    end: u64,
}

/// A reader's place in a log.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The offset of the next byte.
    pub offset: u64,
    open: Option<OpenSegment>,
}

impl Cursor {
    /// A place at an offset.
    pub fn at(offset: u64) -> Self {
        Self { offset, open: None }
    }
}

#[derive(Debug)]
struct OpenSegment {
    start: u64,
    data: File,
    index: Option<io::BufReader<File>>,
    run: (Stream, u64),
}

impl Log {
    /// The log in a command's directory, as it stands.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn open(dir: OwnedFd) -> io::Result<Self> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut indexes = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir.as_fd())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
            let start = if name == HEAD { Some(0) } else { number("output.") };
            if let Some(start) = start {
                let length = rustix::fs::statat(&dir, entry.file_name(), rustix::fs::AtFlags::empty())?.st_size as u64;
                segments.push(Segment { start, length, size: length, indexed: false });
            } else if let Some(start) = number("index.") {
                indexes.push(start);
            }
        }
        segments.sort_by_key(|segment| segment.start);
        for segment in &mut segments {
            segment.indexed = indexes.contains(&segment.start);
        }
        let end = segments.last().map_or(0, Segment::end);
        Ok(Self { dir, segments: segments.into(), end })
    }

    /// How many bytes were printed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Extends the end over bytes that were printed and not kept.
    pub fn extend_to(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// How many of them are gone.
    pub fn dropped(&self) -> u64 {
        self.end - self.segments.iter().map(|segment| segment.length).sum::<u64>()
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let mode = Mode::from_raw_mode(0o600);
        Ok(File::from(rustix::fs::openat(&self.dir, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?))
    }

    /// Reads at most `most` bytes at the cursor and moves it; nothing at the end.
    ///
    /// # Errors
    /// When a segment can't be read.
    pub fn read(&self, cursor: &mut Cursor, most: usize) -> io::Result<Option<Piece>> {
        if cursor.offset >= self.end {
            return Ok(None);
        }
        let Some(segment) = self.segments.iter().find(|segment| segment.end() > cursor.offset) else {
            return Ok(Some(Self::lose(cursor, self.end)));
        };
        if segment.start > cursor.offset {
            return Ok(Some(Self::lose(cursor, segment.start)));
        }
        if cursor.open.as_ref().is_none_or(|open| open.start != segment.start) {
            let data = match self.open_file(&segment.data_name(), OFlags::RDONLY) {
                Ok(data) => data,
                // Another command's log made room by taking this one's.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some(Self::lose(cursor, segment.end())));
                }
                Err(error) => return Err(error),
            };
            cursor.open = Some(OpenSegment { start: segment.start, data, index: None, run: (Stream::Stdout, 0) });
        }
        let Some(open) = cursor.open.as_mut() else { return Ok(None) };
        let within = cursor.offset - segment.start;
        let left = segment.length - within;
        let (stream, run) = if segment.indexed {
            if open.index.is_none() {
                let index = self.open_file(&segment.index_name(), OFlags::RDONLY)?;
                open.index = Some(io::BufReader::with_capacity(4096, index));
                open.run = (Stream::Stdout, 0);
                open.skip(within)?;
            }
            open.next_run()?;
            // Bytes behind the index's last run were written by a shim that was killed in between.
            if open.run.1 == 0 { (Stream::Stdout, left) } else { open.run }
        } else {
            (Stream::Stdout, left)
        };
        let mut buffer = vec![0; left.min(run).min(most as u64) as usize];
        let count = read_at(&open.data, &mut buffer, within)?;
        if count == 0 {
            // The file is shorter than it was: someone in the sandbox cut it.
            return Ok(Some(Self::lose(cursor, segment.end())));
        }
        buffer.truncate(count);
        open.run.1 = open.run.1.saturating_sub(count as u64);
        cursor.offset += count as u64;
        Ok(Some(Piece::Data(stream, buffer)))
    }

    fn lose(cursor: &mut Cursor, to: u64) -> Piece {
        let bytes = to - cursor.offset;
        *cursor = Cursor::at(to);
        Piece::Lost(bytes)
    }
}

impl OpenSegment {
    fn next_run(&mut self) -> io::Result<()> {
        while self.run.1 == 0 {
            match self.index.as_mut().map(read_number).transpose()?.flatten() {
                Some(number) => {
                    self.run = (if number & 1 == 0 { Stream::Stdout } else { Stream::Stderr }, number >> 1);
                }
                None => break,
            }
        }
        Ok(())
    }

    fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            self.next_run()?;
            let step = bytes.min(self.run.1);
            if step == 0 {
                break;
            }
            self.run.1 -= step;
            bytes -= step;
        }
        Ok(())
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn read_number(reader: &mut io::BufReader<File>) -> io::Result<Option<u64>> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 {
            return Ok(None);
        }
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(Some(number));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the index of a command's log is damaged"))
}

fn encode_run(stream: Stream, length: u64) -> Vec<u8> {
    let mut number = length << 1 | u64::from(stream == Stream::Stderr);
    let mut bytes = Vec::with_capacity(4);
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The writing side, in the shim.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    data: Option<File>,
    index: Option<File>,
    /// How large the first segment may become: less than usual when all logs together are too large.
    head_limit: u64,
    /// How much of the tail is kept.
    tail_limit: u64,
    /// At which size the budget of all logs is looked at next.
    next_check: u64,
}

impl LogWriter {
    /// An empty log in a command's directory.
    pub fn new(dir: OwnedFd) -> Self {
        let log = Log { dir, segments: VecDeque::new(), end: 0 };
        Self { log, data: None, index: None, head_limit: HEAD_BYTES, tail_limit: TAIL_BYTES, next_check: SEGMENT_BYTES }
    }

    /// What can be read.
    pub fn log(&self) -> &Log {
        &self.log
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.log.dir.as_fd()
    }

    /// Makes sure that another [`CHUNK`] can be appended, dropping old segments.
    ///
    /// False when that would take bytes at or behind `needed` away from a reader: then the command has to wait.
    pub fn make_room(&mut self, needed: Option<u64>) -> bool {
        let Some(last) = self.log.segments.back() else { return true };
        let limit = if last.start == 0 { self.head_limit } else { SEGMENT_BYTES };
        if self.data.is_some() && last.size + CHUNK as u64 <= limit {
            if self.kept() >= self.next_check {
                self.next_check = self.kept() + SEGMENT_BYTES;
                self.check_budget();
            }
            return true;
        }
        self.check_budget();
        while self.tail() + SEGMENT_BYTES > self.tail_limit {
            // The first segment, unless the log began with a failed write, is the head, which stays.
            let Some(oldest) = self.log.segments.iter().position(|segment| segment.start != 0) else { break };
            if needed.is_some_and(|needed| needed < self.log.segments[oldest].end()) {
                return false;
            }
            self.drop_segment(oldest);
        }
        self.data = None;
        self.index = None;
        true
    }

    fn kept(&self) -> u64 {
        self.log.segments.iter().map(|segment| segment.size).sum()
    }

    fn tail(&self) -> u64 {
        self.log.segments.iter().filter(|segment| segment.start != 0).map(|segment| segment.size).sum()
    }

    fn drop_segment(&mut self, at: usize) {
        let Some(segment) = self.log.segments.remove(at) else { return };
        remove(self.dir(), &segment.data_name());
        if segment.indexed {
            remove(self.dir(), &segment.index_name());
        }
    }

    fn check_budget(&mut self) {
        if super::budget::is_used_up(self.dir()) {
            self.head_limit = 0;
            self.tail_limit = SEGMENT_BYTES;
        }
    }

    /// Appends what a command printed. Bytes that can't be written, for want of space, count as dropped: a full disk is no
    /// reason to stop a command.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        if self.write(stream, bytes).is_err() {
            self.data = None;
            self.index = None;
        }
        self.log.end += bytes.len() as u64;
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if super::reserve::is_short(&self.log.dir) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        if self.data.is_none() {
            let segment = Segment { start: self.log.end, length: 0, size: 0, indexed: false };
            self.data = Some(self.log.open_file(&segment.data_name(), create)?);
            self.log.segments.push_back(segment);
        }
        let (Some(data), Some(segment)) = (self.data.as_mut(), self.log.segments.back_mut()) else { return Ok(()) };
        // The index goes first: a run without its bytes is harmless, bytes without their run would lose their stream.
        if stream == Stream::Stderr && !segment.indexed {
            let name = segment.index_name();
            let mut file = File::from(rustix::fs::openat(
                &self.log.dir,
                name.as_str(),
                create | OFlags::CLOEXEC,
                Mode::from_raw_mode(0o600),
            )?);
            if segment.length > 0 {
                file.write_all(&encode_run(Stream::Stdout, segment.length))?;
            }
            segment.indexed = true;
            self.index = Some(file);
        }
        if let Some(index) = &mut self.index {
            let run = encode_run(stream, bytes.len() as u64);
            index.write_all(&run)?;
            segment.size += run.len() as u64;
        }
        let mut written = 0;
        while written < bytes.len() {
            match data.write(&bytes[written..]) {
                Ok(count) => {
                    written += count;
                    segment.length += count as u64;
                    segment.size += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn remove(dir: BorrowedFd<'_>, name: &str) {
    // A file that is gone already is as good as removed, and one that can't be removed is looked at again by the daemon.
    let _ = rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty());
}

#[cfg(test)]
mod tests;
