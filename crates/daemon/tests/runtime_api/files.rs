//! `/upload`, `/download`, `/list` and `/exists`.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use crate::support::{FORM, Runtime, form_head};

#[test]
fn files_go_up_and_down() {
    let runtime = Runtime::start();
    for (name, content) in
        [("a.txt", &b"one"[..]), ("d/e/b", b""), ("a.txt", b"two"), ("/d/abs", b"\0\xff\r\n--c-\r\n")]
    {
        let answer = runtime.upload(name, content);
        let said = format!(r#"{{"message":"File '{name}' uploaded successfully."}}"#);
        assert_eq!((answer.status, answer.text()), (200, said));
        let answer = runtime.get(&format!("/download/{name}"));
        assert_eq!((answer.status, &answer.body[..]), (200, content), "{name}");
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(answer.header("content-length"), Some(content.len().to_string().as_str()));
        assert_eq!(answer.header("content-disposition"), Some(format!("attachment; filename=\"{name}\"").as_str()));
    }
    assert_eq!(std::fs::read(runtime.base().join("d/abs")).unwrap(), b"\0\xff\r\n--c-\r\n");
    let large: Vec<u8> = (0..30_000_000_u32).map(|number| (number / 7) as u8).collect();
    assert_eq!(runtime.upload("large", &large).status, 200);
    assert!(runtime.get("/download/large").body == large);
    assert!(runtime.peak_memory() < 40 << 20, "podbayd took {} bytes", runtime.peak_memory());
}

#[test]
fn names_are_decoded_twice() {
    let runtime = Runtime::start();
    let name = "ä b%c/?#";
    assert_eq!(runtime.upload(name, b"x").status, 200);
    assert!(runtime.base().join(name).is_file());
    for path in ["%C3%A4%20b%2525c%2F%3F%23", "%25C3%25A4%2520b%2525c%252F%253F%2523"] {
        assert_eq!(runtime.get(&format!("/download/{path}")).body, b"x", "{path}");
        assert_eq!(runtime.get(&format!("/exists/{path}")).json(), json!({"path": name, "exists": true}));
    }
}

#[test]
fn directories_are_listed() {
    let runtime = Runtime::start();
    let base = runtime.base();
    std::fs::create_dir(base.join("d")).unwrap();
    std::fs::write(base.join("d/f"), "1234").unwrap();
    symlink("f", base.join("d/to-file")).unwrap();
    symlink(base.join("d"), base.join("d/to-dir")).unwrap();
    symlink("gone", base.join("d/dangling")).unwrap();
    symlink("/etc", base.join("d/outside")).unwrap();
    std::fs::write(base.join("d").join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff")), "")
        .unwrap();
    let listed = runtime.get("/list/d").json();
    let entries: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), &one["type"])).collect();
    let file = |name| (name, json!("file"));
    let expected = [
        file("dangling"),
        file("f"),
        file("outside"),
        ("to-dir", json!("directory")),
        file("to-file"),
        file("\u{fffd}"),
    ];
    assert_eq!(entries, expected.iter().map(|(name, kind)| (*name, kind)).collect::<Vec<_>>());
    for name in ["f", "to-file"] {
        let entry = listed.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        assert_eq!(entry["size"], 4);
        let modified = std::fs::metadata(base.join("d/f")).unwrap().modified().unwrap();
        let modified = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((entry["mod_time"].as_f64().unwrap() - modified).abs() < 1e-3, "{entry}");
    }
    for root in ["/list/", "/list/.", "/list/%2F"] {
        assert_eq!(runtime.get(root).json()[0]["name"], "d", "{root}");
    }
    for other in ["/list/d/f", "/list/none"] {
        let answer = runtime.get(other);
        assert_eq!((answer.status, answer.text()), (404, r#"{"message":"Path is not a directory"}"#.into()), "{other}");
    }
}

#[test]
fn links_lead_anywhere_inside_and_nowhere_else() {
    let runtime = Runtime::start();
    let base = runtime.base();
    std::fs::create_dir(base.join("v1")).unwrap();
    std::fs::write(base.join("v1/f"), "inside").unwrap();
    symlink(base.join("v1"), base.join("current")).unwrap();
    symlink("/etc", base.join("out")).unwrap();
    symlink("/etc/passwd", base.join("passwd")).unwrap();
    assert_eq!(runtime.get("/download/current/f").body, b"inside");
    assert_eq!(runtime.upload("current/new", b"x").status, 200);
    assert_eq!(std::fs::read(base.join("v1/new")).unwrap(), b"x");
    for path in
        ["out/passwd", "passwd", "../state/podbayd.lock", "%2e%2e/state", "a/../../state", "..%252fstate", "a%00"]
    {
        for kind in ["download", "list", "exists"] {
            let answer = runtime.get(&format!("/{kind}/{path}"));
            assert_eq!((answer.status, answer.text()), (403, r#"{"message":"Access denied"}"#.into()), "{kind} {path}");
        }
    }
    for name in ["../up", "out/up", "passwd", "/../up", "v1/../../up"] {
        let answer = runtime.upload(name, b"evil");
        assert_eq!((answer.status, answer.text()), (403, r#"{"message":"Access denied"}"#.into()), "{name}");
    }
    assert!(!runtime.dir.path().join("up").exists());
}

#[test]
fn what_is_missing_is_said_to_be() {
    let runtime = Runtime::start();
    std::fs::write(runtime.base().join("f"), "x").unwrap();
    std::process::Command::new("mkfifo").arg(runtime.base().join("pipe")).status().unwrap();
    symlink("loop", runtime.base().join("loop")).unwrap();
    for path in ["none", "f/x", "", ".", "pipe", "loop", &"x".repeat(5_000), &"x/".repeat(3_000)] {
        let answer = runtime.get(&format!("/download/{path}"));
        assert_eq!((answer.status, answer.text()), (404, r#"{"message":"File not found"}"#.into()), "{path}");
    }
    for (path, exists) in [("f", true), ("", true), ("pipe", true), ("none", false), ("f/x", false), ("loop", false)] {
        assert_eq!(runtime.get(&format!("/exists/{path}")).json(), json!({"path": path, "exists": exists}));
    }
    for name in ["", "/", "f/x", "pipe", "loop"] {
        let answer = runtime.upload(name, b"x");
        assert_eq!(answer.status, 500, "{name}: {}", answer.text());
        assert!(answer.text().contains("File upload failed: "), "{name}: {}", answer.text());
    }
}

/// The stock runtime emptied the file first, and left half of a new one when the client went away.
#[test]
fn an_upload_that_is_cut_off_changes_nothing() {
    let mut runtime = Runtime::start();
    assert_eq!(runtime.upload("f", b"old").status, 200);
    for name in ["f", "new/f"] {
        let mut stream = runtime.connect();
        let head =
            format!("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n{}: {}\r\n\r\n", FORM.0, FORM.1);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(form_head(name).as_bytes()).unwrap();
        stream.write_all(&vec![7; 4_000_000]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(runtime.get("/download/f").body, b"old", "readers see the old file meanwhile");
    }
    runtime.is_well();
    for _ in 0..100 {
        if std::fs::read_dir(runtime.base()).unwrap().count() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let left: Vec<_> = std::fs::read_dir(runtime.base()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["f"]);
    assert_eq!(runtime.get("/download/f").body, b"old");
}
