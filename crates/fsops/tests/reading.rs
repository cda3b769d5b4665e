//! Reading a page, and fetching files.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read as _;

use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use support::Fixture;

fn page(fixture: &Fixture, offset: i64, limit: i64) -> (ReadOutput, String) {
    let (output, text) = fixture.read(&Read { offset, limit, ..Read::new("f") }).unwrap();
    (output, String::from_utf8(text).unwrap())
}

fn window(output: &ReadOutput) -> (u64, u64, Option<u64>, Option<u64>) {
    let lines = output.lines.expect("a window");
    (lines.start_line, lines.end_line, lines.total_lines, lines.next_offset)
}

#[test]
fn lines_come_joined_by_line_feeds_whatever_ended_them() {
    let fixture = Fixture::new();
    fixture.put("f", "a\r\nb\rc\n\nd\u{2028}e\u{b}\n");
    let (output, text) = page(&fixture, 0, 100);
    assert_eq!(text, "a\nb\nc\n\nd\u{2028}e\u{b}");
    assert_eq!(window(&output), (1, 5, Some(5), None));
    assert_eq!(output.encoding, Encoding::Utf8);
    let (output, text) = page(&fixture, 2, 2);
    assert_eq!((text.as_str(), window(&output)), ("c\n", (3, 4, Some(5), Some(4))));
    // A break that falls between two reads is still one.
    fixture.put("f", format!("{}\r\n{}", "x".repeat(8191), "y"));
    let (output, text) = page(&fixture, 1, 5);
    assert_eq!((text.as_str(), window(&output)), ("y", (2, 2, Some(2), None)));
}

#[test]
fn negative_and_absurd_numbers_mean_what_they_can() {
    let fixture = Fixture::new();
    fixture.put("f", "a\nb\n");
    assert_eq!(page(&fixture, -7, 1).1, "a");
    let (output, text) = page(&fixture, 0, -1);
    assert!(output.no_lines_requested && output.lines.is_none() && text.is_empty());
    assert!(page(&fixture, 9, 0).0.no_lines_requested);
    assert_eq!(page(&fixture, 1, i64::MAX).1, "b");
    let error = fixture.read(&Read { offset: 2, ..Read::new("f") }).unwrap_err();
    assert_eq!((error.code, error.count), (ErrorCode::OffsetPastEnd, Some(2)));
    assert!(error.message.ends_with("offset 2 is past the end of the file, which has 2 lines"), "{error}");
    let error = fixture.read(&Read { offset: i64::MAX, ..Read::new("f") }).unwrap_err();
    assert_eq!(error.code, ErrorCode::OffsetPastEnd);
}

#[test]
fn an_empty_file_is_told_apart_whatever_else_holds() {
    let fixture = Fixture::new();
    fixture.put("f", "");
    fixture.put("f.png", "");
    assert!(page(&fixture, 5, 0).0.empty);
    let (output, _) = fixture.read(&Read::new("f.png")).unwrap();
    assert!(output.empty && output.encoding == Encoding::Utf8);
}

#[test]
fn binary_is_decided_by_extension_then_by_bytes() {
    let fixture = Fixture::new();
    fixture.put("a.PNG", "text");
    let (output, bytes) = fixture.read(&Read::new("a.PNG")).unwrap();
    assert!(output.binary_by_extension && output.encoding == Encoding::Binary && bytes == b"text");
    fixture.put("b", b"ab\xff\n");
    let (output, bytes) = fixture.read(&Read { limit: 0, ..Read::new("b") }).unwrap();
    assert!(!output.binary_by_extension && output.encoding == Encoding::Binary && bytes == b"ab\xff\n");
    fixture.put("nul", "a\0b\n");
    fixture.put("bom", "\u{feff}a\n");
    assert_eq!(fixture.read(&Read::new("nul")).unwrap().0.encoding, Encoding::Utf8);
    assert_eq!(fixture.read(&Read::new("bom")).unwrap().1, "\u{feff}a".as_bytes());
    // Upstream's script crashed on this one: an invalid byte behind the part that was looked at.
    fixture.put("late", [&vec![b'a'; 9000][..], b"\xff"].concat());
    assert_eq!(fixture.read(&Read::new("late")).unwrap().0.encoding, Encoding::Binary);
    // A character that is cut by the part that is looked at is still text.
    fixture.put("cut", format!("{}é", "a".repeat(8191)));
    assert_eq!(fixture.read(&Read::new("cut")).unwrap().0.encoding, Encoding::Utf8);
    for (name, limit) in [("big.png", 512_000), ("big", 512_000)] {
        fixture.put(name, [b"\xff".to_vec(), vec![0; limit]].concat());
        let error = fixture.read(&Read::new(name)).unwrap_err();
        assert_eq!((error.code, error.count), (ErrorCode::TooLarge, Some(limit as u64 + 1)));
        assert!(error.message.contains("at most 512000 bytes of a binary file"), "{error}");
    }
    let all = Read { max_binary_bytes: 10 << 20, ..Read::new("big") };
    assert_eq!(fixture.read(&all).unwrap().1.len(), 512_001);
}

#[test]
fn a_full_page_ends_with_a_part_of_a_line_that_the_next_one_repeats() {
    let fixture = Fixture::new();
    fixture.put("f", format!("{}\n", "x".repeat(999)).repeat(2000));
    let request = Read { reserve_bytes: 194, ..Read::new("f") };
    let (output, text) = fixture.read(&request).unwrap();
    assert_eq!(window(&output), (1, 511, Some(2000), Some(511)));
    assert_eq!(text.len(), 512_000 - 194);
    let partial = output.truncated.unwrap();
    assert_eq!(partial.partial_line_bytes, 512_000 - 194 - (511 * 1000 - 1));
    assert!(!partial.first_line_cut);
    // One line that doesn't fit still lets the reader go on.
    fixture.put("f", format!("{}\nend\n", "é".repeat(300_000)));
    let (output, text) = fixture.read(&Read { max_bytes: 1001, ..Read::new("f") }).unwrap();
    assert_eq!(window(&output), (1, 1, Some(2), Some(1)));
    assert_eq!(text.len(), 1000, "cut between characters");
    assert!(output.truncated.unwrap().first_line_cut);
    let (output, _) = fixture.read(&Read { max_bytes: 0, ..Read::new("f") }).unwrap();
    assert_eq!(window(&output), (1, 1, Some(2), Some(1)));
}

#[test]
fn a_large_file_is_counted_only_as_far_as_asked() {
    let fixture = Fixture::new();
    fixture.put("f", "line\n".repeat(100_000));
    let request = Read { limit: 10, count_lines_up_to: 1000, ..Read::new("f") };
    assert_eq!(window(&fixture.read(&request).unwrap().0), (1, 10, None, Some(10)));
    let last = Read { offset: 99_990, ..request };
    assert_eq!(window(&fixture.read(&last).unwrap().0), (99_991, 100_000, Some(100_000), None));
}

#[test]
fn ranges_of_bytes_are_cut_at_the_end() {
    let fixture = Fixture::new();
    fixture.put("f", "0123456789");
    for (start, length, expected) in [(0, None, "0123456789"), (8, Some(9), "89"), (3, Some(2), "34"), (99, None, "")] {
        let request = Read { bytes: Some(ByteRange { start, length }), ..Read::new("f") };
        let (output, bytes) = fixture.read(&request).unwrap();
        assert_eq!(bytes, expected.as_bytes());
        assert_eq!(output.bytes.unwrap().length, expected.len() as u64);
        let (output, mut file) =
            fixture.files.open_download(&Download { start, length, ..Download::new("f") }).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), output.length), (expected.as_bytes(), expected.len() as u64));
    }
    let request = Read { bytes: Some(ByteRange { start: u64::MAX, length: Some(u64::MAX) }), ..Read::new("f") };
    assert!(fixture.read(&request).unwrap().1.is_empty());
}

#[test]
fn files_of_the_kernel_have_a_content_though_no_size() {
    let fixture = Fixture::new();
    let (output, text) = fixture.read(&Read::new("/proc/self/status")).unwrap();
    assert!(!output.empty && String::from_utf8(text).unwrap().contains("Pid:"));
}

#[test]
fn what_is_no_file_has_a_code_of_its_own() {
    let fixture = Fixture::new();
    fixture.put("d/f", "x");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    fixture.link("loop", "loop");
    fixture.link("nowhere", "dangling");
    for (path, code) in [
        ("d", ErrorCode::IsDirectory),
        ("/", ErrorCode::IsDirectory),
        ("d/..", ErrorCode::IsDirectory),
        ("fifo", ErrorCode::NotAFile),
        ("/dev/null", ErrorCode::NotAFile),
        ("missing", ErrorCode::NotFound),
        ("dangling", ErrorCode::NotFound),
        ("d/f/x", ErrorCode::NotADirectory),
        ("loop", ErrorCode::LinkLoop),
        ("", ErrorCode::InvalidPath),
        ("a\0b", ErrorCode::InvalidPath),
        (&"n".repeat(5000), ErrorCode::InvalidPath),
        (&"n".repeat(300), ErrorCode::InvalidPath),
    ] {
        assert_eq!(fixture.read(&Read::new(path)).unwrap_err().code, code, "{path}");
        assert_eq!(fixture.files.open_download(&Download::new(path)).unwrap_err().code, code, "{path}");
    }
}

/// A page as the agent framework's own script makes it: line by line, with the same order of decisions.
struct Plain {
    text: String,
    end_line: u64,
    cut: bool,
    total: u64,
}

fn plain(content: &str, offset: usize, limit: usize, most: usize) -> Option<Plain> {
    let unified = content.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = unified.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let mut page = Plain { text: String::new(), end_line: offset as u64, cut: false, total: lines.len() as u64 };
    for (index, line) in lines.iter().enumerate().skip(offset).take(limit) {
        let piece = if index == offset { (*line).to_owned() } else { format!("\n{line}") };
        if page.text.len() + piece.len() > most {
            page.cut = true;
            let mut end = most - page.text.len();
            while !piece.is_char_boundary(end) {
                end -= 1;
            }
            page.text += &piece[..end];
            break;
        }
        page.text += &piece;
        page.end_line += 1;
    }
    if page.end_line == offset as u64 && !page.cut {
        return None;
    }
    page.end_line = page.end_line.max(offset as u64 + 1);
    Some(page)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_page_is_the_plain_one(
        pieces in proptest::collection::vec(proptest::sample::select(vec!["a", "é", "\n", "\r\n", "\r", "日本", "", "xyz"]), 1..40),
        repeat in proptest::sample::select(vec![1usize, 1, 1, 700, 3000]),
        offset in 0usize..12,
        limit in 1usize..12,
        most in 0usize..60,
    ) {
        let content = pieces.concat().repeat(repeat);
        proptest::prop_assume!(!content.is_empty());
        let fixture = Fixture::new();
        fixture.put("f", &content);
        // Near the end, too, where reads of the file meet.
        let offset = if repeat > 1 { offset * 997 } else { offset };
        let request = Read { offset: offset as i64, limit: limit as i64, max_bytes: most as u64, ..Read::new("f") };
        let ours = fixture.read(&request);
        match plain(&content, offset, limit, most) {
            None => proptest::prop_assert_eq!(ours.unwrap_err().code, ErrorCode::OffsetPastEnd),
            Some(page) => {
                let (output, text) = ours.unwrap();
                proptest::prop_assert_eq!(String::from_utf8(text).unwrap(), page.text);
                let next = (page.end_line < page.total).then_some(page.end_line);
                proptest::prop_assert_eq!(window(&output), (offset as u64 + 1, page.end_line, Some(page.total), next));
                proptest::prop_assert_eq!(output.truncated.is_some(), page.cut);
            }
        }
    }
}
