//! The audit log: what a killed client leaves in it, and `podbay audit verify`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use crate::home::{Home, text};

fn audited(home: &Home, words: &[&str]) -> std::process::Command {
    let mut command = home.podbay(words);
    command.env("PODBAY_AUDIT_FILE", "audit.jsonl").current_dir(home.path());
    command
}

/// A client that was killed once left no trace of what it had started.
#[test]
fn a_killed_client_leaves_what_it_has_begun() {
    let home = Home::new();
    assert!(audited(&home, &["create", "--name", "box"]).output().unwrap().status.success());
    let words = ["exec", "box", "--", "sh", "-c", "echo begun; sleep 60", "a b"];
    let mut client = audited(&home, &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 6];
    client.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();

    let report = home.podbay(&["--json", "audit", "verify", "audit.jsonl"]).current_dir(home.path()).output().unwrap();
    assert!(report.status.success(), "{}", text(&report.stderr));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["intact"], &report["unfinished_count"]), (&true.into(), &1.into()), "{report}");
    assert_eq!(report["unfinished"][0]["op"], "exec");
    let lines = std::fs::read_to_string(home.path().join("audit.jsonl")).unwrap();
    let entry = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let entry = entry.into_iter().find(|entry| entry["operation"] == report["unfinished"][0]["operation"]).unwrap();
    assert_eq!(entry["argv"], serde_json::json!(["sh", "-c", "echo begun; sleep 60", "a b"]));
}

#[test]
fn verify_says_what_was_done_to_a_log() {
    let home = Home::new();
    let at = |name: &str| home.path().join(name);
    for _ in 0..2 {
        assert!(audited(&home, &["run", "--", "true"]).output().unwrap().status.success());
    }
    let mode = std::fs::metadata(at("audit.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let verify = |words: &[&str]| {
        let words = [&["audit", "verify", "audit.jsonl"], words].concat();
        let output = home.podbay(&words).current_dir(home.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, _) = verify(&[]);
    assert!(code == Some(0) && out.starts_with("intact: ") && out.contains("--expect"), "{out}");
    let hash = out.lines().find_map(|line| line.strip_prefix("last hash: ")).unwrap().to_owned();
    let (code, out, _) = verify(&["--expect", &hash]);
    assert!(code == Some(0) && out.contains("the last entry is the expected one"), "{out}");
    assert_eq!(verify(&["--expect", "abc"]).0, Some(125));
    assert_eq!(verify(&["none"]).0, Some(125));

    let whole = std::fs::read_to_string(at("audit.jsonl")).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    lines.remove(1);
    std::fs::write(at("audit.jsonl"), lines.join("\n") + "\n").unwrap();
    let (code, out, _) = verify(&[]);
    assert!(code == Some(1) && out.starts_with("removed: audit.jsonl:2: entry 2 is missing"), "{out}");
    lines = whole.lines().collect();
    lines.pop();
    std::fs::write(at("audit.jsonl"), lines.join("\n") + "\n").unwrap();
    assert_eq!(verify(&[]).0, Some(0), "this can't be known without a hash");
    let (code, out, _) = verify(&["--expect", &hash]);
    assert!(code == Some(1) && out.starts_with("not found: "), "{out}");
}

#[test]
fn a_link_in_place_of_the_log_is_refused() {
    let home = Home::new();
    std::fs::write(home.path().join("victim"), "").unwrap();
    symlink("victim", home.path().join("audit.jsonl")).unwrap();
    let output = audited(&home, &["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("audit.jsonl: the audit log can't be a symbolic link"),
        "{}",
        text(&output.stderr)
    );
    assert!(std::fs::read(home.path().join("victim")).unwrap().is_empty());
}

/// The operations went on, and nobody was told that none of them was recorded.
#[test]
fn a_log_that_cant_be_written_is_said_once() {
    let home = Home::new();
    assert!(audited(&home, &["create", "--name", "box"]).output().unwrap().status.success());
    let log = std::fs::File::open(home.path().join("audit.jsonl")).unwrap();
    // A directory takes its place while the client runs.
    let mut client = audited(&home, &["exec", "--interactive", "box", "--", "sh", "-c", "echo begun; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 6];
    client.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    std::fs::remove_file(home.path().join("audit.jsonl")).unwrap();
    std::fs::create_dir(home.path().join("audit.jsonl")).unwrap();
    for _ in 0..3 {
        client.stdin.as_mut().unwrap().write_all(b"typed\n").unwrap();
        let mut typed = [0; 6];
        client.stdout.as_mut().unwrap().read_exact(&mut typed).unwrap();
    }
    drop(client.stdin.take());
    let output = client.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("podbay: warning: can't record 'exec"), "{said}");
    assert_eq!(said.matches("Operations go on").count(), 1, "{said}");
    drop(log);
}

/// The sandbox could write its own log.
#[test]
fn a_log_in_the_workspace_is_refused() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("work")).unwrap();
    let mut command = home.podbay(&["run", "--workspace", ".", "--", "true"]);
    let output =
        command.env("PODBAY_AUDIT_FILE", "audit.jsonl").current_dir(home.path().join("work")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("audit.file: commands in the sandbox could change or lock the log"), "{said}");
    assert!(!home.path().join("work/audit.jsonl").exists());
}

#[test]
fn verify_says_what_is_missing_and_what_is_incomplete() {
    let home = Home::new();
    let log = home.path().join("audit.jsonl");
    assert!(audited(&home, &["run", "--", "true"]).output().unwrap().status.success());
    let last = std::fs::read_to_string(&log).unwrap().lines().last().unwrap().to_owned();
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    let next = format!("{{\"seq\":{},\"prev\":{},\"ti", last["seq"].as_u64().unwrap() + 1, last["hash"]);
    std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(next.as_bytes()).unwrap();
    let output = home.podbay(&["audit", "verify", "audit.jsonl"]).current_dir(home.path()).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("bytes, consistent with an interrupted writer"), "{said}");
}
