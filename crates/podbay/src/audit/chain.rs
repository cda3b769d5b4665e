//! Lines of the log, each of which contains the hash of the one before.
//!
//! A line is a JSON object that begins with `"seq"` and `"prev"` and ends with `"hash"`: the SHA-256 of the line's bytes up to
//! and without `,"hash":`. So the hash covers the sequence number, the previous hash and every byte of the entry, and no canonical
//! form of JSON is needed to check it.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::digest::hex;

/// What the first entry of a log has as the hash of the one before.
pub(super) const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The longest line that is read or written, newline included. Texts are bounded when they are recorded, and escaping makes them
/// at most six times as long.
pub(super) const LONGEST: usize = 8 << 20;

const HASH: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}";

/// Where a chain continues: the last entry's number and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) hash: String,
}

impl Link {
    /// Before the first entry.
    pub(super) fn genesis() -> Self {
        Self { seq: 0, hash: GENESIS.to_owned() }
    }

    /// The next line, newline included, and the link that it makes. The first line of a file says the file's number.
    ///
    /// # Errors
    /// When it would be longer than [`LONGEST`]: readers would take it for several lines that no writer wrote. When there is no
    /// higher number.
    pub(super) fn seal(&self, file: Option<u64>, body: &impl Serialize) -> io::Result<(Vec<u8>, Self)> {
        #[derive(Serialize)]
        struct Line<'a, T> {
            seq: u64,
            prev: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            file: Option<u64>,
            #[serde(flatten)]
            body: &'a T,
        }
        let seq = self.seq.checked_add(1).ok_or_else(|| io::Error::other("the last entry has the highest number"))?;
        let mut line = serde_json::to_vec(&Line { seq, prev: &self.hash, file, body })?;
        line.pop();
        let hash = hex(&Sha256::digest(&line));
        for part in [HASH, hash.as_bytes(), END, b"\n"] {
            line.extend_from_slice(part);
        }
        if line.len() > LONGEST {
            let reason = format!("the entry has {} bytes, more than the {LONGEST} that an entry may have", line.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok((line, Self { seq, hash }))
    }
}

/// What a line says about its place in the chain.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) prev: String,
    pub(super) hash: String,
    #[serde(default)]
    pub(super) file: Option<u64>,
    #[serde(default)]
    pub(super) event: String,
}

impl Head {
    /// Reads a line without its newline; none when it isn't an entry.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let head: Self = serde_json::from_slice(line).ok()?;
        [&head.prev, &head.hash].iter().all(|hash| is_hash(hash)).then_some(head)
    }

    /// Whether the hash is that of the line.
    pub(super) fn fits(&self, line: &[u8]) -> bool {
        let suffix = [HASH, self.hash.as_bytes(), END].concat();
        line.strip_suffix(&suffix[..]).is_some_and(|body| hex(&Sha256::digest(body)) == self.hash)
    }

    /// Whether it comes right after this.
    pub(super) fn follows(&self, link: &Link) -> bool {
        self.seq == link.seq.saturating_add(1) && self.prev == link.hash
    }

    /// Where the chain continues.
    pub(super) fn link(&self) -> Link {
        Link { seq: self.seq, hash: self.hash.clone() }
    }
}

/// Whether a text is a hash as this log writes it.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == GENESIS.len() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The entry that a writer adds when it finds that the last line is incomplete: its length and its digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Recovered {
    pub(super) time_ms: u64,
    pub(super) event: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// What `event` is in such an entry.
pub(super) const RECOVERED: &str = "recovered";

/// The entry that a writer adds when it can write again after it couldn't: how many of its entries are missing.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LostNote<'a> {
    pub(super) time_ms: u64,
    pub(super) event: &'static str,
    pub(super) pid: u32,
    pub(super) count: u64,
    pub(super) since_ms: u64,
    pub(super) reason: &'a str,
}

/// What `event` is in such an entry.
pub(super) const LOST: &str = "lost";

/// Whether a line is the beginning of the entry after `link`, as a writer leaves it that is killed while it writes.
pub(super) fn is_torn(line: &[u8], link: &Link) -> bool {
    let begin = format!("{{\"seq\":{},\"prev\":\"{}\"", link.seq.saturating_add(1), link.hash);
    let common = line.len().min(begin.len());
    line[..common] == begin.as_bytes()[..common]
}

/// Whether a line is the beginning of some entry.
pub(super) fn is_torn_from_a_log(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"{\"seq\":") else { return b"{\"seq\":".starts_with(line) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &rest[digits..];
    let Some(hash) = rest.strip_prefix(b",\"prev\":\"") else { return b",\"prev\":\"".starts_with(rest) };
    hash.iter().take(GENESIS.len()).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_sealed_over_every_byte() {
        let body = serde_json::json!({ "op": "read", "target": "a,\"hash\":\"b\"}" });
        let (line, link) = Link::genesis().seal(Some(1), &body).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        let head = Head::parse(line).unwrap();
        assert!(head.fits(line) && head.follows(&Link::genesis()) && head.link() == link && head.file == Some(1));
        for at in 0..line.len() {
            let mut other = line.to_vec();
            other[at] ^= 1;
            assert!(!Head::parse(&other).is_some_and(|head| head.fits(&other)), "byte {at}");
        }
        let (next, _) = link.seal(None, &body).unwrap();
        let next = Head::parse(next.trim_ascii_end()).unwrap();
        assert!(next.follows(&link) && next.seq == 2 && next.file.is_none());
    }

    /// `podbay audit verify` called such a line tampering, and other writers refused the file.
    #[test]
    fn a_line_that_readers_would_split_is_never_made() {
        let body = |length: usize| serde_json::json!({ "op": "x".repeat(length) });
        let overhead = Link::genesis().seal(None, &body(0)).unwrap().0.len();
        let (line, _) = Link::genesis().seal(None, &body(LONGEST - overhead)).unwrap();
        assert_eq!(line.len(), LONGEST);
        let refused = Link::genesis().seal(None, &body(LONGEST - overhead + 1)).unwrap_err();
        assert!(refused.to_string().contains("8388609 bytes"), "{refused}");
    }

    #[test]
    fn what_a_killed_writer_leaves_is_told_from_other_lines() {
        let (line, _) = Link::genesis().seal(Some(1), &serde_json::json!({ "op": "read" })).unwrap();
        for length in 0..line.len() - 1 {
            assert!(is_torn(&line[..length], &Link::genesis()), "{length}");
        }
        for length in 0..line.len() - 1 {
            assert!(is_torn_from_a_log(&line[..length]), "{length}");
        }
        for other in [&b"hello"[..], b"{}", b"{\"seq\":x", b"{\"seq\":1,\"op\"", b"{\"seq\":1,\"prev\":\"x"] {
            assert!(!is_torn_from_a_log(other), "{}", other.escape_ascii());
        }
        assert!(!is_torn(b"something else", &Link::genesis()));
        assert!(!is_torn(b"{\"seq\":2,\"prev\"", &Link::genesis()));
    }
}
