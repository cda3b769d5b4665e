//! A command's output as a sequence of records: what was printed, by which stream, and how it ended.
//!
//! ```text
//! ┌──────┬───────────────┬──────┐
//! │ kind │ u32, big end. │ data │   kind 1: stdout · 2: stderr · 3: bytes lost (u64) · 4: the end (JSON of an Info)
//! └──────┴───────────────┴──────┘
//! ```
//! The same records go from a command's shim to podbayd and from podbayd to the client.

use bytes::{Buf, Bytes, BytesMut};

use crate::exec::{Info, Stream};
use crate::{Error, ErrorCode, Result};

/// The most data in one record of output.
pub const MAX_DATA: usize = 256 << 10;

/// The most data in the record of the end.
const MAX_END: usize = 1 << 20;

/// How many bytes precede the data.
pub const HEADER: usize = 5;

/// A reader has at least this much room for the next piece, and makes this much when it has less: enough for many small
/// records, or a few large ones, in one allocation.
const MIN_SPACE: usize = 16 << 10;
const MAX_SPACE: usize = 128 << 10;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Something was printed.
    Output(Stream, Bytes),
    /// This many bytes were printed here and are no longer available.
    Lost(u64),
    /// The command has ended. The last record.
    End(Box<Info>),
}

impl Record {
    /// How far it moves the offset in the output.
    pub fn span(&self) -> u64 {
        match self {
            Self::Output(_, data) => data.len() as u64,
            Self::Lost(bytes) => *bytes,
            Self::End(_) => 0,
        }
    }
}

/// The header of a record of output.
pub fn output_header(stream: Stream, length: usize) -> [u8; HEADER] {
    header(if stream == Stream::Stdout { 1 } else { 2 }, length)
}

/// A record of lost bytes.
pub fn encode_lost(bytes: u64) -> Vec<u8> {
    [&header(3, 8)[..], &bytes.to_be_bytes()].concat()
}

/// The record of the end.
///
/// # Errors
/// When the JSON can't be made.
pub fn encode_end(info: &Info) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(info).map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
    Ok([&header(4, json.len())[..], &json].concat())
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind, a, b, c, d]
}

/// Takes records from a stream of bytes that arrives in pieces of any size.
#[derive(Debug, Default)]
pub struct RecordReader {
    buffered: BytesMut,
}

impl RecordReader {
    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffered.extend_from_slice(piece);
    }

    /// Where the next piece of the stream can be read into, with some room.
    pub fn space(&mut self) -> &mut BytesMut {
        if self.buffered.capacity() - self.buffered.len() < MIN_SPACE {
            self.buffered.reserve(MAX_SPACE);
        }
        &mut self.buffered
    }

    /// Takes all complete records that stand before the end's, as they are, for whoever passes them on; and how far they
    /// move the offset in the output.
    ///
    /// # Errors
    /// `bad_message` when the bytes aren't records.
    pub fn take_output(&mut self) -> Result<(Bytes, u64)> {
        let (mut at, mut span) = (0, 0_u64);
        while let Some((kind, length)) = parse_header(&self.buffered[at..])? {
            let Some(data) = self.buffered.get(at + HEADER..at + HEADER + length) else { break };
            span = span.saturating_add(match kind {
                4 => break,
                3 => data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)),
                _ => length as u64,
            });
            at += HEADER + length;
        }
        Ok((self.buffered.split_to(at).freeze(), span))
    }

    /// The next record, if it is complete.
    ///
    /// # Errors
    /// `bad_message` when the bytes aren't records.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let Some((kind, length)) = parse_header(&self.buffered)? else { return Ok(None) };
        if self.buffered.len() < HEADER + length {
            self.buffered.reserve(HEADER + length - self.buffered.len());
            return Ok(None);
        }
        self.buffered.advance(HEADER);
        let mut data = self.buffered.split_to(length).freeze();
        Ok(Some(match kind {
            1 => Record::Output(Stream::Stdout, data),
            2 => Record::Output(Stream::Stderr, data),
            3 => Record::Lost(data.get_u64()),
            _ => Record::End(
                serde_json::from_slice(&data)
                    .map_err(|error| bad(format!("can't parse the record of a command's end: {error}")))?,
            ),
        }))
    }

    /// Whether a record has begun and isn't complete.
    pub fn is_inside_record(&self) -> bool {
        !self.buffered.is_empty()
    }
}

/// Kind and length of the record that begins here, if its header is complete.
fn parse_header(bytes: &[u8]) -> Result<Option<(u8, usize)>> {
    let Some(&[kind, a, b, c, d]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let most = if kind == 4 { MAX_END } else { MAX_DATA };
    if length > most || !(1..=4).contains(&kind) || (kind == 3 && length != 8) {
        return Err(bad(format!("no record has kind {kind} and {length} bytes")));
    }
    Ok(Some((kind, length)))
}

fn bad(message: String) -> Error {
    Error::new(ErrorCode::BadMessage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_any_division() {
        let mut bytes = output_header(Stream::Stderr, 3).to_vec();
        bytes.extend_from_slice(b"err");
        bytes.extend(encode_lost(7));
        bytes.extend_from_slice(&output_header(Stream::Stdout, 0));
        for size in 1..=bytes.len() {
            let mut reader = RecordReader::default();
            let mut records = Vec::new();
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(record) = reader.next_record().unwrap() {
                    records.push(record);
                }
            }
            assert_eq!(
                records,
                [
                    Record::Output(Stream::Stderr, Bytes::from_static(b"err")),
                    Record::Lost(7),
                    Record::Output(Stream::Stdout, Bytes::new()),
                ]
            );
            assert!(!reader.is_inside_record());
        }
    }

    #[test]
    fn output_is_passed_on_as_it_came_up_to_the_end() {
        let mut output = output_header(Stream::Stderr, 3).to_vec();
        output.extend_from_slice(b"err");
        output.extend(encode_lost(7));
        let end = [&header(4, 2)[..], b"{}"].concat();
        for cut in 0..output.len() {
            let mut reader = RecordReader::default();
            reader.space().extend_from_slice(&output[..cut]);
            let (first, before) = reader.take_output().unwrap();
            reader.space().extend_from_slice(&output[cut..]);
            reader.push(&end);
            let (second, after) = reader.take_output().unwrap();
            assert_eq!([&first[..], &second].concat(), output, "{cut}");
            assert_eq!(before + after, 10);
            assert_eq!(reader.take_output().unwrap(), (Bytes::new(), 0), "the end stays");
            assert!(reader.next_record().is_err(), "that isn't an Info");
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [&[9, 0, 0, 0, 0][..], &[1, 0xff, 0, 0, 0], &[3, 0, 0, 0, 7], &[4, 0, 0, 0, 2, b'{', b'}']] {
            let mut reader = RecordReader::default();
            reader.push(bytes);
            if bytes[0] != 4 {
                assert_eq!(reader.take_output().unwrap_err().code, ErrorCode::BadMessage, "{bytes:?}");
            }
            assert_eq!(reader.next_record().unwrap_err().code, ErrorCode::BadMessage, "{bytes:?}");
        }
    }
}
