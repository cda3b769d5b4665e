//! Confinement, virtual paths and prefix rules.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt;

use podbay_fsops::Cancel;
use podbay_proto::files::*;
use podbay_proto::{ErrorCode, RawPath, Result};
use support::{Fixture, found, lines, raw};

/// Every operation that names a path, on `path`. Each call begins with the same files.
fn outcomes(fixture: &Fixture, scope: &Scope, path: &str) -> Vec<(&'static str, Result<()>)> {
    let path = RawPath::from(path);
    let (scope, none) = (scope.clone(), Cancel::new());
    let (edit, payload) = Edit::new(path.clone(), b"x", b"y");
    let files = &fixture.files;
    let write = Write { scope: scope.clone(), ..Write::new(path.clone()) };
    let started = files.start_write(&write).and_then(|mut pending| pending.write(b"x").and_then(|()| pending.commit()));
    vec![
        ("write", started.map(drop)),
        ("read", files.read(&Read { scope: scope.clone(), ..Read::new(path.clone()) }).map(drop)),
        ("download", files.open_download(&Download { scope: scope.clone(), ..Download::new(path.clone()) }).map(drop)),
        ("edit", files.edit(&Edit { scope: scope.clone(), ..edit }, &payload).map(drop)),
        ("stat", files.stat(&Stat { scope: scope.clone(), ..Stat::new(path.clone()) }).map(drop)),
        ("ls", files.ls(&Ls { scope: scope.clone(), ..Ls::new(path.clone()) }, &none).map(drop)),
        ("tree", files.tree(&Tree { scope: scope.clone(), ..Tree::new(path.clone()) }, &none).map(drop)),
        (
            "glob",
            files.glob(&Glob { scope: scope.clone(), path: Some(path.clone()), ..Glob::new("*") }, &none).map(drop),
        ),
        (
            "grep",
            files.grep(&Grep { scope: scope.clone(), path: Some(path.clone()), ..Grep::new("x") }, &none).map(drop),
        ),
        ("mkdir", files.mkdir(&Mkdir { scope: scope.clone(), ..Mkdir::new(path.clone()) }).map(drop)),
        ("move from", files.mv(&Move { scope: scope.clone(), ..Move::new(path.clone(), "moved") }).map(drop)),
        (
            "move to",
            files.mv(&Move { scope: scope.clone(), overwrite: true, ..Move::new("spare", path.clone()) }).map(drop),
        ),
        ("delete", files.delete(&Delete { scope, ..Delete::new(path) }, &none).map(drop)),
    ]
}

fn outside() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("root/in/f", "inside");
    fixture.put("root/spare", "");
    fixture.put("secret/f", "x");
    fixture.link("../secret", "root/up");
    fixture.link(fixture.path("secret").to_str().unwrap(), "root/absolute");
    fixture.link("../../secret/f", "root/in/file-up");
    fixture
}

#[test]
fn no_operation_leaves_the_root() {
    for is_virtual in [false, true] {
        let fixture = outside();
        let root = fixture.path("root");
        let scope = Scope { root: Some(raw(&root)), virtual_paths: is_virtual, ..Scope::default() };
        let prefix = if is_virtual { String::new() } else { root.to_str().unwrap().to_owned() };
        for path in ["/up/f", "/absolute/f", "/../secret/f", "/in/../../secret/f", "/up", "/absolute", "/in/file-up"] {
            for (operation, outcome) in outcomes(&fixture, &scope, &format!("{prefix}{path}")) {
                // These act on a link itself, which is inside.
                let on_link = matches!(path, "/up" | "/absolute" | "/in/file-up")
                    && matches!(operation, "delete" | "move from" | "move to");
                match outcome {
                    Ok(()) => assert!(on_link, "{operation} {path}"),
                    Err(error) if on_link => assert_ne!(error.code, ErrorCode::Internal),
                    Err(error) => assert_eq!(error.code, ErrorCode::EscapesRoot, "{operation} {path}: {error}"),
                }
            }
            assert_eq!(fixture.get("secret/f"), b"x", "{path}");
            assert_eq!(fixture.names("secret"), ["f"], "{path}");
            for (target, name) in [
                ("../secret", "up"),
                (fixture.path("secret").to_str().unwrap(), "absolute"),
                ("../../secret/f", "in/file-up"),
            ] {
                let _ = std::fs::remove_file(root.join(name));
                fixture.link(target, &format!("root/{name}"));
            }
            let _ = std::fs::remove_file(root.join("moved"));
            fixture.put("root/spare", "");
        }
        if !is_virtual {
            for (operation, outcome) in outcomes(&fixture, &scope, fixture.path("secret/f").to_str().unwrap()) {
                assert_eq!(outcome.unwrap_err().code, ErrorCode::EscapesRoot, "{operation}");
            }
        }
    }
}

#[test]
fn virtual_paths_are_the_same_going_in_and_coming_out() {
    let fixture = outside();
    let scope = Scope { root: Some(raw(fixture.path("root"))), virtual_paths: true, ..Scope::default() };
    let (output, text) = fixture.read(&Read { scope: scope.clone(), ..Read::new("/in/f") }).unwrap();
    assert_eq!((output.path.to_string(), text), ("/in/f".to_owned(), b"inside".to_vec()));
    let (output, _) = fixture.read(&Read { scope: scope.clone(), ..Read::new("in//./f") }).unwrap();
    assert_eq!(output.path.to_string(), "/in/f");
    let listed = fixture.files.ls(&Ls { scope: scope.clone(), ..Ls::new("/") }, &Cancel::new()).unwrap();
    let paths: Vec<_> = listed.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, ["/absolute", "/in", "/spare", "/up"]);
    // Where a link leads outside, nothing is told of what is there.
    assert!(listed.entries.iter().all(|entry| entry.link.as_ref().is_none_or(|link| link.target_kind.is_none())));
    let output = fixture.files.glob(&Glob { scope: scope.clone(), ..Glob::new("*") }, &Cancel::new()).unwrap();
    assert_eq!(
        (output.path.to_string(), found(&output)),
        ("/".to_owned(), vec!["in/f".to_owned(), "spare".to_owned()])
    );
    let output = fixture.grep(&Grep { scope: scope.clone(), ..Grep::new("inside") }).unwrap();
    assert_eq!(output.files[0].path.to_string(), "/in/f");
    let written = fixture.write(&Write { scope: scope.clone(), ..Write::new("/large_tool_results/x") }, b"1").unwrap();
    assert_eq!(written.path.to_string(), "/large_tool_results/x");
    assert_eq!(fixture.get("root/large_tool_results/x"), b"1");
    let inner = Scope { workdir: Some("/in".into()), ..scope };
    assert_eq!(fixture.read(&Read { scope: inner, ..Read::new("f") }).unwrap().0.path.to_string(), "/in/f");
}

#[test]
fn a_scope_that_makes_no_sense_is_refused() {
    let fixture = outside();
    let root = raw(fixture.path("root"));
    for scope in [
        Scope { virtual_paths: true, ..Scope::default() },
        Scope { root: Some("relative".into()), ..Scope::default() },
        Scope { root: Some("/a/../b".into()), ..Scope::default() },
        Scope { workdir: Some("".into()), ..Scope::default() },
        Scope { root: Some(root.clone()), deny_prefixes: vec!["/a/../b".into()], ..Scope::default() },
        Scope { allow_prefixes: vec!["".into()], ..Scope::default() },
    ] {
        let error = fixture.read(&Read { scope: scope.clone(), ..Read::new("f") }).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{scope:?}");
    }
    let missing = Scope { root: Some(raw(fixture.path("no"))), ..Scope::default() };
    assert_eq!(fixture.read(&Read { scope: missing, ..Read::new("f") }).unwrap_err().code, ErrorCode::NotFound);
}

fn rules(fixture: &Fixture, allow: &[&str], deny: &[&str]) -> Scope {
    let all = |paths: &[&str]| paths.iter().map(|path| raw(fixture.path(path))).collect();
    Scope { allow_prefixes: all(allow), deny_prefixes: all(deny), ..Scope::default() }
}

#[test]
fn rules_see_through_dots_and_links() {
    let fixture = Fixture::new();
    fixture.put("ok/f", "x");
    fixture.put("ok/deny/f", "x");
    fixture.put("okay/f", "x");
    fixture.put("spare", "");
    fixture.link("../okay", "ok/link");
    fixture.link("../okay/f", "ok/file-link");
    let scope = rules(&fixture, &["ok", "spare", "moved"], &["ok/deny"]);
    let denied = [
        "okay/f",
        "ok/../okay/f",
        "ok/link/f",
        "ok/link/new",
        "ok/deny/f",
        "ok/deny",
        "ok/./deny/new/deep",
        "okay/new",
    ];
    for path in denied {
        for (operation, outcome) in outcomes(&fixture, &scope, path) {
            let code = outcome.err().map(|error| error.code);
            // Rules don't apply to reading by default: it fails at most because of what is there.
            let reads = matches!(operation, "read" | "download" | "stat" | "ls" | "tree" | "glob" | "grep");
            assert_eq!(code == Some(ErrorCode::PolicyDenied), !reads, "{operation} {path}: {code:?}");
        }
    }
    // A write goes where the link leads, so the rule looks there; the link itself may be removed.
    let write = Write { scope: scope.clone(), ..Write::new("ok/file-link") };
    assert_eq!(fixture.write(&write, b"y").unwrap_err().code, ErrorCode::PolicyDenied);
    fixture.files.delete(&Delete { scope: scope.clone(), ..Delete::new("ok/file-link") }, &Cancel::new()).unwrap();
    assert_eq!(fixture.get("okay/f"), b"x");
    assert_eq!(fixture.names("okay"), ["f"]);
    // What contains something protected can't go either.
    let error =
        fixture.files.delete(&Delete { scope: scope.clone(), ..Delete::new("ok") }, &Cancel::new()).unwrap_err();
    assert_eq!(error.code, ErrorCode::PolicyDenied);
    fixture.write(&Write { scope: scope.clone(), ..Write::new("ok/new/deep") }, b"y").unwrap();
    assert_eq!(
        fixture.read(&Read { scope, ..Read::new("okay/f") }).unwrap().1,
        b"x",
        "reading isn't limited by default"
    );
}

#[test]
fn a_forbidden_link_forbids_what_it_leads_to() {
    let fixture = Fixture::new();
    fixture.put("real/f", "x");
    fixture.link("real", "name");
    let scope = rules(&fixture, &[], &["name"]);
    for path in ["name/f", "real/f", "real/new"] {
        let write = Write { scope: scope.clone(), ..Write::new(path) };
        assert_eq!(fixture.write(&write, b"y").unwrap_err().code, ErrorCode::PolicyDenied, "{path}");
    }
    // And an allowed one opens nothing: whoever can replace it by a link would choose what is allowed.
    let scope = rules(&fixture, &["name"], &[]);
    let write = Write { scope, ..Write::new("name/f") };
    assert_eq!(fixture.write(&write, b"y").unwrap_err().code, ErrorCode::PolicyDenied);
}

fn assert_all_denied(fixture: &Fixture, scope: &Scope, path: &str, context: &str) {
    for (operation, outcome) in outcomes(fixture, scope, path) {
        let code = outcome.err().map(|error| error.code);
        assert_eq!(code, Some(ErrorCode::PolicyDenied), "{context}: {operation} {path}");
    }
}

#[test]
fn a_forbidden_path_can_t_be_made_by_any_of_its_names() {
    type Links = &'static [(&'static str, &'static str)];
    let cases: [(&str, Links, &[&str]); 7] = [
        ("secret", &[], &["secret"]),
        ("secret", &[("target", "secret")], &["secret", "target"]),
        ("secret", &[("new/dir/target", "secret")], &["secret", "new/dir/target"]),
        ("secret", &[("one", "secret"), ("d/two", "one"), ("../new/x", "d/two")], &["secret", "one", "d/two", "new/x"]),
        ("linked/new/secret", &[("real", "linked"), (".", "real/x")], &["linked/new/secret", "real/new/secret"]),
        ("linked/secret", &[("new", "linked")], &["linked/secret", "new/secret"]),
        // The name of a link in a directory that has two names.
        ("linked/secret", &[("real", "linked"), ("../new", "real/secret")], &["linked/secret", "real/secret", "new"]),
    ];
    for (prefix, links, denied) in cases {
        for is_absolute in [false, true] {
            let fixture = Fixture::new();
            fixture.put("spare", "x");
            for (target, link) in links {
                let absolute = fixture.path("x").parent().unwrap().join(link).parent().unwrap().join(target);
                fixture.link(if is_absolute { absolute.to_str().unwrap() } else { target }, link);
            }
            let scope = Scope { rules_for_reads: true, ..rules(&fixture, &[], &[prefix]) };
            for path in denied {
                let context = format!("deny {prefix} with {links:?}, absolute: {is_absolute}");
                assert_all_denied(&fixture, &scope, path, &context);
                assert_all_denied(&fixture, &scope, &format!("{path}/below/deep"), &context);
            }
            fixture.write(&Write { scope, ..Write::new("secrets/f") }, b"").unwrap();
        }
    }
}

#[test]
fn a_rule_that_can_t_be_followed_forbids_everything_it_limits() {
    let fixture = Fixture::new();
    fixture.put("f", "x");
    fixture.link("loop", "loop");
    let mut scope = rules(&fixture, &[], &["loop"]);
    let error = fixture.write(&Write { scope: scope.clone(), ..Write::new("g") }, b"").unwrap_err();
    assert_eq!(
        (error.code, error.path),
        (ErrorCode::PolicyDenied, Some(raw(fixture.path("loop")))),
        "{}",
        error.message
    );
    fixture.read(&Read { scope: scope.clone(), ..Read::new("f") }).unwrap();
    scope.rules_for_reads = true;
    assert_all_denied(&fixture, &scope, "f", "a loop");
}

#[test]
fn only_a_directory_of_one_s_own_can_hide_where_a_forbidden_link_leads() {
    let fixture = Fixture::new();
    fixture.put("open/f", "");
    for path in ["open", "others"] {
        std::fs::create_dir_all(fixture.path(path)).unwrap();
        std::fs::set_permissions(fixture.path(path), PermissionsExt::from_mode(0o777)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make a directory of another user");
    }
    std::fs::set_permissions(fixture.path("others"), PermissionsExt::from_mode(0o700)).unwrap();
    support::as_ordinary_user(&fixture, || {
        std::fs::create_dir(fixture.path("open/own")).unwrap();
        std::fs::set_permissions(fixture.path("open/own"), PermissionsExt::from_mode(0o000)).unwrap();
        let write = |prefix: &str| {
            let scope = rules(&fixture, &[], &[prefix]);
            fixture.write(&Write { scope, ..Write::new("open/new") }, b"").map_err(|error| error.code)
        };
        assert!(write("others/secret/key").is_ok());
        assert_eq!(write("open/own/secret").unwrap_err(), ErrorCode::PolicyDenied);
    });
}

#[test]
fn a_root_with_two_names_doesn_t_lose_rules() {
    let fixture = Fixture::new();
    fixture.put("real/secret/f", "x");
    fixture.put("real/spare", "");
    fixture.link("real", "link");
    fixture.link(fixture.path("real/secret").to_str().unwrap(), "real/absolute");
    for root in ["link", "real"] {
        for prefix in ["link/secret", "real/secret", "link/absolute", "real/absolute", "link", "real", ""] {
            let scope =
                Scope { root: Some(raw(fixture.path(root))), rules_for_reads: true, ..rules(&fixture, &[], &[prefix]) };
            for path in ["secret", "secret/f", "secret/new/deep"] {
                let path = fixture.path(root).join(path);
                let context = format!("root {root}, deny {prefix}");
                assert_all_denied(&fixture, &scope, path.to_str().unwrap(), &context);
            }
            if prefix.contains('/') {
                let path = raw(fixture.path(root).join("free"));
                fixture.write(&Write { scope, ..Write::new(path) }, b"").unwrap();
            }
        }
    }
}

#[test]
fn rules_for_reads_hide_what_they_forbid() {
    let fixture = Fixture::new();
    fixture.put("a/open/f", "needle");
    fixture.put("a/closed/f", "needle");
    fixture.put("b/f", "needle");
    fixture.put("top", "needle");
    fixture.link("../closed/f", "a/open/link");
    let scope = Scope { rules_for_reads: true, ..rules(&fixture, &["a"], &["a/closed"]) };
    let output = fixture.grep(&Grep { scope: scope.clone(), ..Grep::new("needle") }).unwrap();
    assert_eq!(lines(&output), ["a/open/f:1:needle"]);
    let output = fixture
        .files
        .glob(&Glob { scope: scope.clone(), directories: true, ..Glob::new("*") }, &Cancel::new())
        .unwrap();
    assert_eq!(found(&output), ["a", "a/open", "a/open/f"]);
    let tree = fixture.files.tree(&Tree { scope: scope.clone(), ..Tree::new(".") }, &Cancel::new()).unwrap();
    let paths: Vec<_> = tree.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, ["a", "a/open", "a/open/f", "a/open/link"]);
    let listed = fixture.files.ls(&Ls { scope: scope.clone(), ..Ls::new("a") }, &Cancel::new()).unwrap();
    assert_eq!(listed.entries.len(), 1);
    for path in ["a/closed/f", "a/open/link", "b/f", "top", "a/closed", "b"] {
        for (operation, outcome) in outcomes(&fixture, &scope, path) {
            // These act on the link itself, which is allowed.
            if path == "a/open/link" && matches!(operation, "delete" | "move from" | "move to") {
                continue;
            }
            assert_eq!(outcome.unwrap_err().code, ErrorCode::PolicyDenied, "{operation} {path}");
        }
    }
}

#[test]
fn only_a_directory_leads_to_what_is_allowed() {
    let fixture = Fixture::new();
    fixture.put("f", "needle");
    fixture.put("d/f", "needle");
    fixture.link("d", "link");
    let scope = Scope { rules_for_reads: true, ..rules(&fixture, &["f/x", "d/x", "link/x", "missing/x"], &[]) };
    assert_all_denied(&fixture, &scope, "f", "a file above what is allowed");
    let grep = Grep { scope: scope.clone(), ..Grep::new("needle") };
    assert_eq!(lines(&fixture.grep(&grep).unwrap()).len(), 0);
    let listed = fixture.files.ls(&Ls { scope: scope.clone(), ..Ls::new(".") }, &Cancel::new()).unwrap();
    let paths: Vec<_> = listed.entries.iter().map(|entry| entry.path.clone()).collect();
    assert_eq!(paths, [raw(fixture.path("d"))]);
    let missing = fixture.read(&Read { scope, ..Read::new("missing") }).unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
}

#[test]
fn rules_work_in_the_virtual_view() {
    let fixture = outside();
    let root = Some(raw(fixture.path("root")));
    let scope = Scope { root, virtual_paths: true, allow_prefixes: vec!["/in".into()], ..Scope::default() };
    fixture.write(&Write { scope: scope.clone(), ..Write::new("/in/new") }, b"").unwrap();
    for path in ["/new", "/in/../new", "/inn/new"] {
        let error = fixture.write(&Write { scope: scope.clone(), ..Write::new(path) }, b"").unwrap_err();
        assert_eq!(error.code, ErrorCode::PolicyDenied, "{path}");
    }
    assert_eq!(fixture.names("root"), ["absolute", "in", "spare", "up"]);
}
