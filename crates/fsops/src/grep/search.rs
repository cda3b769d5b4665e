//! Searching one file, a buffer at a time.

use std::os::fd::OwnedFd;

use memchr::memmem::Finder;
use podbay_proto::files::{Grep, LineMatch};
use podbay_proto::utf8::floor_char_boundary;
use rustix::io::Errno;

/// The longest line that can be searched: the buffer grows until a whole line fits.
pub(super) const MAX_LINE: usize = 64 << 20;

/// How much is read at first: most files fit.
const BUFFER: usize = 64 << 10;

/// The result of searching one file.
#[derive(Debug)]
pub(super) enum Searched {
    /// The matching lines.
    Lines(Vec<LineMatch>),
    /// It has a NUL byte.
    Binary,
    /// A line didn't fit.
    LineTooLong,
    /// The time was up.
    Stopped,
}

/// Searches files for one text.
pub(super) struct Search<'a> {
    finder: Finder<'a>,
    max_line: usize,
    buffer: Vec<u8>,
}

/// The state of a search in one file.
#[derive(Default)]
struct State {
    lines: Vec<LineMatch>,
    /// Line breaks before the buffer.
    breaks: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(request: &'a Grep) -> Self {
        Self {
            finder: Finder::new(request.pattern.as_bytes()),
            max_line: usize::try_from(request.max_line_bytes).unwrap_or(usize::MAX),
            buffer: vec![0; BUFFER],
        }
    }

    /// Searches a file for at most `most` lines.
    pub(super) fn file(
        &mut self,
        file: &OwnedFd,
        most: u64,
        is_over: &dyn Fn() -> bool,
    ) -> rustix::io::Result<Searched> {
        let mut state = State::default();
        // The beginning of a line that isn't complete yet.
        let mut kept = 0;
        let mut single = true;
        loop {
            if kept == self.buffer.len() {
                if kept >= MAX_LINE {
                    return Ok(Searched::LineTooLong);
                }
                self.buffer.resize(kept * 2, 0);
            }
            let mut filled = kept;
            let mut at_end = false;
            while filled < self.buffer.len() {
                match rustix::io::read(file, &mut self.buffer[filled..]) {
                    Ok(0) => {
                        at_end = true;
                        break;
                    }
                    Ok(read) => filled += read,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            let new = &self.buffer[kept..filled];
            if single && at_end {
                // The whole file is in the buffer. Most have no match, and then it doesn't matter whether they are binary.
                if self.finder.find(new).is_none() {
                    return Ok(Searched::Lines(Vec::new()));
                }
            }
            single = false;
            if memchr::memchr(0, new).is_some() {
                return Ok(Searched::Binary);
            }
            let end = match at_end {
                true => filled,
                false => match memchr::memrchr(b'\n', &self.buffer[kept..filled]) {
                    Some(last) => kept + last + 1,
                    None => {
                        kept = filled;
                        continue;
                    }
                },
            };
            self.chunk(end, most, &mut state);
            if at_end {
                self.buffer.truncate(BUFFER.max(MAX_KEPT.min(self.buffer.len())));
                return Ok(Searched::Lines(state.lines));
            }
            if is_over() {
                return Ok(Searched::Stopped);
            }
            self.buffer.copy_within(end..filled, 0);
            kept = filled - end;
        }
    }

    /// Searches the complete lines in the first `end` bytes of the buffer.
    fn chunk(&self, end: usize, most: u64, state: &mut State) {
        let chunk = &self.buffer[..end];
        let mut from = 0;
        let mut counted = 0;
        while (state.lines.len() as u64) < most {
            let Some(hit) = self.finder.find(&chunk[from..]) else { break };
            let hit = from + hit;
            let start = memchr::memrchr(b'\n', &chunk[..hit]).map_or(0, |at| at + 1);
            let stop = memchr::memchr(b'\n', &chunk[hit..]).map_or(end, |at| hit + at);
            state.breaks += memchr::memchr_iter(b'\n', &chunk[counted..start]).count() as u64;
            counted = start;
            let line = chunk[start..stop].strip_suffix(b"\r").unwrap_or(&chunk[start..stop]);
            let cut = line.len() > self.max_line;
            let text = String::from_utf8_lossy(&line[..boundary(line, self.max_line)]).into_owned();
            state.lines.push(LineMatch { line: state.breaks + 1, text, cut });
            from = (stop + 1).min(end);
            if from >= end {
                break;
            }
        }
        state.breaks += memchr::memchr_iter(b'\n', &chunk[counted..]).count() as u64;
    }
}

/// A buffer that grew for one file is shrunk to this.
const MAX_KEPT: usize = 1 << 20;

/// How much of a line is at most `most` bytes and doesn't end inside a character.
fn boundary(line: &[u8], most: usize) -> usize {
    if line.len() <= most { line.len() } else { floor_char_boundary(&line[..most]) }
}
