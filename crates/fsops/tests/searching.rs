//! Finding files and text.
#![allow(clippy::unwrap_used)]

mod support;

use podbay_fsops::{Cancel, Settings};
use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use support::{Fixture, as_ordinary_user, found, lines, raw};

#[test]
fn patterns_follow_the_shared_rules() {
    let fixture = Fixture::new();
    for name in
        ["top.py", "src/app/main.py", "src/x.yml", ".github/workflows/ci.yml", ".env", "src/.hidden.py", "a-b", "a/c"]
    {
        fixture.put(name, "");
    }
    for (pattern, expected) in [
        ("*.py", &["src/app/main.py", "top.py"][..]),
        ("/*.py", &["top.py"]),
        ("src/**/*.py", &["src/app/main.py"]),
        ("*.yml", &[".github/workflows/ci.yml", "src/x.yml"]),
        ("**/*.yml", &["src/x.yml"]),
        (".github/**", &[".github/workflows/ci.yml"]),
        (".e*", &[".env"]),
        ("*.{py,yml}", &[".github/workflows/ci.yml", "src/app/main.py", "src/x.yml", "top.py"]),
        ("src/", &[]),
        ("", &[]),
        ("!*.py", &[]),
        ("**", &[".github/workflows/ci.yml", "a-b", "a/c", "src/app/main.py", "src/x.yml", "top.py"]),
        ("[ab]*", &["a-b"]),
        ("a?{b,c}", &["a-b"]),
    ] {
        assert_eq!(fixture.glob(pattern).unwrap(), expected, "{pattern}");
    }
    for (pattern, code) in [
        ("../*", ErrorCode::InvalidPattern),
        ("a/../b", ErrorCode::InvalidPattern),
        ("a\\..\\b", ErrorCode::InvalidPattern),
        ("{0..9}{0..9}{0..9}{0..9}", ErrorCode::PatternTooBroad),
    ] {
        assert_eq!(fixture.glob(pattern).unwrap_err().code, code, "{pattern}");
    }
    let typescript = Glob { directories: true, dots: true, whole_path: true, ..Glob::new("*") };
    let output = fixture.files.glob(&typescript, &Cancel::new()).unwrap();
    assert_eq!(found(&output), [".env", ".github", "a-b", "a", "src", "top.py"]);
}

#[test]
fn a_glob_finds_files_and_links_that_stay_below_the_start() {
    let fixture = Fixture::new();
    fixture.put("in/real", "123");
    fixture.put("out/real", "");
    fixture.link("real", "in/ok");
    fixture.link("../out/real", "in/leaves");
    fixture.link("nowhere", "in/broken");
    fixture.link("sub", "in/to-dir");
    fixture.put("in/sub/x", "");
    fixture.link(fixture.path("in/real").to_str().unwrap(), "in/absolute");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("in/fifo"), rustix::fs::Mode::RWXU).unwrap();
    let output = fixture.files.glob(&Glob { path: Some("in".into()), ..Glob::new("*") }, &Cancel::new()).unwrap();
    assert_eq!(found(&output), ["absolute", "ok", "real", "sub/x"]);
    assert!(output.matches[1].is_link && output.matches[1].size == 3);
    assert_eq!(output.path, raw(fixture.path("in")));
    for (path, code) in
        [("no", ErrorCode::NotFound), ("in/real", ErrorCode::NotADirectory), ("in/fifo", ErrorCode::NotADirectory)]
    {
        let request = Glob { path: Some(path.into()), ..Glob::new("*") };
        assert_eq!(fixture.files.glob(&request, &Cancel::new()).unwrap_err().code, code);
    }
}

#[test]
fn limits_cut_at_the_same_place_every_time() {
    let fixture = Fixture::new();
    for number in 0..500 {
        fixture.put(&format!("{}/{number:03}", number % 7), "needle\nneedle\n");
    }
    let glob = |limit| fixture.files.glob(&Glob { limit, ..Glob::new("*") }, &Cancel::new()).unwrap();
    assert!(glob(500).partial.is_none());
    let cut = glob(499);
    assert_eq!(cut.partial.as_ref().map(|partial| partial.reason), Some(PartialReason::Budget));
    assert_eq!(found(&cut), found(&glob(500))[..499]);
    let late = fixture.files.glob(&Glob { budget_ms: 0, ..Glob::new("*") }, &Cancel::new()).unwrap();
    assert!(late.matches.len() < 500 && late.partial.unwrap().limit_reached);
    let grep = |max_count| fixture.grep(&Grep { max_count: Some(max_count), ..Grep::new("needle") }).unwrap();
    let all = lines(&grep(1000));
    assert!(all.len() == 1000 && grep(1000).partial.is_none(), "all of them, and nothing left out");
    for count in [0, 1, 2, 3, 333, 999] {
        let output = grep(count);
        assert_eq!(lines(&output), all[..count as usize]);
        assert_eq!((output.count, output.partial.unwrap().reason), (count, PartialReason::Budget));
    }
    assert!(grep(u64::MAX).partial.is_none());
    let late = fixture.grep(&Grep { budget_ms: 0, ..Grep::new("needle") }).unwrap();
    assert!(late.partial.unwrap().limit_reached);
}

#[test]
fn grep_is_literal_and_skips_what_it_should() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "x.y\r\nxzy\n\nlast x.y");
    fixture.put(".hidden/f", "x.y\n");
    fixture.put(".git/config", "x.y\n");
    fixture.put("sub/.git/config", "x.y\n");
    fixture.put(".gitignore", "*.txt\n");
    fixture.put("binary", "x.y\n\0");
    fixture.put("colon:1:name", "x.y");
    fixture.put("latin", b"x.y \xff\n");
    fixture.link("a.txt", "link");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let output = fixture.grep(&Grep::new("x.y")).unwrap();
    assert_eq!(
        lines(&output),
        [".hidden/f:1:x.y", "a.txt:1:x.y", "a.txt:4:last x.y", "colon:1:name:1:x.y", "latin:1:x.y \u{fffd}"]
    );
    assert!(output.partial.is_none() && output.count == 5);
    let in_git = fixture.grep(&Grep { path: Some(".git".into()), ..Grep::new("x.y") }).unwrap();
    assert_eq!(lines(&in_git), ["config:1:x.y"]);
    let with_git = fixture.grep(&Grep { exclude_dirs: vec![], ..Grep::new("x.y") }).unwrap();
    assert_eq!(with_git.count, 7);
    let some = fixture.grep(&Grep { glob: Some("*.{txt,md}".into()), ..Grep::new("x.y") }).unwrap();
    assert_eq!(some.count, 2);
    let file = fixture.grep(&Grep { path: Some("a.txt".into()), max_count: Some(1), ..Grep::new("x.y") }).unwrap();
    assert_eq!((file.count, file.partial.is_some()), (1, true));
    assert_eq!(file.files[0].path, raw(fixture.path("a.txt")));
    assert_eq!(fixture.grep(&Grep::new("x.y\nxzy")).unwrap().count, 0);
    assert_eq!(fixture.grep(&Grep::new("absent")).unwrap().files, []);
    for (request, code) in [
        (Grep::new(""), ErrorCode::InvalidArgument),
        (Grep { path: Some("no".into()), ..Grep::new("x") }, ErrorCode::NotFound),
        (Grep { path: Some("fifo".into()), ..Grep::new("x") }, ErrorCode::NotAFile),
        (Grep { glob: Some("../*".into()), ..Grep::new("x") }, ErrorCode::InvalidPattern),
    ] {
        assert_eq!(fixture.grep(&request).unwrap_err().code, code, "{request:?}");
    }
}

#[test]
fn lines_longer_than_a_buffer_keep_their_numbers() {
    let fixture = Fixture::new();
    let mut text = String::new();
    let mut expected = Vec::new();
    for (number, length) in [10, 70_000, 3, 200_000, 65_536, 1, 300_000].into_iter().enumerate() {
        text += &"é".repeat(length);
        if number % 2 == 1 {
            text += "needle needle";
            expected.push(number as u64 + 1);
        }
        text += "\n";
    }
    fixture.put("f", &text);
    let output = fixture.grep(&Grep { max_line_bytes: 99, ..Grep::new("needle") }).unwrap();
    let numbers: Vec<u64> = output.files[0].lines.iter().map(|line| line.line).collect();
    assert_eq!(numbers, expected);
    assert!(output.files[0].lines[0].cut && output.files[0].lines[0].text == "é".repeat(49));
    // Line by line, against the plain way to do it.
    fixture.put("f", "abc needle\nxyz\nneedle\n\n".repeat(20_000));
    let output = fixture.grep(&Grep::new("needle")).unwrap();
    let plain: Vec<u64> = (1..=80_000).filter(|line| line % 4 == 1 || line % 4 == 3).collect();
    assert_eq!(output.files[0].lines.iter().map(|line| line.line).collect::<Vec<_>>(), plain);
}

#[test]
fn what_can_t_be_read_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.put("open/f", "needle");
    fixture.put("closed/f", "needle");
    fixture.put("open/secret", "needle");
    std::fs::set_permissions(fixture.path("closed"), PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(fixture.path("open/secret"), PermissionsExt::from_mode(0o000)).unwrap();
    as_ordinary_user(&fixture, || {
        let output = fixture.files.glob(&Glob::new("*"), &Cancel::new()).unwrap();
        let partial = output.partial.clone().unwrap();
        assert_eq!(
            (found(&output), partial.reason),
            (vec!["open/f".into(), "open/secret".into()], PartialReason::Unreadable)
        );
        assert_eq!(partial.unreadable, 1);
        let output = fixture.grep(&Grep::new("needle")).unwrap();
        let partial = output.partial.unwrap();
        assert_eq!((output.count, partial.reason, partial.unreadable), (1, PartialReason::Unreadable, 2));
        for path in ["closed", "open/secret"] {
            let error = fixture.grep(&Grep { path: Some(path.into()), ..Grep::new("needle") }).unwrap_err();
            assert_eq!(error.code, ErrorCode::PermissionDenied);
        }
        assert_eq!(fixture.read(&Read::new("open/secret")).unwrap_err().code, ErrorCode::PermissionDenied);
        assert_eq!(fixture.read(&Read::new("closed/f")).unwrap_err().code, ErrorCode::PermissionDenied);
        assert_eq!(fixture.files.ls(&Ls::new("closed"), &Cancel::new()).unwrap_err().code, ErrorCode::PermissionDenied);
    });
    std::fs::set_permissions(fixture.path("closed"), PermissionsExt::from_mode(0o700)).unwrap();
}

/// A search from `/` walked the host's 150,000 files below /usr first, and ended before it came to the agent's own ones.
#[test]
fn the_working_directory_is_searched_first() {
    let fixture = Fixture::new();
    for number in 0..1000 {
        fixture.put(&format!("a/{number:04}"), "needle");
    }
    fixture.put("h/work/f", "needle");
    fixture.put("h/work/sub/f", "needle");
    fixture.put("h/worker", "needle");
    fixture.link("h/work", "b");
    // Reached by its own path and through a link, and from a start that was reached through one.
    for (start, workdir) in [("", "h/work"), ("", "b"), ("b/..", "b")] {
        let scope = Scope { workdir: Some(raw(fixture.path(workdir))), ..Scope::default() };
        let path = Some(raw(fixture.path(start)));
        let below = if start.is_empty() { "h/work" } else { "work" };
        let ours = [format!("{below}/f"), format!("{below}/sub/f")];
        let glob = Glob { path: path.clone(), scope: scope.clone(), ..Glob::new("f") };
        let grep = Grep { path, scope, ..Grep::new("needle") };

        let late = fixture.files.glob(&Glob { budget_ms: 0, ..glob.clone() }, &Cancel::new()).unwrap();
        assert_eq!(found(&late), ours, "no time, from {start:?} with {workdir:?}");
        let few = Glob { limit: 2, ..Glob { pattern: "*".into(), ..glob.clone() } };
        assert_eq!(found(&fixture.files.glob(&few, &Cancel::new()).unwrap()), ours, "the limit keeps those");
        let few = fixture.grep(&Grep { max_count: Some(2), ..grep.clone() }).unwrap();
        let paths: Vec<_> = few.files.iter().map(|file| file.path.to_string()).collect();
        assert!(paths.iter().zip(&ours).all(|(path, own)| path.ends_with(own)) && paths.len() == 2, "{paths:?}");

        // With time for everything, each file is found once and they are in order.
        let all = Glob { pattern: "*".into(), directories: true, ..glob.clone() };
        let plain = Glob { scope: Scope::default(), ..all.clone() };
        let of = |request: &Glob| found(&fixture.files.glob(request, &Cancel::new()).unwrap());
        assert_eq!(of(&all), of(&plain));
        let whole = found(&fixture.files.glob(&Glob { pattern: "*".into(), ..glob }, &Cancel::new()).unwrap());
        assert!(whole.is_sorted() && whole.len() == if start.is_empty() { 1003 } else { 3 }, "{}", whole.len());
        let whole = fixture.grep(&grep).unwrap();
        assert!(whole.files.is_sorted_by(|one, other| one.path.as_bytes() < other.path.as_bytes()));
        assert_eq!((whole.count, whole.partial), (if start.is_empty() { 1003 } else { 3 }, None));
    }
}

/// Going to the working directory first is no way around what a search leaves out.
#[test]
fn a_working_directory_that_a_search_leaves_out_isnt_searched_first() {
    let fixture = Fixture::with(|path| Settings { hidden: vec![path.join("own")], ..Settings::default() });
    for dir in ["own/work", "denied/work", ".git/work", "plain/work"] {
        fixture.put(&format!("{dir}/f"), "needle");
    }
    for (workdir, pattern, expected) in [
        ("own/work", "f", &["plain/work/f", ".git/work/f"][..]),
        ("denied/work", "f", &["plain/work/f", ".git/work/f"]),
        ("plain/work", "/.git/**", &[".git/work/f"]),
        (".git/work", "/plain/**", &["plain/work/f"]),
    ] {
        let scope = Scope {
            workdir: Some(raw(fixture.path(workdir))),
            deny_prefixes: vec![raw(fixture.path("denied"))],
            rules_for_reads: true,
            ..Scope::default()
        };
        let path = Some(raw(fixture.path("")));
        let glob = Glob { path: path.clone(), scope: scope.clone(), ..Glob::new(pattern) };
        let output = fixture.files.glob(&glob, &Cancel::new()).unwrap();
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(found(&output), expected, "{workdir} {pattern}");
        let grep = fixture.grep(&Grep { path, scope, ..Grep::new("needle") }).unwrap();
        assert_eq!(lines(&grep), ["plain/work/f:1:needle"], "{workdir}");
    }
}

#[test]
fn kernel_file_systems_are_left_out_of_a_search_from_the_top() {
    let fixture = Fixture::new();
    let request = Glob { path: Some("/".into()), budget_ms: 60_000, limit: 5, ..Glob::new("/{proc,sys,dev}/**") };
    let output = fixture.files.glob(&request, &Cancel::new()).unwrap();
    assert!(output.matches.is_empty());
    let request = Glob { path: Some("/proc/self".into()), ..Glob::new("/status") };
    assert_eq!(found(&fixture.files.glob(&request, &Cancel::new()).unwrap()), ["status"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_search_finds_what_a_plain_one_does(
        pieces in proptest::collection::vec(proptest::sample::select(vec!["a", "ab", "b", "\n", "\r\n", "é", "   "]), 1..40),
        repeat in proptest::sample::select(vec![1usize, 1, 5_000, 20_000]),
        needle in proptest::sample::select(vec!["a", "aa", "ba", "b\r", "é", "   a"]),
        most in proptest::option::of(0u64..20),
    ) {
        let content = pieces.concat().repeat(repeat);
        let fixture = Fixture::new();
        fixture.put("f", &content);
        let plain: Vec<(u64, &str)> = content
            .split('\n')
            .enumerate()
            .filter(|(_, line)| line.contains(needle))
            .map(|(index, line)| (index as u64 + 1, line.strip_suffix('\r').unwrap_or(line)))
            .collect();
        let kept = most.map_or(plain.len(), |most| plain.len().min(most as usize));
        let request = Grep { max_count: most, max_line_bytes: u64::MAX, ..Grep::new(needle) };
        let output = fixture.grep(&request).unwrap();
        // More text than one answer holds makes it partial, which another test is about.
        proptest::prop_assume!(plain.len() * 40 + content.len() < 20 << 20);
        let lines: Vec<(u64, &str)> =
            output.files.iter().flat_map(|file| &file.lines).map(|line| (line.line, line.text.as_str())).collect();
        proptest::prop_assert_eq!(lines, &plain[..kept]);
        proptest::prop_assert_eq!(output.partial.is_some(), kept < plain.len());
    }
}
