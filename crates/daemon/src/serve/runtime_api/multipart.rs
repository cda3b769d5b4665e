//! `multipart/form-data` as it arrives: bounded memory, whatever is sent.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// The longest boundary. RFC 2046 allows 70 characters.
const LONGEST_BOUNDARY: usize = 256;

/// The most bytes before the first part, and the most bytes of a part's headers.
const MOST_HEADERS: usize = 16 << 10;

/// The most parts.
const MOST_PARTS: usize = 1_000;

/// It isn't a valid form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What comes next in a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A part begins.
    Part(PartHead),
    /// A piece of that part's content.
    Data(Bytes),
    /// The form is complete. What follows doesn't matter.
    End,
}

/// What a part's headers say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PartHead {
    pub(super) name: Vec<u8>,
    pub(super) filename: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    AfterDelimiter,
    Headers,
    Content,
    Ended,
}

/// A form that is being read.
pub(super) struct Parser {
    delimiter: memmem::Finder<'static>,
    buffer: BytesMut,
    state: State,
    parts: usize,
    /// Bytes before the first part.
    skipped: usize,
}

impl Parser {
    /// A form with the boundary that a content type names. None if it is the type of something else.
    pub(super) fn new(content_type: &[u8]) -> Option<Result<Self, Malformed>> {
        let (kind, parameters) = parameters(content_type);
        if !kind.eq_ignore_ascii_case(b"multipart/form-data") {
            return None;
        }
        let boundary = parameters.into_iter().find(|(name, _)| name == b"boundary").map(|(_, value)| value);
        let boundary = boundary.filter(|boundary| (1..=LONGEST_BOUNDARY).contains(&boundary.len()));
        Some(boundary.ok_or(Malformed).map(|boundary| Self {
            delimiter: memmem::Finder::new(&[&b"\r\n--"[..], &boundary].concat()).into_owned(),
            // The first delimiter usually has no line before it.
            buffer: BytesMut::from(&b"\r\n"[..]),
            state: State::Preamble,
            parts: 0,
            skipped: 0,
        }))
    }

    /// Adds what has arrived.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.state != State::Ended {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// What comes next; nothing if more has to arrive first.
    ///
    /// # Errors
    /// When the form is malformed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Malformed> {
        loop {
            match self.state {
                State::Preamble => {
                    let (before, found) = self.take_until_delimiter();
                    self.skipped += before.len();
                    match found {
                        _ if self.skipped > MOST_HEADERS => return Err(Malformed),
                        true => self.state = State::AfterDelimiter,
                        false => return Ok(None),
                    }
                }
                State::AfterDelimiter => {
                    let blanks = self.buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                    match &self.buffer[blanks..] {
                        _ if blanks > LONGEST_BOUNDARY => return Err(Malformed),
                        [] | [b'\r'] | [b'-'] => return Ok(None),
                        // This line end stays: headers end with an empty line, and there may be none.
                        [b'\r', b'\n', ..] => drop(self.buffer.split_to(blanks)),
                        [b'-', b'-', ..] => {
                            self.state = State::Ended;
                            self.buffer = BytesMut::new();
                            return Ok(Some(Event::End));
                        }
                        _ => return Err(Malformed),
                    }
                    self.state = State::Headers;
                }
                State::Headers => {
                    let end = memmem::find(&self.buffer, b"\r\n\r\n");
                    if end.unwrap_or(self.buffer.len()) > MOST_HEADERS || self.parts == MOST_PARTS {
                        return Err(Malformed);
                    }
                    let Some(end) = end else { return Ok(None) };
                    let head = part_head(&self.buffer[..end]);
                    drop(self.buffer.split_to(end + 4));
                    self.parts += 1;
                    self.state = State::Content;
                    return Ok(Some(Event::Part(head)));
                }
                State::Content => {
                    let (data, found) = self.take_until_delimiter();
                    if found {
                        self.state = State::AfterDelimiter;
                    }
                    match data.is_empty() {
                        false => return Ok(Some(Event::Data(data))),
                        true if found => {}
                        true => return Ok(None),
                    }
                }
                State::Ended => return Ok(None),
            }
        }
    }

    /// Takes what comes before the next delimiter, and the delimiter. Without one, all that can't be its beginning.
    fn take_until_delimiter(&mut self) -> (Bytes, bool) {
        let length = self.delimiter.needle().len();
        match self.delimiter.find(&self.buffer) {
            Some(at) => {
                let before = self.buffer.split_to(at).freeze();
                drop(self.buffer.split_to(length));
                (before, true)
            }
            None => {
                let sure = self.buffer.len().saturating_sub(length - 1);
                (self.buffer.split_to(sure).freeze(), false)
            }
        }
    }
}

fn part_head(headers: &[u8]) -> PartHead {
    let mut head = PartHead::default();
    for line in headers.split(|byte| *byte == b'\n') {
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (halves.next(), halves.next()) else { continue };
        if !name.trim_ascii().eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        for (name, value) in parameters(value).1 {
            match &name[..] {
                b"name" => head.name = value,
                b"filename" => head.filename = Some(value),
                // RFC 5987: charset'language'percent-encoded
                b"filename*" => {
                    let text = value.splitn(3, |byte| *byte == b'\'').nth(2);
                    head.filename = text.map(super::percent_decoded).or(head.filename);
                }
                _ => {}
            }
        }
    }
    head
}

/// A name and a value.
type Parameter = (Vec<u8>, Vec<u8>);

/// A header's value and its parameters, whose names are in lower case and whose values have no quotes any more.
fn parameters(value: &[u8]) -> (&[u8], Vec<Parameter>) {
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let (kind, mut rest) = value.split_at(end);
    let mut found = Vec::new();
    while let [b';', after @ ..] = rest {
        let end = after.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(after.len());
        let name = after[..end].trim_ascii().to_ascii_lowercase();
        let (value, left) = match &after[end..] {
            [b'=', value @ ..] => parameter_value(value.trim_ascii_start()),
            left => (Vec::new(), left),
        };
        found.push((name, value));
        // Whatever stands between a value and the next semicolon means nothing.
        rest = &left[left.iter().position(|byte| *byte == b';').unwrap_or(left.len())..];
    }
    (kind.trim_ascii(), found)
}

/// A value, quoted or not, and what comes after it.
fn parameter_value(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let [b'"', quoted @ ..] = text else {
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        return (text[..end].trim_ascii().to_vec(), &text[end..]);
    };
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        rest = match rest {
            [] => return (value, rest),
            [b'"', after @ ..] => return (value, after),
            [b'\\', byte @ (b'"' | b'\\'), after @ ..] | [byte, after @ ..] => {
                value.push(*byte);
                after
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events, with the pieces of each part's content joined.
    fn parsed(content_type: &str, body: &[u8], step: usize) -> Result<Vec<Event>, Malformed> {
        let mut parser = Parser::new(content_type.as_bytes()).unwrap()?;
        let mut events: Vec<Event> = Vec::new();
        for piece in body.chunks(step) {
            parser.feed(piece);
            while let Some(event) = parser.next()? {
                match (events.last_mut(), event) {
                    (Some(Event::Data(all)), Event::Data(more)) => *all = [&all[..], &more].concat().into(),
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn part(name: &str, filename: Option<&str>) -> Event {
        Event::Part(PartHead { name: name.into(), filename: filename.map(Into::into) })
    }

    const TYPE: &str = "multipart/form-data; boundary=b";

    #[test]
    fn a_form_is_the_same_however_it_is_cut() {
        let body = b"before\r\n--b \t\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d/a;b.txt\"\r\n\r\n\
            1\r\n--\r\n-b\r\n--b\r\ncontent-disposition:form-data;name=x\r\nX: y\r\n\r\n\r\n--b\r\n\r\nz\r\n--b--\r\nafter\r\n--b\r\n";
        let events = [
            part("file", Some("d/a;b.txt")),
            Event::Data(Bytes::from_static(b"1\r\n--\r\n-b")),
            part("x", None),
            part("", None),
            Event::Data(Bytes::from_static(b"z")),
            Event::End,
        ];
        for step in 1..body.len() + 1 {
            assert_eq!(parsed(TYPE, body, step).unwrap(), events, "in pieces of {step}");
        }
    }

    #[test]
    fn file_names_are_read_as_clients_write_them() {
        for (parameter, name) in [
            (r#"filename="a b""#, "a b"),
            (r#"filename="a\"b\\c""#, r#"a"b\c"#),
            (r#"filename="ü""#, "ü"),
            (r#"FileName = plain ;x=y"#, "plain"),
            (r#"filename="unclosed"#, "unclosed"),
            (r#"filename=""; x"#, ""),
            ("filename*=UTF-8''a%20%C3%BC", "a ü"),
            (r#"filename="a%20b""#, "a%20b"),
        ] {
            let body = format!("--b\r\nContent-Disposition: form-data; name=file; {parameter}\r\n\r\n");
            assert_eq!(parsed(TYPE, body.as_bytes(), 7).unwrap(), [part("file", Some(name))], "{parameter}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused_and_takes_no_memory() {
        let large = vec![b'x'; MOST_HEADERS + 100];
        let many = b"--b\r\n\r\n\r\n".repeat(MOST_PARTS + 1);
        for body in [
            &b"--bb\r\n\r\n"[..],
            b"--b\r\r\n\r\n",
            b"--b-\r\n",
            &large,
            &[&b"--b\r\nA: "[..], &large].concat(),
            &[&b"--b"[..], &[b' '; LONGEST_BOUNDARY + 1]].concat(),
            &many,
        ] {
            assert_eq!(parsed(TYPE, body, 1_000).unwrap_err(), Malformed, "{:?}", body.get(..20));
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(LONGEST_BOUNDARY + 1));
        for kind in
            ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"\"", &long]
        {
            assert!(Parser::new(kind.as_bytes()).unwrap().is_err(), "{kind}");
        }
        assert!(Parser::new(b"application/json; boundary=b").is_none());
        let mut parser = Parser::new(TYPE.as_bytes()).unwrap().unwrap();
        parser.feed(b"--b\r\n\r\n");
        assert!(matches!(parser.next(), Ok(Some(Event::Part(_)))));
        for _ in 0..1_000 {
            parser.feed(&large);
            while let Ok(Some(Event::Data(_))) = parser.next() {}
            assert!(parser.buffer.len() < 8, "{}", parser.buffer.len());
        }
    }

    #[test]
    fn no_input_breaks_it_and_how_it_is_cut_makes_no_difference() {
        const PIECES: [&str; 14] = [
            "--b",
            "\r\n",
            "\r\n--b",
            "--",
            "-",
            "\r",
            "\n",
            " ",
            "x",
            ":",
            ";",
            "\"",
            "\\",
            "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n",
        ];
        let mut state: u64 = 3;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let body: String = (0..random(20)).map(|_| PIECES[random(PIECES.len())]).collect();
            let whole = parsed(TYPE, body.as_bytes(), 10_000);
            let step = 1 + random(5);
            assert_eq!(parsed(TYPE, body.as_bytes(), step), whole, "{body:?} in pieces of {step}");
        }
    }
}
