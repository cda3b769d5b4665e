//! What comes over the wire, from either side.

use podbay_proto::exec::{Info, List, Run, RunOutput, Start};
use podbay_proto::files::{Edit, GlobOutput, Grep, GrepOutput, LsOutput, Read, ReadOutput, TreeOutput, Write};
use podbay_proto::message::{HeadReader, MAX_REQUEST, decode_head, encode_head};
use podbay_proto::record::{Record, RecordReader, encode_end, encode_lost, output_header};
use podbay_proto::{Error, RawPath};

pub const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "true",
    "-1",
    "1e400",
    "18446744073709551615",
    "18446744073709551616",
    "\"path\":",
    "\"/a\"",
    "\"scope\":",
    "{}",
    "\"limit\":",
    "\"mode\":7",
    "\"hex\":",
    "\"ff\"",
    "\"id\":",
    "\"state\":",
    "\"exited\"",
    "\"code\":",
    "\"log\":",
    "\"matches\":",
    "\"entries\":",
    "\"kind\":",
    "\"file\"",
    "\"size\":",
    "\"modified\":",
    "\"program\":",
    "\"shell\":",
    "\"argv\":",
    "\\ud800",
    "\0\0\0",
    "\u{1}",
];

pub const RECORDS: &[&str] = &[
    "\u{1}\0\0\0\u{3}abc",
    "\u{2}\0\0\0\0",
    "\u{3}\0\0\0\u{8}\0\0\0\0\0\0\0\u{7}",
    "\u{4}\0\0\0\u{2}{}",
    "\u{1}",
    "\u{4}",
    "\0",
    "\u{5}",
    "\0\u{4}\0\0",
    "{\"id\":\"a\",",
    "\"state\":\"running\"}",
];

pub const PATHS: &[&str] = &["{\"hex\":\"", "2f", "ff", "\"}", "\"", "/", "\\u0000", "\\ud800", "a"];

/// A message from the other side, in two pieces.
///
/// # Panics
/// When the pieces give something else than the whole.
pub fn head(data: &[u8]) {
    let whole = HeadReader::at_most(MAX_REQUEST).push(data);
    let (one, other) = data.split_at(data.len() / 2);
    let mut reader = HeadReader::at_most(MAX_REQUEST);
    let pieces = match reader.push(one) {
        Ok(None) => reader.push(other),
        Ok(Some((head, payload))) => Ok(Some((head, [&payload[..], other].concat().into()))),
        error => error,
    };
    assert_eq!(whole, pieces);
    if let Ok(Some((head, _))) = whole {
        // Whatever it is, it is understood or refused.
        let _ = decode_head::<Read>(&head);
        let _ = decode_head::<Grep>(&head);
        if let Ok(request) = decode_head::<Write>(&head) {
            let again = encode_head(&request).expect("what was read can be written");
            assert_eq!(decode_head::<Write>(&again[4..]).expect("and read again"), request);
        }
    }
}

/// An answer of a podbayd that was tampered with: it is understood or refused, and what was understood can be said again.
///
/// # Panics
/// When it can't.
pub fn answer(data: &[u8]) {
    fn again<T: serde::Serialize + serde::de::DeserializeOwned>(data: &[u8]) {
        if let Ok(value) = decode_head::<T>(data) {
            let head = encode_head(&value).expect("what was read can be written");
            let value = decode_head::<T>(&head[4..]).expect("and read again");
            assert_eq!(encode_head(&value).expect("and written again"), head);
        }
    }
    again::<Info>(data);
    again::<RunOutput>(data);
    again::<Start>(data);
    again::<Run>(data);
    again::<List>(data);
    again::<Edit>(data);
    again::<ReadOutput>(data);
    again::<LsOutput>(data);
    again::<GlobOutput>(data);
    again::<GrepOutput>(data);
    again::<TreeOutput>(data);
    again::<Error>(data);
}

/// A command's output as records, whole and in pieces of three bytes.
///
/// # Panics
/// When pieces give something else than the whole, or a record changes when it is written again.
pub fn record(data: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut reader, mut records, mut failed) = (RecordReader::default(), Vec::new(), false);
        for piece in pieces {
            reader.push(piece);
            loop {
                match reader.next_record() {
                    Ok(Some(record)) => records.push(record),
                    Ok(None) => break,
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
            if failed {
                break;
            }
        }
        (records, failed)
    };
    let whole = read(&mut std::iter::once(data));
    assert_eq!(whole, read(&mut data.chunks(3)));
    let mut written = Vec::new();
    for record in &whole.0 {
        match record {
            Record::Output(stream, bytes) => {
                written.extend_from_slice(&output_header(*stream, bytes.len()));
                written.extend_from_slice(bytes);
            }
            Record::Lost(bytes) => written.extend(encode_lost(*bytes)),
            Record::End(info) => written.extend(encode_end(info).expect("what was read can be written")),
        }
    }
    assert_eq!(read(&mut std::iter::once(&written[..])), (whole.0, false));
}

/// A path as JSON, and as bytes.
///
/// # Panics
/// When a path changes on its way through JSON.
pub fn path(data: &[u8]) {
    let paths = [Some(RawPath::from(data)), serde_json::from_slice(data).ok()];
    for path in paths.into_iter().flatten() {
        let json = serde_json::to_vec(&path).expect("every path has a JSON form");
        assert_eq!(serde_json::from_slice::<RawPath>(&json).expect("which is read again"), path);
    }
}
