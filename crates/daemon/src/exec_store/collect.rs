//! The output in a command's result: all of it, or its beginning and end.

use std::io;

use bytes::{Bytes, BytesMut};
use podbay_proto::exec::{Cut, Stream};
use podbay_proto::utf8::{ceil_char_boundary, floor_char_boundary};

use super::log::{CHUNK, Cursor, Log, Piece};

/// The beginning and the end of a command's output.
pub struct Collected {
    /// Which stream wrote how many of the bytes.
    pub runs: Vec<(Stream, u64)>,
    /// What was left out.
    pub cut: Option<Cut>,
    /// The output itself, both streams in the order in which they were written.
    pub bytes: Bytes,
}

/// Reads the first `end` bytes of a log; if they are more than `cap`, half of that from the beginning and half from the end,
/// cut between UTF-8 characters.
///
/// # Errors
/// When the log can't be read.
pub fn collect(log: &Log, end: u64, cap: u64) -> io::Result<Collected> {
    let mut all = Part::read(log, 0, end.min(cap))?;
    if end <= cap && all.lost == 0 {
        return Ok(Collected { runs: all.runs, cut: None, bytes: all.bytes.freeze() });
    }
    // It is too long, or the log itself has lost its middle.
    let mut head = Part::read(log, 0, (cap - cap / 2).min(end))?;
    if head.lost == 0 {
        head.truncate(floor_char_boundary(&head.bytes));
    }
    let mut tail = Part::read(log, end.saturating_sub(cap / 2).max(head.span()), end)?;
    tail.skip(ceil_char_boundary(&tail.bytes));
    let kept = (head.bytes.len() + tail.bytes.len()) as u64;
    let cut = Cut { at: head.bytes.len() as u64, bytes: end - kept };
    all = head;
    for (stream, length) in tail.runs {
        all.push_run(stream, length);
    }
    all.bytes.extend_from_slice(&tail.bytes);
    Ok(Collected { runs: all.runs, cut: Some(cut), bytes: all.bytes.freeze() })
}

/// A stretch of output. Bytes after a loss aren't read: the result has one gap at most.
#[derive(Default)]
struct Part {
    runs: Vec<(Stream, u64)>,
    bytes: BytesMut,
    lost: u64,
}

impl Part {
    fn read(log: &Log, from: u64, to: u64) -> io::Result<Self> {
        let mut part = Self::default();
        let mut cursor = Cursor::at(from);
        while cursor.offset < to {
            let most = (to - cursor.offset).min(CHUNK as u64) as usize;
            match log.read(&mut cursor, most)? {
                Some(Piece::Data(stream, data)) if part.lost == 0 || from > 0 => {
                    part.push_run(stream, data.len() as u64);
                    part.bytes.extend_from_slice(&data);
                }
                Some(Piece::Data(..)) => break,
                Some(Piece::Lost(bytes)) => {
                    part.lost += bytes;
                    if from > 0 {
                        // In the tail, what comes before the loss is dropped instead.
                        part.runs.clear();
                        part.bytes.clear();
                    }
                }
                None => break,
            }
        }
        Ok(part)
    }

    fn span(&self) -> u64 {
        self.bytes.len() as u64 + self.lost
    }

    fn push_run(&mut self, stream: Stream, length: u64) {
        match self.runs.last_mut() {
            Some((last, total)) if *last == stream => *total += length,
            _ if length > 0 => self.runs.push((stream, length)),
            _ => {}
        }
    }

    fn truncate(&mut self, to: usize) {
        let mut excess = (self.bytes.len() - to) as u64;
        self.bytes.truncate(to);
        while let Some((_, length)) = self.runs.last_mut().filter(|_| excess > 0) {
            let step = excess.min(*length);
            *length -= step;
            excess -= step;
            if *length == 0 {
                self.runs.pop();
            }
        }
    }

    fn skip(&mut self, mut bytes: usize) {
        let _ = self.bytes.split_to(bytes);
        while bytes > 0 && !self.runs.is_empty() {
            let step = self.runs[0].1.min(bytes as u64);
            self.runs[0].1 -= step;
            bytes -= step as usize;
            if self.runs[0].1 == 0 {
                self.runs.remove(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::LogWriter;
    use super::*;

    fn log(pieces: &[(Stream, &str)]) -> LogWriter {
        let file = || tempfile::tempfile().unwrap();
        let mut writer = LogWriter::new(file(), file(), u64::MAX);
        for (stream, text) in pieces {
            writer.append(*stream, text.as_bytes());
        }
        writer
    }

    fn collected(writer: &LogWriter, cap: u64) -> (String, Vec<(Stream, u64)>, Option<Cut>) {
        let result = collect(writer.log(), writer.log().end(), cap).unwrap();
        (String::from_utf8(result.bytes.to_vec()).unwrap(), result.runs, result.cut)
    }

    #[test]
    fn a_short_output_is_whole() {
        let log = log(&[(Stream::Stdout, "ab"), (Stream::Stderr, "cd")]);
        assert_eq!(collected(&log, 4), ("abcd".into(), vec![(Stream::Stdout, 2), (Stream::Stderr, 2)], None));
    }

    #[test]
    fn a_long_one_keeps_both_ends_and_divides_between_characters() {
        let log = log(&[(Stream::Stdout, "aäää"), (Stream::Stderr, "üüüz")]);
        let (text, runs, cut) = collected(&log, 8);
        assert_eq!(text, "aäüz");
        assert_eq!(runs, [(Stream::Stdout, 3), (Stream::Stderr, 3)]);
        assert_eq!(cut, Some(Cut { at: 3, bytes: 8 }));
    }

    #[test]
    fn nothing_at_all_can_be_asked_for() {
        let log = log(&[(Stream::Stdout, "abc")]);
        assert_eq!(collected(&log, 0), (String::new(), vec![], Some(Cut { at: 0, bytes: 3 })));
    }

    #[test]
    fn a_log_without_its_middle_is_cut_there() {
        let mut log = log(&[]);
        let chunk = "x".repeat(CHUNK);
        for _ in 0..(80 << 20) / CHUNK {
            log.append(Stream::Stdout, chunk.as_bytes());
        }
        let (text, _, cut) = collected(&log, 1 << 30);
        let cut = cut.unwrap();
        assert_eq!(cut.bytes, log.log().dropped());
        assert_eq!(text.len() as u64 + cut.bytes, 80 << 20);
    }
}
