//! Conversions between JavaScript values and the core's types: paths, bytes, commands, durations.

use std::time::Duration;

use bytes::Bytes;
use napi::bindgen_prelude::{Either, Uint8Array, Utf16String};
use podbay::RawPath;

use crate::failure::Failure;

/// What a byte that isn't UTF-8 becomes in a string: a lone surrogate, as in Python's file names.
const ESCAPE: u16 = 0xdc00;

/// A path in a sandbox. JavaScript passes and gets strings; see [`ESCAPE`] for names that aren't UTF-8.
pub fn path(text: &[u16]) -> RawPath {
    let mut bytes = Vec::with_capacity(text.len());
    for unit in char::decode_utf16(text.iter().copied()) {
        match unit {
            Ok(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => match lone.unpaired_surrogate().checked_sub(ESCAPE).and_then(|byte| u8::try_from(byte).ok()) {
                Some(byte) if byte >= 0x80 => bytes.push(byte),
                _ => bytes.extend_from_slice("\u{fffd}".as_bytes()),
            },
        }
    }
    bytes.into()
}

/// An optional path.
pub fn optional_path(text: Option<Utf16String>) -> Option<RawPath> {
    text.map(|text| path(&text))
}

/// A path for JavaScript.
pub fn text(path: &RawPath) -> Utf16String {
    let mut units = Vec::with_capacity(path.as_bytes().len());
    for chunk in path.as_bytes().utf8_chunks() {
        units.extend(chunk.valid().encode_utf16());
        units.extend(chunk.invalid().iter().map(|byte| ESCAPE + u16::from(*byte)));
    }
    units.into()
}

/// A path in a message.
pub fn printable(path: &RawPath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

/// Bytes of a caller, copied: JavaScript may change its own while the operation runs.
pub fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Bytes for JavaScript.
pub fn array(bytes: &[u8]) -> Uint8Array {
    bytes.to_vec().into()
}

/// A whole number for JavaScript, which has 53 bits for it.
pub fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A whole number of JavaScript; a negative one counts as 0.
pub fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Seconds as milliseconds; a duration above zero gives at least 1.
pub fn milliseconds(seconds: f64) -> Result<u64, Failure> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::Argument(format!("{seconds} isn't a duration: pass 0 or more seconds")))?;
    let whole = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Ok(if duration.is_zero() { 0 } else { whole.max(1) })
}

/// A duration in any form that a setting takes: seconds, or a text such as "2h".
pub fn duration(given: Option<Either<f64, String>>) -> Result<Option<Duration>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let mut config = podbay::config::Config::default();
    let value = match given {
        Either::A(seconds) => seconds.into(),
        Either::B(text) => text.into(),
    };
    config.set_value("ttl", &value)?;
    Ok(config.ttl())
}
