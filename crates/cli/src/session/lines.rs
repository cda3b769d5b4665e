//! A command's events as lines of JSON.

use bytes::Bytes;
use podbay::{ExecId, Info, RawPath, Stream};
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Started {
        id: &'a ExecId,
    },
    Output {
        stream: Stream,
        /// A string, or `{"hex": …}` where it isn't text.
        data: RawPath,
    },
    Lost {
        bytes: u64,
    },
    End {
        exit_code: u8,
        #[serde(flatten)]
        info: &'a Info,
    },
}

/// Turns events into lines. Characters that arrive in two pieces are joined first.
#[derive(Debug, Default)]
pub struct Lines {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Lines {
    /// It runs.
    pub fn started(&self, id: &ExecId) -> Bytes {
        line(&Line::Started { id })
    }

    /// It printed something. None as long as that isn't a whole character.
    pub fn output(&mut self, stream: Stream, data: &[u8]) -> Option<Bytes> {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        kept.extend_from_slice(data);
        let whole = podbay::utf8::floor_char_boundary(kept);
        let rest = kept.split_off(whole);
        let data = std::mem::replace(kept, rest);
        (!data.is_empty()).then(|| line(&Line::Output { stream, data: data.into() }))
    }

    /// Output is missing here.
    pub fn lost(&mut self, bytes: u64) -> Bytes {
        self.rest(&Line::Lost { bytes })
    }

    /// It has ended.
    pub fn end(&mut self, info: &Info, exit_code: u8) -> Bytes {
        self.rest(&Line::End { exit_code, info })
    }

    /// What is left of characters that were never finished, then a line.
    fn rest(&mut self, last: &Line<'_>) -> Bytes {
        let mut all = Vec::new();
        for (stream, kept) in [(Stream::Stdout, &mut self.stdout), (Stream::Stderr, &mut self.stderr)] {
            if !kept.is_empty() {
                let data = std::mem::take(kept).into();
                all.extend_from_slice(&line(&Line::Output { stream, data }));
            }
        }
        all.extend_from_slice(&line(last));
        all.into()
    }
}

fn line(line: &Line<'_>) -> Bytes {
    // Numbers, strings and maps with string keys can always be written.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_in_two_pieces_stay_whole() {
        let mut lines = Lines::default();
        let text = "aé日😀".as_bytes();
        let mut all = String::new();
        for byte in text {
            if let Some(line) = lines.output(Stream::Stdout, &[*byte]) {
                let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
                all.push_str(value["data"].as_str().unwrap());
            }
        }
        assert_eq!(all.as_bytes(), text);
    }

    #[test]
    fn what_is_no_text_survives() {
        let mut lines = Lines::default();
        let line = lines.output(Stream::Stderr, b"a\xff\xfe").unwrap();
        assert_eq!(line, r#"{"event":"output","stream":"stderr","data":{"hex":"61fffe"}}"#.to_owned() + "\n");
        assert!(lines.output(Stream::Stdout, b"\xe6\x97").is_none());
        let lost = String::from_utf8(lines.lost(7).to_vec()).unwrap();
        assert!(lost.starts_with(r#"{"event":"output","stream":"stdout","data":{"hex":"e697"}}"#), "{lost}");
        assert!(lost.ends_with("{\"event\":\"lost\",\"bytes\":7}\n"), "{lost}");
    }
}
