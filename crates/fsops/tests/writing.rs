//! Writing and editing.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use support::{Fixture, as_ordinary_user};

fn mode(fixture: &Fixture, name: &str) -> u32 {
    std::fs::metadata(fixture.path(name)).unwrap().mode() & 0o7777
}

#[test]
fn a_write_makes_directories_replaces_and_leaves_nothing_else() {
    let fixture = Fixture::new();
    let output = fixture.write(&Write::new("a/b/c"), b"one\r\n").unwrap();
    assert!(output.created && !output.in_place && output.size == 5);
    assert_eq!(output.path.to_string(), fixture.path("a/b/c").to_str().unwrap());
    assert_eq!(fixture.get("a/b/c"), b"one\r\n");
    let before = std::fs::metadata(fixture.path("a/b/c")).unwrap().ino();
    let output = fixture.write(&Write::new("a/b/c"), b"two").unwrap();
    assert!(!output.created && !output.in_place);
    assert_eq!(fixture.get("a/b/c"), b"two");
    assert_ne!(std::fs::metadata(fixture.path("a/b/c")).unwrap().ino(), before, "replaced, not overwritten");
    assert_eq!(fixture.names("a/b"), ["c"]);
}

#[test]
fn a_write_that_is_dropped_or_short_changes_nothing() {
    let fixture = Fixture::new();
    fixture.put("f", "old");
    let mut pending = fixture.files.start_write(&Write::new("f")).unwrap();
    pending.write(b"half").unwrap();
    assert_eq!(fixture.get("f"), b"old");
    drop(pending);
    let mut pending = fixture.files.start_write(&Write::new("new/deep/f")).unwrap();
    pending.write(b"half").unwrap();
    drop(pending);
    for (length, content) in [(5, "four"), (3, "four")] {
        let request = Write { length: Some(length), ..Write::new("f") };
        assert_eq!(fixture.write(&request, content.as_bytes()).unwrap_err().code, ErrorCode::BadMessage);
    }
    assert_eq!(fixture.get("f"), b"old");
    assert_eq!(fixture.names(""), ["f"]);
}

#[test]
fn mode_owner_and_links_stay() {
    let fixture = Fixture::new();
    let path = fixture.put("real/f", "old");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4751)).unwrap();
    fixture.link("real/f", "link");
    fixture.link("../link", "real/again");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4751)).unwrap();
    }
    let owner = std::fs::metadata(&path).unwrap();
    fixture.write(&Write::new("real/again"), b"new").unwrap();
    assert_eq!(fixture.get("real/f"), b"new");
    assert_eq!(mode(&fixture, "real/f"), 0o751, "but set-id bits, which a write clears");
    let now = std::fs::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid()), (owner.uid(), owner.gid()));
    assert!(std::fs::symlink_metadata(fixture.path("link")).unwrap().is_symlink());
    fixture.write(&Write { mode: Some(0o640), ..Write::new("link") }, b"").unwrap();
    assert_eq!(mode(&fixture, "real/f"), 0o640);
    // A link that leads nowhere yet makes its target, as a shell's redirection does.
    fixture.link("real/made", "dangling");
    fixture.write(&Write::new("dangling"), b"x").unwrap();
    assert_eq!(fixture.get("real/made"), b"x");
}

#[test]
fn create_only_is_exclusive_also_for_links_and_at_the_end() {
    let fixture = Fixture::new();
    fixture.put("f", "old");
    fixture.link("nowhere", "dangling");
    for path in ["f", "dangling"] {
        let request = Write { create_only: true, ..Write::new(path) };
        assert_eq!(fixture.write(&request, b"new").unwrap_err().code, ErrorCode::AlreadyExists);
    }
    let request = Write { create_only: true, ..Write::new("new") };
    let mut first = fixture.files.start_write(&request).unwrap();
    let mut second = fixture.files.start_write(&request).unwrap();
    first.write(b"first").unwrap();
    second.write(b"second").unwrap();
    assert!(second.commit().unwrap().created);
    assert_eq!(first.commit().unwrap_err().code, ErrorCode::AlreadyExists);
    assert_eq!(fixture.get("new"), b"second");
    assert_eq!(fixture.names(""), ["dangling", "f", "new"]);
}

#[test]
fn bad_targets_have_codes_and_stay_as_they_are() {
    let fixture = Fixture::new();
    fixture.put("d/f", "x");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    fixture.link("loop", "loop");
    for (path, code) in [
        ("d", ErrorCode::IsDirectory),
        ("/", ErrorCode::InvalidPath),
        ("d/..", ErrorCode::InvalidPath),
        ("missing/../x", ErrorCode::NotFound),
        ("fifo", ErrorCode::NotAFile),
        ("/dev/null", ErrorCode::NotAFile),
        ("d/f/x", ErrorCode::NotADirectory),
        ("loop", ErrorCode::LinkLoop),
        ("", ErrorCode::InvalidPath),
        ("a\0b", ErrorCode::InvalidPath),
        (&"n".repeat(5000), ErrorCode::InvalidPath),
        (&"n".repeat(300), ErrorCode::InvalidPath),
    ] {
        assert_eq!(fixture.write(&Write::new(path), b"y").unwrap_err().code, code, "{path}");
        let error = fixture.edit(path, "x", "y").unwrap_err();
        let expected = if matches!(path, "/" | "d/..") { ErrorCode::IsDirectory } else { code };
        assert_eq!(error.code, expected, "{path}");
    }
    let request = Write { mode: Some(0o10000), ..Write::new("new") };
    assert_eq!(fixture.write(&request, b"").unwrap_err().code, ErrorCode::InvalidArgument);
    let request = Write { parents: false, ..Write::new("no/such/dir") };
    assert_eq!(fixture.write(&request, b"").unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(fixture.names(""), ["d", "fifo", "loop"]);
    assert_eq!(fixture.get("d/f"), b"x");
}

#[test]
fn an_edit_is_literal_and_unique() {
    let fixture = Fixture::new();
    fixture.put("f", "one two two $1\n");
    let output = fixture.edit("f", "one", "$0\\1").unwrap();
    assert_eq!((output.occurrences, output.first_line, output.line_endings), (1, 1, LineEndings::AsSent));
    assert_eq!(fixture.get("f"), b"$0\\1 two two $1\n");
    let error = fixture.edit("f", "two", "x").unwrap_err();
    assert_eq!((error.code, error.count), (ErrorCode::StringNotUnique, Some(2)));
    assert!(error.message.contains("occurs 2 times"));
    let (request, payload) = Edit::new("f", b"two", b"three");
    assert_eq!(fixture.files.edit(&Edit { replace_all: true, ..request }, &payload).unwrap().occurrences, 2);
    assert_eq!(fixture.edit("f", "absent", "x").unwrap_err().code, ErrorCode::StringNotFound);
    assert_eq!(fixture.edit("f", "", "x").unwrap_err().code, ErrorCode::InvalidArgument);
    assert_eq!(fixture.get("f"), b"$0\\1 three three $1\n");
    // Occurrences don't overlap.
    fixture.put("f", "aaaa");
    assert_eq!(fixture.edit("f", "aa", "b").unwrap_err().count, Some(2));
    // The same text is accepted.
    fixture.put("f", "abc");
    assert_eq!(fixture.edit("f", "b", "b").unwrap().occurrences, 1);
    let error = fixture.edit("f", "bc\n", "x").unwrap_err();
    assert!(error.code == ErrorCode::StringNotFound && error.message.contains("line break"));
}

#[test]
fn line_ends_of_the_file_survive_an_edit() {
    // deepagents issue 2880: what was read with \n has to be found in a file with \r\n.
    let fixture = Fixture::new();
    fixture.put("f", "a\r\nb\r\nc\r\n");
    let output = fixture.edit("f", "a\nb\n", "x\ny\r\n").unwrap();
    assert_eq!(output.line_endings, LineEndings::Crlf);
    assert_eq!(fixture.get("f"), b"x\r\ny\r\nc\r\n");
    fixture.put("f", "a\nb\n");
    assert_eq!(fixture.edit("f", "a\r\nb", "1\r\n2").unwrap().line_endings, LineEndings::Lf);
    assert_eq!(fixture.get("f"), b"1\n2\n");
    // Only the form that was found is replaced, also by replace_all.
    fixture.put("f", "a\nb a\r\nb a\nb");
    let (request, payload) = Edit::new("f", b"a\nb", b"z");
    assert_eq!(fixture.files.edit(&Edit { replace_all: true, ..request }, &payload).unwrap().occurrences, 2);
    assert_eq!(fixture.get("f"), b"z a\r\nb z");
}

#[test]
fn an_edit_refuses_what_is_no_text_and_lengths_that_lie() {
    let fixture = Fixture::new();
    fixture.put("f", b"a\xff");
    assert_eq!(fixture.edit("f", "a", "b").unwrap_err().code, ErrorCode::NotText);
    fixture.put("f", "é");
    let (request, payload) = Edit::new("f", b"\xc3", b"\xc4");
    assert_eq!(fixture.files.edit(&request, &payload).unwrap_err().code, ErrorCode::InvalidArgument);
    for (old_length, new_length) in [(u64::MAX, 1), (3, 0), (0, 0), (u64::MAX, u64::MAX)] {
        let request = Edit { old_length, new_length, ..request.clone() };
        assert_eq!(fixture.files.edit(&request, b"ab").unwrap_err().code, ErrorCode::BadMessage);
    }
    assert_eq!(fixture.get("f"), "é".as_bytes());
}

#[test]
fn an_empty_file_can_be_filled_by_an_edit_that_says_so() {
    let fixture = Fixture::new();
    fixture.put("f", "");
    let (request, payload) = Edit::new("f", b"", b"text");
    let request = Edit { fill_empty: true, ..request };
    assert_eq!(fixture.files.edit(&request, &payload).unwrap().occurrences, 1);
    assert_eq!(fixture.get("f"), b"text");
    assert_eq!(fixture.files.edit(&request, &payload).unwrap_err().code, ErrorCode::InvalidArgument);
}

#[test]
fn edits_at_the_same_time_don_t_undo_each_other() {
    let fixture = Fixture::new();
    let all: String = (0..64).map(|number| format!("<{number}>\n")).collect();
    fixture.put("f", all);
    std::thread::scope(|scope| {
        for start in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for number in (start..64).step_by(4) {
                    fixture.edit("f", &format!("<{number}>"), &format!("[{number}]")).unwrap();
                }
            });
        }
    });
    let expected: String = (0..64).map(|number| format!("[{number}]\n")).collect();
    assert_eq!(String::from_utf8(fixture.get("f")).unwrap(), expected);
}

#[test]
fn megabytes_are_replaced_quickly() {
    let fixture = Fixture::new();
    let old = "a".repeat(4 << 20) + "b";
    fixture.put("f", "a".repeat(8 << 20) + &old);
    let started = std::time::Instant::now();
    assert_eq!(fixture.edit("f", &old, "c").unwrap().occurrences, 1);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    assert_eq!(fixture.get("f").len(), (8 << 20) + 1);
}

#[test]
fn a_file_in_a_directory_that_isn_t_writable_is_overwritten_in_place() {
    let fixture = Fixture::new();
    let path = fixture.put("d/f", "a long old content");
    fixture.put("d/read-only", "old");
    std::fs::set_permissions(fixture.path("d/f"), PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::set_permissions(fixture.path("d/read-only"), PermissionsExt::from_mode(0o444)).unwrap();
    std::fs::set_permissions(fixture.path("d"), PermissionsExt::from_mode(0o555)).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    as_ordinary_user(&fixture, || {
        let output = fixture.write(&Write::new("d/f"), b"new").unwrap();
        assert!(output.in_place && !output.created && output.size == 3);
        assert!(fixture.edit("d/f", "new", "newer").unwrap().in_place);
        assert_eq!(fixture.write(&Write::new("d/other"), b"x").unwrap_err().code, ErrorCode::PermissionDenied);
        assert_eq!(fixture.write(&Write::new("d/read-only"), b"x").unwrap_err().code, ErrorCode::PermissionDenied);
        assert_eq!(fixture.edit("d/read-only", "old", "x").unwrap_err().code, ErrorCode::PermissionDenied);
        // Dropped, it has changed nothing.
        fixture.files.start_write(&Write::new("d/f")).unwrap().write(b"half").unwrap();
    });
    let now = std::fs::metadata(&path).unwrap();
    assert_eq!((now.ino(), now.uid(), now.mode()), (before.ino(), before.uid(), before.mode()));
    assert_eq!(fixture.get("d/f"), b"newer");
    assert_eq!(fixture.names("d"), ["f", "read-only"]);
    std::fs::set_permissions(fixture.path("d"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_file_of_someone_else_keeps_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make a file of someone else");
    }
    let fixture = Fixture::new();
    let path = fixture.put("d/f", "old");
    std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::set_permissions(fixture.path("d"), PermissionsExt::from_mode(0o777)).unwrap();
    as_ordinary_user(&fixture, || {
        assert!(
            fixture.write(&Write::new("d/f"), b"new").unwrap().in_place,
            "a file of one's own would have another owner"
        );
    });
    let now = std::fs::metadata(&path).unwrap();
    assert_eq!((now.uid(), now.gid(), fixture.get("d/f")), (1234, 1234, b"new".to_vec()));
}
