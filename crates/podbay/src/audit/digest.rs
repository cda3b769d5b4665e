//! What is recorded of bytes: all of them up to a bound, beyond that their beginning, length and digest.

use std::fmt::Write as _;

use podbay_proto::RawPath;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// How many bytes of one text, of one command line or of all names of variables are recorded whole.
pub const WHOLE: usize = 64 << 10;

/// Length and SHA-256 digest of bytes that aren't recorded themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// How many bytes there were.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Digest {
    /// A digest that was computed elsewhere.
    pub fn new(bytes: u64, sha256: &[u8; 32]) -> Self {
        Self { bytes, sha256: hex(sha256) }
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }
}

/// Computes a [`Digest`] of bytes that arrive in pieces.
#[derive(Debug, Clone, Default)]
struct Digester {
    bytes: u64,
    hasher: Sha256,
}

impl Digester {
    /// Takes the next piece.
    fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.hasher.update(piece);
    }

    /// The digest of everything that was taken.
    fn finish(self) -> Digest {
        Digest { bytes: self.bytes, sha256: hex(&self.hasher.finalize()) }
    }
}

/// A path, an argument or a shell line, without loss up to [`WHOLE`] bytes.
///
/// In JSON: a string; `{"hex": "…"}` where the bytes aren't UTF-8; `{"head": …, "bytes": …, "sha256": "…"}` beyond the bound, where
/// `head` is in one of the first two forms and the digest is that of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Text {
    /// All of it.
    Whole(RawPath),
    /// Its beginning.
    Cut {
        /// The first bytes.
        head: RawPath,
        /// Length and digest of the whole.
        #[serde(flatten)]
        whole: Digest,
    },
}

impl Text {
    /// Records these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::within(bytes, WHOLE)
    }

    pub(super) fn within(bytes: &[u8], bound: usize) -> Self {
        if bytes.len() <= bound {
            return Self::Whole(bytes.into());
        }
        // Text stays text: a character that the bound would divide is left out.
        let end = match std::str::from_utf8(bytes) {
            Ok(text) => text.floor_char_boundary(bound),
            Err(_) => bound,
        };
        Self::Cut { head: bytes[..end].into(), whole: Digest::of(bytes) }
    }
}

/// A variable of a command's environment: its name, and length and digest of its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Variable {
    name: Text,
    #[serde(flatten)]
    value: Digest,
}

/// A list of texts of which at most `bound` bytes are recorded: those, and the digest of all if they aren't all.
pub(super) fn list<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone, bound: usize) -> (Vec<Text>, Option<Total>) {
    let (recorded, complete) = beginning(texts.clone(), bound);
    (recorded, (!complete).then(|| Total::of(texts.map(|text| [text, b"", b""]))))
}

/// The variables of an environment, whose names are a list like any other.
pub(super) fn environment<'a>(
    variables: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    bound: usize,
) -> (Vec<Variable>, Option<Total>) {
    let (names, complete) = beginning(variables.clone().map(|(name, _)| name), bound);
    let recorded = names.into_iter().zip(variables.clone());
    let recorded = recorded.map(|(name, (_, value))| Variable { name, value: Digest::of(value) }).collect();
    (recorded, (!complete).then(|| Total::of(variables.map(|(name, value)| [name, b"=", value]))))
}

/// The first texts of a list, with at most `bound` bytes, and whether they are all of it.
fn beginning<'a>(texts: impl Iterator<Item = &'a [u8]>, bound: usize) -> (Vec<Text>, bool) {
    let mut left = bound;
    let mut recorded = Vec::new();
    let mut complete = true;
    for text in texts {
        // Empty texts cost something too: there may be a million of them.
        if left == 0 {
            complete = false;
            break;
        }
        complete &= text.len() <= left;
        recorded.push(Text::within(text, left));
        left = left.saturating_sub(text.len() + 1);
    }
    (recorded, complete)
}

/// All of a list that is too long to record whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    /// How many texts the list has.
    pub count: u64,
    /// Length and digest of all texts, each followed by a zero byte, as in `/proc/PID/cmdline` and `/proc/PID/environ`.
    #[serde(flatten)]
    pub whole: Digest,
}

impl Total {
    fn of<'a>(texts: impl Iterator<Item = [&'a [u8]; 3]>) -> Self {
        let (mut digester, mut count) = (Digester::default(), 0);
        for text in texts {
            text.iter().for_each(|part| digester.update(part));
            digester.update(b"\0");
            count += 1;
        }
        Self { count, whole: digester.finish() }
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string doesn't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn what_is_too_long_keeps_its_head_its_length_and_its_digest() {
        let long = "é".repeat(WHOLE);
        let Text::Cut { head, whole } = Text::of(long.as_bytes()) else { panic!("recorded whole") };
        assert_eq!(head.to_str().unwrap(), "é".repeat(WHOLE / 2));
        assert_eq!(whole, Digest::of(long.as_bytes()));
        let odd = format!("x{long}");
        let Text::Cut { head, .. } = Text::of(odd.as_bytes()) else { panic!("recorded whole") };
        assert_eq!(head.as_bytes().len(), WHOLE - 1, "no half character");
        assert_eq!(
            Digest::of(b"abc").sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "the example of FIPS 180-2"
        );
        let mut pieces = Digester::default();
        pieces.update(b"a");
        pieces.update(b"bc");
        assert_eq!(pieces.finish(), Digest::of(b"abc"));
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        assert_eq!(json(&Text::of(b"a\xff\n")), r#"{"hex":"61ff0a"}"#);
        assert_eq!(json(&Text::of(b"a \"b\"\n")), r#""a \"b\"\n""#);
        // What looks like another form is a string.
        assert_eq!(json(&Text::of(br#"{"hex":"61"}"#)), r#""{\"hex\":\"61\"}""#);
    }

    #[test]
    fn a_list_keeps_its_borders_and_its_bound() {
        let of = |texts: &[&[u8]]| list(texts.iter().copied(), WHOLE);
        let (short, total) = of(&[b"a b", b"", b"c"]);
        assert_eq!((json(&short), total), (r#"["a b","","c"]"#.to_owned(), None));
        let big = vec![b'x'; WHOLE];
        let (cut, total) = of(&[b"sh", &big, b"last"]);
        assert_eq!(cut.len(), 2, "{cut:?}");
        assert!(matches!(&cut[1], Text::Cut { whole, .. } if *whole == Digest::of(&big)));
        let total = total.unwrap();
        assert_eq!((total.count, total.whole.bytes), (3, WHOLE as u64 + 2 + 4 + 3));
        assert_eq!(total.whole, Digest::of(&[b"sh\0", &big[..], b"\0last\0"].concat()));
        let many = vec![&b""[..]; 10 * WHOLE];
        let (cut, total) = of(&many);
        assert_eq!((cut.len(), total.unwrap().count), (WHOLE, 10 * WHOLE as u64));
        let (exact, total) = of(&[&big[..]]);
        assert_eq!((exact.len(), total), (1, None));
    }

    #[test]
    fn an_environment_is_names_and_digests() {
        let of = |bound| environment([(&b"A"[..], &b"1"[..]), (b"KEY", b"s3cr3t")].into_iter(), bound);
        let (whole, total) = of(WHOLE);
        let digest = Digest::of(b"s3cr3t").sha256;
        assert_eq!(json(&whole[1]), format!(r#"{{"name":"KEY","bytes":6,"sha256":"{digest}"}}"#));
        assert_eq!((whole.len(), total), (2, None));
        let (cut, total) = of(1);
        assert_eq!((cut.len(), total.unwrap().whole), (1, Digest::of(b"A=1\0KEY=s3cr3t\0")));
    }
}
