//! A command's output as text in JSON, piece by piece.

use podbay_proto::utf8::floor_char_boundary;

/// The text of one stream. Bytes that aren't UTF-8 are replaced, and all line ends become `\n`, as in the stock runtime.
#[derive(Debug, Default)]
pub(super) struct JsonText {
    /// The beginning of a character whose rest hasn't come.
    begun: Vec<u8>,
    after_carriage_return: bool,
}

impl JsonText {
    /// Appends what comes next to `json`, inside of a string.
    pub(super) fn push(&mut self, bytes: &[u8], json: &mut Vec<u8>) {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.begun = all.split_off(floor_char_boundary(&all));
        let mut text = String::with_capacity(all.len());
        for chunk in all.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '\n' if self.after_carriage_return => {}
                    '\r' | '\n' => text.push('\n'),
                    char => text.push(char),
                }
                self.after_carriage_return = char == '\r';
            }
            if !chunk.invalid().is_empty() {
                self.after_carriage_return = false;
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        escape(&text, json);
    }

    /// Appends what is left at the end.
    pub(super) fn end(&mut self, json: &mut Vec<u8>) {
        if !std::mem::take(&mut self.begun).is_empty() {
            escape("\u{fffd}", json);
        }
    }
}

/// Appends a text to a JSON string.
pub(super) fn escape(text: &str, json: &mut Vec<u8>) {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    json.extend_from_slice(inner.unwrap_or_default().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], step: usize) -> String {
        let mut json = b"\"".to_vec();
        let mut text = JsonText::default();
        for piece in bytes.chunks(step) {
            text.push(piece, &mut json);
        }
        text.end(&mut json);
        json.push(b'"');
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn text_is_the_same_however_it_is_cut() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"a\"\\\x00\x1b[0m", "a\"\\\0\u{1b}[0m"),
            ("ä€😀".as_bytes(), "ä€😀"),
            (b"1\r\n2\r3\n\r4\r\r\n", "1\n2\n3\n\n4\n\n"),
            (b"a\xffb\xc3(", "a\u{fffd}b\u{fffd}("),
            (b"\r\xff\n", "\n\u{fffd}\n"),
            (b"end\xf0\x9f\x98", "end\u{fffd}"),
        ] {
            for step in 1..bytes.len() + 2 {
                assert_eq!(text(bytes, step), expected, "{bytes:?} in pieces of {step}");
            }
        }
    }
}
