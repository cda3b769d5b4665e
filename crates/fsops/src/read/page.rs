//! A page of lines from a stream of bytes.

use std::io::{self, Read};

use podbay_proto::files::Truncation;
use podbay_proto::utf8::floor_char_boundary;

/// The largest page, whatever was requested: it is held in memory.
pub(super) const MOST: u64 = 64 << 20;

/// What a page should contain.
pub(super) struct Wanted {
    /// Lines to skip.
    pub(super) offset: u64,
    /// The most lines.
    pub(super) limit: u64,
    /// The most bytes.
    pub(super) bytes: u64,
    /// Whether to count the lines after the page.
    pub(super) count: bool,
}

/// A page of lines.
pub(super) struct Page {
    /// The lines, joined by `\n`. Not checked to be UTF-8, but never cut inside a character.
    pub(super) text: Vec<u8>,
    pub(super) complete_lines: u64,
    pub(super) truncated: Option<Truncation>,
    /// Lines up to where reading stopped.
    pub(super) seen_lines: u64,
    /// All lines, if the end was reached.
    pub(super) total_lines: Option<u64>,
}

/// Whether the beginning of a file is text: UTF-8, possibly cut inside its last character.
pub(super) fn is_text(head: &[u8]) -> bool {
    std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// Reads a page from `head` and the stream that continues it.
pub(super) fn read(head: &[u8], rest: &mut impl Read, wanted: &Wanted) -> io::Result<Page> {
    let mut lines = Lines { wanted, text: Vec::new(), line: 0, begun: false, after_cr: false, cut_at: None };
    let mut buffer = vec![0; 64 << 10];
    let mut chunk = head.len();
    buffer[..chunk].copy_from_slice(head);
    let mut at_end = false;
    while !at_end && (!lines.is_full() || wanted.count) {
        lines.push(&buffer[..chunk]);
        chunk = loop {
            match rest.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        at_end = chunk == 0;
    }
    Ok(lines.finish(at_end))
}

/// The state between two chunks.
struct Lines<'a> {
    wanted: &'a Wanted,
    text: Vec<u8>,
    /// Complete lines so far.
    line: u64,
    /// Whether the current line has begun.
    begun: bool,
    /// The last byte was a `\r`, so a `\n` now belongs to it.
    after_cr: bool,
    /// The line in which the page overflowed, and where its text begins.
    cut_at: Option<(u64, usize)>,
}

impl Lines<'_> {
    /// Whether the page is full.
    fn is_full(&self) -> bool {
        self.cut_at.is_some() || self.line >= self.wanted.offset.saturating_add(self.wanted.limit)
    }

    fn push(&mut self, mut chunk: &[u8]) {
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let content = &chunk[..end.unwrap_or(chunk.len())];
            self.add(content);
            let Some(end) = end else { return };
            self.after_cr = chunk[end] == b'\r';
            // An empty line has its line break in the page as well.
            self.begin();
            self.line += 1;
            self.begun = false;
            chunk = &chunk[end + 1..];
        }
    }

    fn in_page(&self) -> bool {
        self.line >= self.wanted.offset && !self.is_full()
    }

    /// Begins the current line: from the second one on with a line break.
    fn begin(&mut self) {
        if !self.begun && self.in_page() {
            let break_before = self.line > self.wanted.offset;
            let start = self.text.len();
            if break_before {
                if start as u64 >= self.wanted.bytes {
                    self.cut_at = Some((self.line, start));
                } else {
                    self.text.push(b'\n');
                }
            }
        }
        self.begun = true;
    }

    fn add(&mut self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        let start = self.text.len();
        let first = !self.begun;
        self.begin();
        if !self.in_page() {
            return;
        }
        let free = (self.wanted.bytes as usize).saturating_sub(self.text.len());
        let taken = content.len().min(free);
        self.text.extend_from_slice(&content[..taken]);
        if taken < content.len() {
            let begins = if first { start } else { self.line_start(start) };
            self.cut_at = Some((self.line, begins));
        }
    }

    /// Where the text of the current line begins, including its line break, if it came in several chunks.
    fn line_start(&self, end: usize) -> usize {
        match self.line > self.wanted.offset {
            true => memchr::memrchr(b'\n', &self.text[..end]).unwrap_or(0),
            false => 0,
        }
    }

    fn finish(mut self, at_end: bool) -> Page {
        // A last line without a line break counts; a line break at the very end begins no new line.
        let total = self.line + u64::from(self.begun);
        let truncated = self.cut_at.map(|(_, begins)| {
            self.text.truncate(floor_char_boundary(&self.text));
            Truncation {
                partial_line_bytes: (self.text.len().saturating_sub(begins)) as u64,
                first_line_cut: self.cut_at.is_some_and(|(line, _)| line == self.wanted.offset),
            }
        });
        let end = self.cut_at.map_or(total, |(line, _)| line);
        let end = end.min(self.wanted.offset.saturating_add(self.wanted.limit));
        Page {
            text: self.text,
            complete_lines: end.saturating_sub(self.wanted.offset),
            truncated,
            seen_lines: total,
            total_lines: at_end.then_some(total),
        }
    }
}
