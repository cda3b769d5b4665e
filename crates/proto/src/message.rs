//! A message: JSON head, then raw payload.
//!
//! ```text
//! ┌───────────────┬──────────────┬───────────────────────────┐
//! │ u32, big end. │ head (JSON)  │ payload, to the body's end │
//! └───────────────┴──────────────┴───────────────────────────┘
//! ```
//! Both directions of every operation have this form, so that one function writes it and one reads it.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, ErrorCode, Result};

/// The largest head of a request. Contents travel in the payload, so only a command with a very long line comes near it.
pub const MAX_REQUEST: usize = 8 << 20;

/// The largest head of an answer: a search result may have 24 MiB.
pub const MAX_ANSWER: usize = 32 << 20;

/// How many bytes precede the head.
pub const PREFIX: usize = 4;

/// The head as bytes, its length before it; the payload follows by itself.
///
/// # Errors
/// When the head is larger than [`MAX_ANSWER`].
pub fn encode_head(head: &impl Serialize) -> Result<Bytes> {
    encode_head_within(MAX_ANSWER, head)
}

/// The head of a request.
///
/// # Errors
/// When it is larger than [`MAX_REQUEST`].
pub fn encode_request(head: &impl Serialize) -> Result<Bytes> {
    encode_head_within(MAX_REQUEST, head)
}

fn encode_head_within(most: usize, head: &impl Serialize) -> Result<Bytes> {
    let mut out = BytesMut::with_capacity(256);
    out.put_u32(0);
    let mut writer = out.writer();
    serde_json::to_writer(&mut writer, head).map_err(|error| {
        Error::new(ErrorCode::Internal, format!("can't encode the head of a message as JSON: {error}"))
    })?;
    let mut out = writer.into_inner();
    let length = out.len() - PREFIX;
    if length > most {
        return Err(Error::new(
            ErrorCode::TooLarge,
            format!("the message's head has {length} bytes, and at most {most} are allowed; request less at a time"),
        ));
    }
    out[..PREFIX].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(out.freeze())
}

/// Takes the head off a body that arrives in pieces.
///
/// ```
/// # use podbay_proto::message::{HeadReader, encode_head};
/// let mut reader = HeadReader::at_most(1 << 10);
/// let mut body = encode_head(&"head").unwrap().to_vec();
/// body.extend_from_slice(b"payload");
/// assert!(reader.push(&body[..3]).unwrap().is_none());
/// let (head, payload) = reader.push(&body[3..]).unwrap().unwrap();
/// assert_eq!(podbay_proto::message::decode_head::<String>(&head).unwrap(), "head");
/// assert_eq!(&payload[..], b"payload");
/// ```
#[derive(Debug)]
pub struct HeadReader {
    buffered: BytesMut,
    most: usize,
}

impl HeadReader {
    /// A reader that accepts heads of at most `most` bytes.
    pub fn at_most(most: usize) -> Self {
        Self { buffered: BytesMut::new(), most }
    }

    /// Takes the next piece. Once the head is complete: the head, and what came of the payload with it.
    ///
    /// # Errors
    /// When the announced length is more than this reader accepts.
    pub fn push(&mut self, piece: &[u8]) -> Result<Option<(Bytes, Bytes)>> {
        self.buffered.extend_from_slice(piece);
        let Some(prefix) = self.buffered.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > self.most {
            return Err(bad(format!("a head of {length} bytes was announced, and at most {} are allowed", self.most)));
        }
        if self.buffered.len() < PREFIX + length {
            return Ok(None);
        }
        let mut whole = self.buffered.split().freeze();
        let payload = whole.split_off(PREFIX + length);
        Ok(Some((whole.split_off(PREFIX), payload)))
    }

    /// The error for a body that ended before its head did.
    pub fn cut(&self) -> Error {
        bad(format!("the message ended after {} bytes, in the middle of its head", self.buffered.len()))
    }
}

/// Reads a head.
///
/// # Errors
/// When it isn't the JSON of a `T`.
pub fn decode_head<T: DeserializeOwned>(head: &[u8]) -> Result<T> {
    serde_json::from_slice(head).map_err(|error| bad(format!("can't parse the head of the message: {error}")))
}

fn bad(message: String) -> Error {
    Error::new(ErrorCode::BadMessage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cut_anywhere_is_put_together_again() {
        let mut body = encode_head(&vec!["a", "b"]).unwrap().to_vec();
        body.extend_from_slice(b"xyz");
        for cut in 0..=body.len() {
            let mut reader = HeadReader::at_most(MAX_ANSWER);
            let first = reader.push(&body[..cut]).unwrap();
            let (head, payload) = match first {
                Some((head, mut payload)) => {
                    payload = [&payload[..], &body[cut..]].concat().into();
                    (head, payload)
                }
                None => reader.push(&body[cut..]).unwrap().unwrap(),
            };
            assert_eq!(decode_head::<Vec<String>>(&head).unwrap(), ["a", "b"]);
            assert_eq!(&payload[..], b"xyz");
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_kept() {
        assert_eq!(HeadReader::at_most(MAX_ANSWER).push(&[0xff; 8]).unwrap_err().code, ErrorCode::BadMessage);
        for most in [10, MAX_REQUEST, MAX_ANSWER] {
            let announced = |length: usize| HeadReader::at_most(most).push(&(length as u32).to_be_bytes());
            assert!(announced(most).unwrap().is_none());
            assert_eq!(announced(most + 1).unwrap_err().code, ErrorCode::BadMessage);
        }
    }

    #[test]
    fn what_is_too_large_is_not_sent_either() {
        let text = |length: usize| "x".repeat(length - 2);
        assert!(encode_request(&text(MAX_REQUEST)).is_ok() && encode_head(&text(MAX_ANSWER)).is_ok());
        assert_eq!(encode_request(&text(MAX_REQUEST + 1)).unwrap_err().code, ErrorCode::TooLarge);
        assert_eq!(encode_head(&text(MAX_ANSWER + 1)).unwrap_err().code, ErrorCode::TooLarge);
    }

    #[test]
    fn a_head_of_the_wrong_type_is_a_bad_message() {
        assert_eq!(decode_head::<Vec<u8>>(b"{}").unwrap_err().code, ErrorCode::BadMessage);
    }
}
