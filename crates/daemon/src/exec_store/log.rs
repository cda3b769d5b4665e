//! A command's output on disk: bounded, readable as a file, and readable from any offset with its streams told apart.
//!
//! podbayd makes two files and gives them to the shim open; a shim has no right to make, rename or delete any.
//!
//! - `output` holds what was printed, byte for byte. The first 16 MiB stay. What follows is a ring of 48 MiB behind them, so
//!   an output of up to 64 MiB is the file itself.
//! - `record` begins with the command's [record](super::record). Behind it stand three numbers, once they matter: how long the
//!   first part is, how long the ring, and how much was printed; then the index (`Index`), which tells the streams apart.

mod index;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use podbay_proto::exec::Stream;

use self::index::{Index, Kind};

/// The file with the output, which bears the log's name.
pub const OUTPUT: &str = "output";

/// How much of the beginning is kept.
pub const HEAD_BYTES: u64 = 16 << 20;

/// How much of the end is kept.
pub const TAIL_BYTES: u64 = 48 << 20;

/// What a log still gets when all logs together are too large, and how often that is looked at.
pub const STEP_BYTES: u64 = 2 << 20;

/// The most that one call appends.
pub const CHUNK: usize = 64 << 10;

/// Where the three numbers stand in `record`.
const LAYOUT_AT: u64 = super::record::SPACE as u64;

/// How much room they have.
const LAYOUT_SPACE: u64 = 64;

/// What one step of reading gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of one stream.
    Data(Stream, Vec<u8>),
    /// That many bytes are gone.
    Lost(u64),
}

/// Where bytes stand: the first `head` at their own offsets, later ones in a ring of `tail` bytes behind them.
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

    /// The position of a byte in the file, and how many follow it there.
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
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the log of a command is damaged")),
        }
    }

    fn write(self, record: &File, end: u64) -> io::Result<()> {
        let numbers = [self.head, self.tail, end].map(u64::to_le_bytes);
        record.write_all_at(numbers.as_flattened(), LAYOUT_AT)
    }
}

/// What can be read of a log.
#[derive(Debug)]
pub struct Log {
    output: File,
    record: File,
    layout: Layout,
    index: Index,
    end: u64,
    /// Whether somebody else writes it meanwhile.
    shared: bool,
}

/// A reader's place in a log.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The offset of the next byte.
    pub offset: u64,
}

impl Cursor {
    /// A place at an offset.
    pub fn at(offset: u64) -> Self {
        Self { offset }
    }
}

impl Log {
    /// The log in these files, as it stands.
    ///
    /// # Errors
    /// When they can't be read or make no sense.
    pub fn open(output: File, record: File) -> io::Result<Self> {
        let size = output.metadata()?.len();
        let (layout, end) = Layout::read(&record)?.unwrap_or((Layout::FULL, size));
        let index = Index::read(&record)?;
        // The last numbers may be of bytes that a killed shim didn't come to write, but never of fewer than there are.
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

    /// How many of them are gone.
    pub fn dropped(&self) -> u64 {
        let start = self.tail_start();
        let gap = start - start.min(self.layout.head.min(self.end));
        gap + self.index.lost_outside(self.layout.head, start)
    }

    /// The offset from which on the end is kept.
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
        let (kind, run_end) = self.index.find(offset).unwrap_or((Kind::Stdout, self.end));
        let run_end = run_end.min(self.end);
        let stream = match kind {
            Kind::Stdout => Stream::Stdout,
            Kind::Stderr => Stream::Stderr,
            Kind::Lost => return Ok(Some(lose(cursor, run_end))),
        };
        let (position, follow) = self.layout.place(offset);
        let length = follow.min(run_end - offset).min(most as u64);
        let mut buffer = vec![0; length as usize];
        let count = read_at(&self.output, &mut buffer, position)?;
        if count == 0 {
            // The file is shorter than it was: its log made room for others, or someone in the sandbox cut it.
            let next = if offset < self.layout.head { self.layout.head.max(start).min(self.end) } else { self.end };
            return Ok(Some(lose(cursor, next)));
        }
        if self.shared && offset >= self.layout.head {
            // The writer says how far it goes before it goes there.
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
    /// At which size the budget of all logs is looked at next.
    next_check: u64,
}

impl LogWriter {
    /// An empty log in these files, none of which may become larger than `largest`.
    pub fn new(output: File, record: File, largest: u64) -> Self {
        let layout = Layout::within(largest);
        let log = Log { output, record, layout, index: Index::default(), end: 0, shared: false };
        Self { log, indexed: false, next_check: STEP_BYTES }
    }

    /// What can be read.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The file with the command's record, which stands before the log's index.
    pub fn record(&self) -> &File {
        &self.log.record
    }

    /// Whether another [`CHUNK`] can be appended without taking bytes at or behind `needed` away from a reader. If not, the
    /// command has to wait.
    pub fn has_room(&self, needed: Option<u64>) -> bool {
        let Some(needed) = needed else { return true };
        let needed = needed.max(self.log.layout.head);
        let start = self.log.layout.ring_start(self.log.end + CHUNK as u64).max(self.log.index.tail_start_after(2));
        start <= needed
    }

    /// Whether it is time to ask for more room among all logs. Says so once for each step.
    pub fn wants_room(&mut self) -> bool {
        let kept = self.log.end.min(self.log.layout.head + self.log.layout.tail) + self.log.index.bytes();
        let wants = kept >= self.next_check;
        if wants {
            self.next_check = kept + STEP_BYTES;
        }
        wants
    }

    /// Grows no more than a step: all logs together are too large.
    pub fn restrict(&mut self) {
        let Log { layout, end, record, .. } = &mut self.log;
        if *end < layout.head + layout.tail {
            layout.head = layout.head.min(*end);
            layout.tail = layout.tail.min((*end - layout.head).max(STEP_BYTES));
            // In memory it holds in any case; a reader after a killed shim would find less.
            let _ = layout.write(record, *end);
        }
    }

    /// Appends what a command printed. Bytes that can't be written, for want of space, count as dropped: a full disk is no
    /// reason to stop a command.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let kind = if stream == Stream::Stdout { Kind::Stdout } else { Kind::Stderr };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (position, follow) = self.log.layout.place(self.log.end);
            let (piece, after) = rest.split_at(rest.len().min(follow as usize));
            let written = self.write(kind, piece, position).unwrap_or(0);
            self.log.end += written as u64;
            if written < piece.len() {
                let lost = (piece.len() - written) as u64;
                self.log.index.cut(self.log.end);
                // Best effort: the index may need the space that is missing. In memory it is right.
                let _ = self.note(Kind::Lost, lost);
                self.log.end += lost;
            }
            rest = after;
        }
    }

    fn write(&mut self, kind: Kind, bytes: &[u8], position: u64) -> io::Result<usize> {
        if super::disk_reserve::is_short(&self.log.output) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Whoever reads at the same time is told first what is overwritten; and a run without its bytes is harmless, while
        // bytes without their run would lose their stream.
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

    /// Notes of which kind the next bytes are.
    fn note(&mut self, kind: Kind, length: u64) -> io::Result<()> {
        if !self.indexed {
            if kind == Kind::Stdout {
                return Ok(());
            }
            self.indexed = true;
            if self.log.end > 0 {
                self.put(Kind::Stdout, self.log.end)?;
            }
        }
        self.put(kind, self.log.end + length)
    }

    fn put(&mut self, kind: Kind, end: u64) -> io::Result<()> {
        let Log { index, layout, record, .. } = &mut self.log;
        if end <= layout.head && index.head_is_full(kind) {
            layout.head = index.head_end();
        }
        index.put(record, kind, end, end > layout.head)
    }
}

#[cfg(test)]
mod tests;
