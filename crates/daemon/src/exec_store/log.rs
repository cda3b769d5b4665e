//! A command's output on disk: bounded, readable as a plain file, and readable from any offset with its streams separated.
//!
//! podbayd makes two files and passes them to the shim open; a shim may not make, rename or delete any.
//!
//! - `output` holds what was printed, byte for byte. The first 16 MiB stay. What follows is a ring of 48 MiB behind them, so
//!   an output of up to 64 MiB is the file itself.
//! - `record` begins with the command's [record](super::record). Three numbers follow, once they matter: the length of the
//!   first part, the length of the ring, and how much was printed; then the index (`Index`), which separates the streams.

mod index;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use podbay_proto::exec::Stream;

use self::index::{Index, RunKind};

/// The file with the output.
pub const OUTPUT: &str = "output";

/// How much of the beginning is kept.
pub const HEAD_BYTES: u64 = 16 << 20;

/// How much of the end is kept.
pub const TAIL_BYTES: u64 = 48 << 20;

/// How much a log may still grow once all logs exceed their quota, and how often the quota is checked.
pub const STEP_BYTES: u64 = 2 << 20;

/// The most that one call appends.
pub const CHUNK: usize = 64 << 10;

/// The offset of the three numbers in `record`.
const LAYOUT_AT: u64 = super::record::SPACE as u64;

/// How much space they have.
const LAYOUT_SPACE: u64 = 64;

/// The result of one read.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of one stream.
    Data(Stream, Vec<u8>),
    /// This many bytes were dropped.
    Lost(u64),
}

/// Where bytes are in the file: the first `head` at their own offsets, later ones in a ring of `tail` bytes after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    head: u64,
    tail: u64,
}

impl Layout {
    const FULL: Self = Self { head: HEAD_BYTES, tail: TAIL_BYTES };

    /// The layout for files that may have this size.
    fn within(largest: u64) -> Self {
        let head = HEAD_BYTES.min(largest / 4);
        Self { head, tail: TAIL_BYTES.min(largest.saturating_sub(head)).max(1) }
    }

    /// The position of a byte in the file, and how many bytes are contiguous from there.
    fn place(self, offset: u64) -> (u64, u64) {
        if offset < self.head {
            return (offset, self.head - offset);
        }
        let within = (offset - self.head) % self.tail;
        (self.head + within, self.tail - within)
    }

    /// Where the ring begins when this many bytes were printed.
    fn ring_start(self, end: u64) -> u64 {
        end.saturating_sub(self.tail).max(self.head)
    }

    fn read(record: &File) -> io::Result<Option<(Self, u64)>> {
        let mut bytes = [0; 24];
        if read_at(record, &mut bytes, LAYOUT_AT)? < bytes.len() {
            return Ok(None);
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let (layout, end) = (Self { head: number(0), tail: number(1) }, number(2));
        match layout {
            Self { head: 0, tail: 0 } => Ok(None),
            Self { head: 0..=HEAD_BYTES, tail: 1..=TAIL_BYTES } => Ok(Some((layout, end))),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a command's log is damaged")),
        }
    }

    fn write(self, record: &File, end: u64) -> io::Result<()> {
        let numbers = [self.head, self.tail, end].map(u64::to_le_bytes);
        record.write_all_at(numbers.as_flattened(), LAYOUT_AT)
    }
}

/// A log, for reading.
#[derive(Debug)]
pub struct Log {
    output: File,
    record: File,
    layout: Layout,
    index: Index,
    end: u64,
    /// Whether another process writes it meanwhile.
    shared: bool,
}

/// A reader's position in a log.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The offset of the next byte.
    pub offset: u64,
}

impl Cursor {
    /// A position at an offset.
    pub fn at(offset: u64) -> Self {
        Self { offset }
    }
}

impl Log {
    /// The log in these files, as it is now.
    ///
    /// # Errors
    /// When they can't be read or are damaged.
    pub fn open(output: File, record: File) -> io::Result<Self> {
        let size = output.metadata()?.len();
        let (layout, end) = Layout::read(&record)?.unwrap_or((Layout::FULL, size));
        let index = Index::read(&record)?;
        // The numbers may count bytes that a killed shim didn't get to write, but never fewer than there are.
        let end = if end <= layout.head + layout.tail { size } else { end };
        Ok(Self { output, record, layout, index, end, shared: true })
    }

    /// How many bytes were printed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Extends the end over bytes that were printed and not kept.
    pub fn extend_to(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// How many of them were dropped.
    pub fn dropped(&self) -> u64 {
        let start = self.tail_start();
        let gap = start - start.min(self.layout.head.min(self.end));
        gap + self.index.lost_outside(self.layout.head, start)
    }

    /// The offset from which the end is kept.
    fn tail_start(&self) -> u64 {
        self.layout.ring_start(self.end).max(self.index.tail_start()).min(self.end)
    }

    /// Reads at most `most` bytes at the cursor and moves it; nothing at the end.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn read(&self, cursor: &mut Cursor, most: usize) -> io::Result<Option<Piece>> {
        let offset = cursor.offset;
        if offset >= self.end {
            return Ok(None);
        }
        let start = self.tail_start();
        if offset >= self.layout.head && offset < start {
            return Ok(Some(lose(cursor, start)));
        }
        let (kind, run_end) = self.index.find(offset).unwrap_or((RunKind::Stdout, self.end));
        let run_end = run_end.min(self.end);
        let stream = match kind {
            RunKind::Stdout => Stream::Stdout,
            RunKind::Stderr => Stream::Stderr,
            RunKind::Lost => return Ok(Some(lose(cursor, run_end))),
        };
        let (position, follow) = self.layout.place(offset);
        let length = follow.min(run_end - offset).min(most as u64);
        let mut buffer = vec![0; length as usize];
        let count = read_at(&self.output, &mut buffer, position)?;
        if count == 0 {
            // The file is shorter than it was: it was emptied to make room for other logs, or truncated by a command.
            let next = if offset < self.layout.head { self.layout.head.max(start).min(self.end) } else { self.end };
            return Ok(Some(lose(cursor, next)));
        }
        if self.shared && offset >= self.layout.head {
            // The writer records how far it will write before it writes.
            let end = Layout::read(&self.record)?.map_or(self.end, |(_, end)| end);
            let start = self.layout.ring_start(end).min(self.end);
            if offset < start {
                return Ok(Some(lose(cursor, start)));
            }
        }
        buffer.truncate(count);
        cursor.offset += count as u64;
        Ok(Some(Piece::Data(stream, buffer)))
    }
}

fn lose(cursor: &mut Cursor, to: u64) -> Piece {
    let bytes = to - cursor.offset;
    cursor.offset = to;
    Piece::Lost(bytes)
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// The writing side, in the shim.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    /// Whether the index is written: not before standard error or a loss comes.
    indexed: bool,
    /// The size at which the quota of all logs is checked next.
    next_check: u64,
}

impl LogWriter {
    /// An empty log in these files, neither of which may grow beyond `largest`.
    pub fn new(output: File, record: File, largest: u64) -> Self {
        let layout = Layout::within(largest);
        let log = Log { output, record, layout, index: Index::default(), end: 0, shared: false };
        Self { log, indexed: false, next_check: STEP_BYTES }
    }

    /// The log, for reading.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The file with the command's record.
    pub fn record(&self) -> &File {
        &self.log.record
    }

    /// Whether another [`CHUNK`] can be appended without overwriting bytes from `needed` on, which a reader hasn't got yet. If
    /// not, the command has to wait.
    pub fn has_room(&self, needed: Option<u64>) -> bool {
        let Some(needed) = needed else { return true };
        let needed = needed.max(self.log.layout.head);
        let start = self.log.layout.ring_start(self.log.end + CHUNK as u64).max(self.log.index.tail_start_after(2));
        start <= needed
    }

    /// Whether it is time to have the quota of all logs checked. True once for each step.
    pub fn wants_room(&mut self) -> bool {
        let kept = self.log.end.min(self.log.layout.head + self.log.layout.tail) + self.log.index.bytes();
        let wants = kept >= self.next_check;
        if wants {
            self.next_check = kept + STEP_BYTES;
        }
        wants
    }

    /// Limits further growth to one step, because all logs together exceed their quota.
    pub fn restrict(&mut self) {
        let Log { layout, end, record, .. } = &mut self.log;
        if *end < layout.head + layout.tail {
            layout.head = layout.head.min(*end);
            layout.tail = layout.tail.min((*end - layout.head).max(STEP_BYTES));
            // If this fails it still holds in memory; only readers after a killed shim would find less.
            let _ = layout.write(record, *end);
        }
    }

    /// Appends what a command printed. Bytes that can't be written for lack of space count as dropped: a full disk doesn't
    /// stop a command.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let kind = if stream == Stream::Stdout { RunKind::Stdout } else { RunKind::Stderr };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (position, follow) = self.log.layout.place(self.log.end);
            let (piece, after) = rest.split_at(rest.len().min(follow as usize));
            let written = self.write(kind, piece, position).unwrap_or(0);
            self.log.end += written as u64;
            if written < piece.len() {
                let lost = (piece.len() - written) as u64;
                self.log.index.cut(self.log.end);
                // Best effort: the index may need the missing space itself. In memory it is right.
                let _ = self.note(RunKind::Lost, lost);
                self.log.end += lost;
            }
            rest = after;
        }
    }

    fn write(&mut self, kind: RunKind, bytes: &[u8], position: u64) -> io::Result<usize> {
        if super::disk_reserve::is_short(&self.log.output) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Concurrent readers must know first what will be overwritten; and a run without its bytes is harmless, while bytes
        // without their run would lose their stream.
        let end = self.log.end + bytes.len() as u64;
        if end > self.log.layout.head || self.log.layout != Layout::FULL {
            self.log.layout.write(&self.log.record, end)?;
        }
        self.note(kind, bytes.len() as u64)?;
        let mut written = 0;
        while written < bytes.len() {
            match self.log.output.write_at(&bytes[written..], position + written as u64) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// Records the kind of the next bytes.
    fn note(&mut self, kind: RunKind, length: u64) -> io::Result<()> {
        if !self.indexed {
            if kind == RunKind::Stdout {
                return Ok(());
            }
            self.indexed = true;
            if self.log.end > 0 {
                self.put(RunKind::Stdout, self.log.end)?;
            }
        }
        self.put(kind, self.log.end + length)
    }

    fn put(&mut self, kind: RunKind, end: u64) -> io::Result<()> {
        let Log { index, layout, record, .. } = &mut self.log;
        if end <= layout.head && index.head_is_full(kind) {
            layout.head = index.head_end();
        }
        index.put(record, kind, end, end > layout.head)
    }
}

#[cfg(test)]
mod tests;
