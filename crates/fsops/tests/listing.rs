//! Listing, asking, making, deleting, moving.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::ffi::OsStrExt;

use podbay_fsops::{Cancel, Settings};
use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use support::{Fixture, raw};

fn ls(fixture: &Fixture, path: &str) -> Vec<Entry> {
    fixture.files.ls(&Ls::new(path), &Cancel::new()).unwrap().entries
}

#[test]
fn a_listing_names_children_and_tells_links_apart() {
    let fixture = Fixture::new();
    fixture.put("d/x/deep", "");
    fixture.put("d/.hidden", "12345");
    fixture.put("d/a\nb", "");
    fixture.link("x", "d/to-dir");
    fixture.link("nowhere", "d/broken");
    std::fs::write(fixture.path("d").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    let entries = ls(&fixture, "d");
    let short: Vec<_> = entries
        .iter()
        .map(|entry| (entry.path.as_bytes().rsplit(|&b| b == b'/').next().unwrap(), entry.kind))
        .collect();
    assert_eq!(
        short,
        [
            (&b".hidden"[..], Kind::File),
            (b"a\nb", Kind::File),
            (b"broken", Kind::Link),
            (b"to-dir", Kind::Link),
            (b"x", Kind::Dir),
            (b"\xff", Kind::File),
        ]
    );
    assert_eq!(entries[0].size, 5);
    assert_eq!(entries[0].path, raw(fixture.path("d/.hidden")));
    assert_eq!(entries[2].link, Some(Link { target: "nowhere".into(), target_kind: None }));
    assert_eq!(entries[3].link, Some(Link { target: "x".into(), target_kind: Some(Kind::Dir) }));
    let some = fixture.files.ls(&Ls { limit: 2, ..Ls::new("d") }, &Cancel::new()).unwrap();
    assert_eq!((some.entries.len(), some.partial.unwrap().reason), (2, PartialReason::Budget));
    assert!(fixture.files.ls(&Ls { limit: 6, ..Ls::new("d") }, &Cancel::new()).unwrap().partial.is_none());
    for (path, code) in
        [("d/x/deep", ErrorCode::NotADirectory), ("no", ErrorCode::NotFound), ("", ErrorCode::InvalidPath)]
    {
        assert_eq!(fixture.files.ls(&Ls::new(path), &Cancel::new()).unwrap_err().code, code);
    }
    std::fs::create_dir(fixture.path("empty")).unwrap();
    assert!(ls(&fixture, "empty").is_empty());
}

#[test]
fn stat_follows_unless_told_not_to() {
    let fixture = Fixture::new();
    fixture.put("f", "123");
    fixture.link("f", "l");
    let stat = fixture.files.stat(&Stat::new("l")).unwrap();
    assert_eq!((stat.entry.kind, stat.entry.size, stat.links), (Kind::File, 3, 1));
    let stat = fixture.files.stat(&Stat { follow: false, ..Stat::new("l") }).unwrap();
    assert_eq!(stat.entry.link, Some(Link { target: "f".into(), target_kind: Some(Kind::File) }));
    assert_eq!(fixture.files.stat(&Stat::new("/")).unwrap().entry.kind, Kind::Dir);
    assert_eq!(fixture.files.stat(&Stat::new("no")).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn a_tree_comes_in_order_and_can_be_continued() {
    let fixture = Fixture::new();
    for name in ["a/c/1", "a/c.txt", "a/d", "a-b", "z"] {
        fixture.put(name, "x");
    }
    fixture.link("../z", "a/l");
    let tree = |request: Tree| fixture.files.tree(&request, &Cancel::new()).unwrap();
    let paths = |output: &TreeOutput| output.entries.iter().map(|entry| entry.path.to_string()).collect::<Vec<_>>();
    let all = tree(Tree { path: None, ..Tree::new("") });
    assert_eq!(paths(&all), ["a", "a/c", "a/c/1", "a/c.txt", "a/d", "a/l", "a-b", "z"]);
    assert!(all.partial.is_none());
    assert_eq!(all.entries[5].target, Some("../z".into()));
    assert_eq!(paths(&tree(Tree { max_depth: Some(1), ..Tree::new(".") })), ["a", "a-b", "z"]);
    let mut pieces = Vec::new();
    let mut after = None;
    loop {
        let piece = tree(Tree { limit: 1, after: after.clone(), ..Tree::new(".") });
        pieces.extend(paths(&piece));
        after = piece.entries.last().map(|entry| entry.path.clone());
        if piece.partial.is_none() {
            break;
        }
    }
    assert_eq!(pieces, paths(&all));
}

#[test]
fn directories_are_made_once() {
    let fixture = Fixture::new();
    assert!(fixture.files.mkdir(&Mkdir::new("a/b/c")).unwrap().created);
    assert!(!fixture.files.mkdir(&Mkdir::new("a/b/c")).unwrap().created);
    assert!(!fixture.files.mkdir(&Mkdir::new("/")).unwrap().created);
    fixture.put("f", "");
    for (request, code) in [
        (Mkdir { exist_ok: false, ..Mkdir::new("a") }, ErrorCode::AlreadyExists),
        (Mkdir::new("f"), ErrorCode::AlreadyExists),
        (Mkdir::new("f/g"), ErrorCode::NotADirectory),
        (Mkdir { parents: false, ..Mkdir::new("x/y") }, ErrorCode::NotFound),
        (Mkdir { mode: Some(u32::MAX), ..Mkdir::new("x") }, ErrorCode::InvalidArgument),
    ] {
        assert_eq!(fixture.files.mkdir(&request).unwrap_err().code, code, "{request:?}");
    }
    fixture.files.mkdir(&Mkdir { mode: Some(0o1777), ..Mkdir::new("sticky") }).unwrap();
    assert_eq!(fixture.files.stat(&Stat::new("sticky")).unwrap().entry.mode, 0o1777);
}

#[test]
fn deleting_removes_links_as_links_and_trees_whole() {
    let fixture = Fixture::new();
    fixture.put("keep/f", "x");
    fixture.put("d/e/f", "x");
    fixture.link("../keep", "d/out");
    fixture.link("keep", "link");
    fixture.link("nowhere", "broken");
    let delete = |path: &str| fixture.files.delete(&Delete::new(path), &Cancel::new());
    assert_eq!(delete("link").unwrap().kind, Some(Kind::Link));
    assert_eq!(delete("broken").unwrap().removed, 1);
    assert_eq!(delete("d").unwrap().removed, 4);
    assert_eq!(fixture.names(""), ["keep"]);
    assert_eq!(fixture.get("keep/f"), b"x");
    assert_eq!(delete("d").unwrap_err().code, ErrorCode::NotFound);
    let quiet = Delete { missing_ok: true, ..Delete::new("d/e") };
    assert_eq!(fixture.files.delete(&quiet, &Cancel::new()).unwrap().kind, None);
    let plain = Delete { recursive: false, ..Delete::new("keep") };
    assert_eq!(fixture.files.delete(&plain, &Cancel::new()).unwrap_err().code, ErrorCode::NotEmpty);
    assert_eq!(delete("/").unwrap_err().code, ErrorCode::InvalidPath);
    assert_eq!(delete("keep/..").unwrap_err().code, ErrorCode::InvalidPath);
    assert_eq!(delete(".").unwrap_err().code, ErrorCode::InvalidPath);
}

#[test]
fn a_tree_deeper_than_descriptors_or_paths_allow_is_deleted() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("top")).unwrap();
    let mut dir = rustix::fs::open(fixture.path("top"), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..1200 {
        rustix::fs::mkdirat(&dir, "dir", rustix::fs::Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "dir", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    drop(dir);
    // Too deep to be walked, which the result says.
    let found = fixture.files.glob(&Glob::new("*"), &Cancel::new()).unwrap();
    assert_eq!(found.partial.unwrap().reason, PartialReason::Unreadable);
    let output = fixture.files.delete(&Delete::new("top"), &Cancel::new()).unwrap();
    assert_eq!(output.removed, 1201);
    assert!(fixture.names("").is_empty());
}

#[test]
fn moving_replaces_only_when_told() {
    let fixture = Fixture::new();
    fixture.put("a", "A");
    fixture.put("b", "B");
    fixture.put("d/f", "");
    let mv = |request: Move| fixture.files.mv(&request);
    assert_eq!(mv(Move::new("a", "b")).unwrap_err().code, ErrorCode::AlreadyExists);
    let output = mv(Move { overwrite: true, ..Move::new("a", "b") }).unwrap();
    assert_eq!((output.kind, output.copied), (Kind::File, false));
    assert_eq!(fixture.get("b"), b"A");
    mv(Move::new("b", "new/deep/b")).unwrap();
    assert_eq!(fixture.get("new/deep/b"), b"A");
    mv(Move::new("d", "e")).unwrap();
    fixture.put("full/x", "");
    for (request, code) in [
        (Move::new("no", "x"), ErrorCode::NotFound),
        (Move::new("e", "e/inside"), ErrorCode::InvalidArgument),
        (Move { overwrite: true, ..Move::new("e", "full") }, ErrorCode::NotEmpty),
        (Move { overwrite: true, ..Move::new("new/deep/b", "full") }, ErrorCode::IsDirectory),
        (Move { overwrite: true, ..Move::new("e", "full/x") }, ErrorCode::NotADirectory),
        (Move { parents: false, ..Move::new("e", "q/r") }, ErrorCode::NotFound),
        (Move::new("/", "x"), ErrorCode::InvalidPath),
        (Move::new("e", ""), ErrorCode::InvalidPath),
    ] {
        assert_eq!(mv(request.clone()).unwrap_err().code, code, "{request:?}");
    }
    // Two names of one file: the standard's rename would leave both.
    fixture.put("one", "1");
    std::fs::hard_link(fixture.path("one"), fixture.path("two")).unwrap();
    mv(Move { overwrite: true, ..Move::new("one", "two") }).unwrap();
    assert!(!fixture.path("one").exists() && fixture.get("two") == b"1");
    mv(Move { overwrite: true, ..Move::new("two", "two") }).unwrap();
    assert_eq!(fixture.get("two"), b"1");
}

#[test]
fn a_file_or_link_can_go_to_another_file_system() {
    let fixture = Fixture::new();
    let shm = match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(error) => return println!("skipped: no second file system at /dev/shm ({error})"),
    };
    fixture.put("f", "x");
    fixture.link("f", "l");
    fixture.put("d/f", "x");
    let there = |name: &str| shm.path().join(name);
    assert!(fixture.files.mv(&Move::new("f", raw(there("f")))).unwrap().copied);
    assert!(fixture.files.mv(&Move::new("l", raw(there("l")))).unwrap().copied);
    assert_eq!(std::fs::read(there("f")).unwrap(), b"x");
    assert_eq!(std::fs::read_link(there("l")).unwrap().to_str(), Some("f"));
    assert_eq!(fixture.files.mv(&Move::new("d", raw(there("d")))).unwrap_err().code, ErrorCode::Unsupported);
    assert_eq!(fixture.names(""), ["d"]);
}

#[test]
fn the_daemon_s_own_directory_is_hidden_and_safe() {
    let fixture = Fixture::with(|dir| Settings { hidden: vec![dir.join("x/.podbay")], ..Settings::default() });
    fixture.put("x/.podbay/exec/log", "needle");
    fixture.put("x/f", "needle");
    fixture.put("y/.podbay/f", "needle");
    assert_eq!(ls(&fixture, "x").len(), 1);
    assert_eq!(ls(&fixture, "y").len(), 1, "only the very directory is hidden, not its name");
    assert_eq!(fixture.grep(&Grep::new("needle")).unwrap().files.len(), 2);
    assert_eq!(fixture.glob("{x,y}/**/.podbay/**").unwrap(), ["y/.podbay/f"]);
    for path in ["x/.podbay", "x", "."] {
        let error = fixture.files.delete(&Delete::new(raw(fixture.path(path))), &Cancel::new()).unwrap_err();
        assert_eq!(error.code, ErrorCode::PolicyDenied, "{path}");
        let error = fixture.files.mv(&Move::new(raw(fixture.path(path)), "elsewhere")).unwrap_err();
        assert_eq!(error.code, ErrorCode::PolicyDenied, "{path}");
    }
    fixture.link(".podbay/exec", "x/link");
    let state = raw(fixture.path("x/.podbay"));
    let scope = Scope { root: Some(state), virtual_paths: true, ..Scope::default() };
    for (scope, path) in [
        (Scope::default(), "x/.podbay/exec/log"),
        (Scope::default(), "x/.podbay/exec/new/deep"),
        (Scope::default(), "x/link/log"),
        (scope, "/exec/log"),
    ] {
        let write = Write { scope: scope.clone(), ..Write::new(path) };
        let mkdir = Mkdir { scope: scope.clone(), ..Mkdir::new(path) };
        let delete = Delete { scope: scope.clone(), ..Delete::new(path) };
        let (edit, payload) = Edit::new(path, b"needle", b"x");
        let mv = |from: &str, to: &str| {
            fixture.files.mv(&Move { scope: scope.clone(), overwrite: true, ..Move::new(from, to) }).map(drop)
        };
        let outcomes = [
            fixture.write(&write, b"").map(drop),
            fixture.files.mkdir(&mkdir).map(drop),
            fixture.files.edit(&Edit { scope: scope.clone(), ..edit }, &payload).map(drop),
            fixture.files.delete(&delete, &Cancel::new()).map(drop),
            mv(path, "moved"),
            mv("x/f", path),
        ];
        for (number, outcome) in outcomes.into_iter().enumerate() {
            assert_eq!(outcome.unwrap_err().code, ErrorCode::PolicyDenied, "{number} {path}");
        }
    }
    // The link itself is somewhere else.
    fixture.files.delete(&Delete::new("x/link"), &Cancel::new()).unwrap();
    // What commands printed stays readable as a file.
    assert_eq!(fixture.read(&Read::new("x/.podbay/exec/log")).unwrap().1, b"needle");
}

#[test]
fn artefacts_are_written_where_there_is_room() {
    let fixture = Fixture::with(|dir| Settings {
        hidden: vec![dir.join("state")],
        reroots: vec![("/large_tool_results".into(), dir.join("state/large"))],
        ..Settings::default()
    });
    std::fs::create_dir_all(fixture.path("state/large")).unwrap();
    let output = fixture.write(&Write::new("/large_tool_results/call.txt"), b"x").unwrap();
    assert_eq!(output.path, raw(fixture.path("state/large/call.txt")));
    assert_eq!(fixture.read(&Read::new("//large_tool_results/./call.txt")).unwrap().1, b"x");
    assert_eq!(fixture.read(&Read::new(output.path.clone())).unwrap().1, b"x");
    fixture.write(&Write::new(output.path), b"y").unwrap();
    fixture.files.delete(&Delete::new("/large_tool_results/call.txt"), &Cancel::new()).unwrap();
    assert_eq!(fixture.write(&Write::new("state/x"), b"").unwrap_err().code, ErrorCode::PolicyDenied);
    assert_eq!(fixture.read(&Read::new("/large_tool_results_of_mine/x")).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn a_cancelled_operation_ends() {
    let fixture = Fixture::new();
    for number in 0..300 {
        fixture.put(&format!("d/{number}"), "needle");
    }
    let cancel = Cancel::new();
    cancel.cancel();
    assert_eq!(fixture.files.glob(&Glob::new("*"), &cancel).unwrap_err().code, ErrorCode::Cancelled);
    assert_eq!(fixture.files.grep(&Grep::new("needle"), &cancel).unwrap_err().code, ErrorCode::Cancelled);
    assert_eq!(fixture.files.delete(&Delete::new("d"), &cancel).unwrap_err().code, ErrorCode::Cancelled);
    assert_eq!(fixture.files.tree(&Tree::new("d"), &cancel).unwrap_err().code, ErrorCode::Cancelled);
}
