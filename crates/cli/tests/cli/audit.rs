//! The audit log: what a killed client leaves in it, and `podbay audit verify`.

use std::io::Read as _;
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
