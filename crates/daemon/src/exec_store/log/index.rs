//! Which stream wrote which bytes of a log, and which bytes were lost.
//!
//! An entry is a run of one kind: the offset at which it ends, as a number of 64 bits with the kind in the lowest two. The
//! entries of the log's first part stand in the first of two areas, those of its ring in the second, itself a ring. A log
//! without entries is all standard output, so that the common case writes none.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How many runs of the first part are told apart.
const HEAD_ENTRIES: usize = 128 << 10;

/// How many runs of the end are told apart.
const TAIL_ENTRIES: usize = 384 << 10;

const ENTRY: u64 = 8;
const HEAD_AT: u64 = super::LAYOUT_AT + super::LAYOUT_SPACE;
const TAIL_AT: u64 = HEAD_AT + HEAD_ENTRIES as u64 * ENTRY;

/// What a run consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    Stdout,
    Stderr,
    /// Bytes that couldn't be written.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    kind: RunKind,
    end: u64,
}

impl Run {
    /// Never zero, which is what an entry that was never written reads as: offsets begin with 1 here.
    fn encode(self) -> u64 {
        (self.end + 1) << 2 | self.kind as u64
    }

    fn decode(number: u64) -> Option<Self> {
        let kind = match number & 3 {
            0 => RunKind::Stdout,
            1 => RunKind::Stderr,
            _ => RunKind::Lost,
        };
        (number >> 2).checked_sub(1).map(|end| Self { kind, end })
    }
}

/// The runs of a log.
#[derive(Debug, Default)]
pub struct Index {
    head: Vec<Run>,
    tail: VecDeque<Run>,
    /// How many entries the ring ever got.
    count: u64,
}

impl Index {
    /// Reads it from a `record` file. What makes no sense there is left out: the log is then told apart less well.
    pub fn read(record: &File) -> io::Result<Self> {
        let head = read_area(record, HEAD_AT, HEAD_ENTRIES)?;
        let tail = read_area(record, TAIL_AT, TAIL_ENTRIES)?;
        // The newest entry of the ring has the greatest end; the oldest comes after it.
        let newest = (0..tail.len()).max_by_key(|at| tail[*at].end).map_or(0, |at| at + 1);
        let mut tail = VecDeque::from(tail);
        let count = tail.len() as u64;
        tail.rotate_left(newest);
        Ok(Self { head: ascending(head.into_iter()), tail: ascending(tail.into_iter()).into(), count })
    }

    /// The bytes that it takes on disk.
    pub fn bytes(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 * ENTRY
    }

    /// The run at an offset: its kind and its end. Nothing behind the last one.
    pub fn find(&self, offset: u64) -> Option<(RunKind, u64)> {
        let at = self.head.partition_point(|run| run.end <= offset);
        let found = self.head.get(at).or_else(|| self.tail.get(self.tail.partition_point(|run| run.end <= offset)));
        found.map(|run| (run.kind, run.end))
    }

    /// The offset from which on the ring's entries are all there.
    pub fn tail_start(&self) -> u64 {
        self.tail_start_after(0)
    }

    /// The same after that many more entries.
    pub fn tail_start_after(&self, more: usize) -> u64 {
        let over = (self.tail.len() + more).saturating_sub(TAIL_ENTRIES - 1);
        over.checked_sub(1).and_then(|last| self.tail.get(last)).map_or(0, |run| run.end)
    }

    /// How many bytes are marked as lost before `head` and from `tail` on.
    pub fn lost_outside(&self, head: u64, tail: u64) -> u64 {
        let mut start = 0;
        let mut lost = 0;
        for run in self.head.iter().chain(&self.tail) {
            if run.kind == RunKind::Lost {
                let before = run.end.min(head).saturating_sub(start);
                let behind = run.end.saturating_sub(start.max(tail).max(head));
                lost += before + behind;
            }
            start = run.end;
        }
        lost
    }

    /// Whether a run of another kind would have no room in the first area.
    pub fn head_is_full(&self, kind: RunKind) -> bool {
        self.head.len() >= HEAD_ENTRIES && self.head.last().is_some_and(|last| last.kind != kind)
    }

    /// Where the runs of the first area end.
    pub fn head_end(&self) -> u64 {
        self.head.last().map_or(0, |run| run.end)
    }

    /// Takes back what the last run has behind an offset: it wasn't written. The next entry overwrites it on disk.
    pub fn cut(&mut self, end: u64) {
        let last = self.tail.back_mut().or(self.head.last_mut());
        if let Some(last) = last {
            last.end = last.end.min(end);
        }
    }

    /// Adds bytes up to `end`, to the last run where that is of the same kind.
    ///
    /// # Errors
    /// When it can't be written. In memory it is there all the same.
    pub fn put(&mut self, record: &File, kind: RunKind, end: u64, ring: bool) -> io::Result<()> {
        let run = Run { kind, end };
        let position = if ring {
            match self.tail.back_mut().filter(|last| last.kind == kind) {
                Some(last) => *last = run,
                None => {
                    if self.tail.len() == TAIL_ENTRIES {
                        self.tail.pop_front();
                    }
                    self.tail.push_back(run);
                    self.count += 1;
                }
            }
            TAIL_AT + (self.count - 1) % TAIL_ENTRIES as u64 * ENTRY
        } else {
            match self.head.last_mut().filter(|last| last.kind == kind) {
                Some(last) => *last = run,
                None => self.head.push(run),
            }
            HEAD_AT + (self.head.len() - 1) as u64 * ENTRY
        };
        record.write_all_at(&run.encode().to_le_bytes(), position)
    }
}

/// The entries of an area up to the first that was never written.
fn read_area(record: &File, at: u64, entries: usize) -> io::Result<Vec<Run>> {
    let size = record.metadata()?.len().saturating_sub(at).min(entries as u64 * ENTRY);
    let mut bytes = vec![0; size as usize];
    let count = super::read_at(record, &mut bytes, at)?;
    let numbers = bytes[..count].as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(numbers.map_while(Run::decode).collect())
}

/// Only the entries that come one after the other.
fn ascending(runs: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut last = 0;
    runs.filter(|run| {
        run.end > last && {
            last = run.end;
            true
        }
    })
    .collect()
}
