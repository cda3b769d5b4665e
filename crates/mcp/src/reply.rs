//! The results of tools: text for the model, bounded; metadata for programs.

use podbay::RawPath;
use podbay::files::Partial;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Under which key of `_meta` programs find what a result is about.
pub(crate) const META: &str = "podbay.dev/result";

/// How much of the sandbox's own words a note of ours quotes.
pub(crate) const QUOTE: usize = 1_000;

/// The longest path of the kernel. What a sandbox calls a path and is longer is none.
const PATH_MAX: usize = 4_096;

/// What a tool returns.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    content: Vec<ContentBlock>,
    meta: Option<Value>,
}

impl Reply {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// The same with one more text.
    #[must_use]
    pub(crate) fn and_text(self, text: impl Into<String>) -> Self {
        self.and(ContentBlock::text(text))
    }

    /// The same with one more block.
    #[must_use]
    pub(crate) fn and(mut self, block: ContentBlock) -> Self {
        self.content.push(block);
        self
    }

    /// The same with what programs want to know.
    #[must_use]
    pub(crate) fn with_meta(mut self, meta: Value) -> Self {
        self.meta = Some(meta);
        self
    }

    /// The result of the call.
    pub(crate) fn result(self) -> CallToolResult {
        with_meta(CallToolResult::success(self.content), self.meta)
    }
}

/// The result of a call that failed.
pub(crate) fn failed(failure: &Failure, note: &str) -> CallToolResult {
    let text = format!("Error ({}): {}{note}", failure.code(), failure.message());
    with_meta(CallToolResult::error(vec![ContentBlock::text(text)]), Some(json!({ "error": failure.code() })))
}

fn with_meta(mut result: CallToolResult, meta: Option<Value>) -> CallToolResult {
    if let Some(meta) = meta {
        let mut object = MetaObject::default();
        object.0.insert(META.to_owned(), meta);
        result.meta = Some(object);
    }
    result
}

/// Lines of text up to a number of bytes. What doesn't fit is counted.
#[derive(Debug)]
pub(crate) struct Lines {
    text: String,
    most: usize,
    left_out: usize,
}

impl Lines {
    /// At most so many bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { text: String::new(), most: usize::try_from(most).unwrap_or(usize::MAX), left_out: 0 }
    }

    /// Adds a line, if it fits.
    pub(crate) fn push(&mut self, line: &str) {
        if self.left_out > 0 || self.text.len() + line.len() + 1 > self.most {
            self.left_out += 1;
            return;
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The lines, or `none` if there are none; then what is missing, and how to get it.
    pub(crate) fn finish(self, none: &str, partial: Option<&Partial>, narrow: &str) -> Reply {
        let mut notes = String::new();
        if self.left_out > 0 {
            notes = format!("[{} more lines don't fit: {narrow}]", self.left_out);
        }
        if let Some(partial) = partial {
            let gap = if notes.is_empty() { "" } else { "\n" };
            notes = format!("{notes}{gap}[incomplete: {}; {narrow}]", quoted(&partial.detail, QUOTE));
        }
        let text = if self.text.is_empty() && self.left_out == 0 { none.to_owned() } else { self.text };
        let reply = if text.is_empty() { Reply::default() } else { Reply::text(text) };
        if notes.is_empty() { reply } else { reply.and_text(notes) }
    }
}

/// A path in one line: control characters are escaped, so that no name can pass for another line.
pub(crate) fn shown(path: &RawPath) -> String {
    // Escapes are longer than what they stand for.
    quoted(&path.to_string_lossy(), 2 * PATH_MAX)
}

/// A path for programs; none if it is longer than paths are.
pub(crate) fn exact(path: &RawPath) -> Option<&RawPath> {
    Some(path).filter(|path| path.as_bytes().len() <= PATH_MAX)
}

/// Text in one line.
pub(crate) fn one_line(text: &str) -> String {
    quoted(text, usize::MAX)
}

/// Text of the sandbox in one line, at most so many bytes of it. A podbayd that was tampered with chooses what it says and how
/// much: none of it may pass for a line of ours, or crowd out the rest of the result.
pub(crate) fn quoted(text: &str, most: usize) -> String {
    let mut line = String::new();
    for (at, character) in text.char_indices() {
        let before = line.len();
        match character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
        if line.len() > most {
            line.truncate(before);
            line.push_str(&format!("… ({} more bytes)", text.len() - at));
            break;
        }
    }
    line
}

/// The same for text of several lines. The following ones are indented, so that none of them looks like one of ours.
pub(crate) fn quoted_lines(text: &str, most: usize) -> String {
    let mut quote = String::new();
    for line in text.lines() {
        if quote.len() >= most {
            quote.push_str("\n  …");
            break;
        }
        if !quote.is_empty() {
            quote.push_str("\n  ");
        }
        quote.push_str(&quoted(line, most.saturating_sub(quote.len())));
    }
    quote
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_one_line_and_short() {
        assert_eq!(quoted("as it is: ä\u{200d}", 100), "as it is: ä\u{200d}");
        assert_eq!(quoted("a\nb\r\u{1b}[2J\u{85}\u{2028}c", 100), "a\\nb\\r\\u{1b}[2J\\u{85}\\u{2028}c");
        assert_eq!(quoted("äöü", 4), "äö… (2 more bytes)");
        assert_eq!(quoted("a\nb", 2), "a… (2 more bytes)");
        let long = quoted(&"\n".repeat(1 << 20), QUOTE);
        assert!(long.len() < QUOTE + 40 && !long.contains('\n'), "{long}");
    }

    #[test]
    fn quoted_lines_stay_apart_from_ours() {
        assert_eq!(quoted_lines("one\ntwo\u{7}", 100), "one\n  two\\u{7}");
        for text in ["x\n".repeat(1 << 20), "x".repeat(1 << 20), "\n".repeat(1 << 20)] {
            assert!(quoted_lines(&text, QUOTE).len() < QUOTE + 60);
        }
    }

    #[test]
    fn what_is_too_long_for_a_path_is_none() {
        let (path, long) = (RawPath::from("/a\nb"), RawPath::from("/x".repeat(1 << 20)));
        assert_eq!((shown(&path).as_str(), exact(&path)), ("/a\\nb", Some(&path)));
        assert!(shown(&long).len() < 9_000);
        assert_eq!(exact(&long), None);
    }
}
