//! Which setting holds, and that every command keeps to the rules and the record.

use std::collections::BTreeSet;

use crate::home::{Home, text};

fn shown(home: &Home, dir: &std::path::Path, words: &[&str], variable: Option<&str>) -> serde_json::Value {
    let mut command = home.podbay(&["--json", "config"]);
    command.args(words).current_dir(dir);
    if let Some(value) = variable {
        command.env("PODBAY_IDLE_TTL", value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = all.as_array().unwrap().iter().find(|entry| entry["key"] == "idle_ttl").cloned();
    found.unwrap_or(serde_json::Value::Null)
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    assert!(shown(&home, dir.path(), &[], None).is_null());
    std::fs::write(dir.path().join("podbay.toml"), "idle_ttl = \"90s\"\n").unwrap();
    std::fs::write(dir.path().join("other.toml"), "idle_ttl = 7\n").unwrap();
    let file = shown(&home, dir.path(), &[], None);
    assert_eq!((&file["value"], &file["from"]), (&"90s".into(), &"podbay.toml".into()));
    let other = shown(&home, dir.path(), &["--config", "other.toml"], None);
    assert_eq!((&other["value"], &other["from"]), (&"7s".into(), &"other.toml".into()));
    let environment = shown(&home, dir.path(), &["--config", "other.toml"], Some("2h"));
    assert_eq!((&environment["value"], &environment["from"]), (&"2h".into(), &"environment".into()));
    let flag = shown(&home, dir.path(), &["--set", "idle_ttl=1d"], Some("2h"));
    assert_eq!((&flag["value"], &flag["from"]), (&"1d".into(), &"--set".into()));
}

#[test]
fn an_unknown_variable_is_refused_by_every_command() {
    let home = Home::new();
    for words in [&["list"][..], &["run", "--", "true"], &["doctor"], &["config"]] {
        let output = home.podbay(words).env("PODBAY_IDLE_TTTL", "1h").output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(text(&output.stderr).contains("did you mean \"PODBAY_IDLE_TTL\"?"), "{}", text(&output.stderr));
    }
}

#[test]
fn every_command_that_touches_a_sandbox_is_recorded() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    std::fs::write(dir.path().join("tree/file"), "x").unwrap();
    let run = |words: &[&str]| {
        let mut command = home.podbay(words);
        command.env("PODBAY_AUDIT_FILE", "audit").env("PODBAY_POLICY_DENY_COMMANDS", "curl");
        command.current_dir(dir.path()).output().unwrap()
    };
    for words in [
        &["create", "--name", "box"][..],
        &["exec", "box", "--", "true"],
        &["exec", "box", "--detach", "--", "sleep", "60"],
        &["exec", "box", "--", "curl", "x"],
        &["write", "box", "a", "--text", "hello"],
        &["read", "box", "a"],
        &["edit", "box", "a", "--old", "hello", "--new", "bye"],
        &["ls", "box"],
        &["glob", "box", "*"],
        &["grep", "box", "bye"],
        &["ps", "box"],
        &["cp", "tree", "box:t"],
        &["cp", "box:t", "back"],
        &["cp", "tree/file", "box:f"],
        &["cp", "box:f", "g"],
        &["run", "--", "true"],
    ] {
        let output = run(words);
        let denied = words.contains(&"curl");
        assert_eq!(output.status.success(), !denied, "{words:?}: {}", text(&output.stderr));
    }
    let detached = home.output(&["--json", "ps", "box"]);
    let detached: serde_json::Value = serde_json::from_slice(&detached.stdout).unwrap();
    let killed = run(&["kill", "box", detached[0]["id"].as_str().unwrap()]);
    assert!(killed.status.success(), "{}", text(&killed.stderr));

    let lines = std::fs::read_to_string(dir.path().join("audit")).unwrap();
    let entries: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ops: BTreeSet<&str> = entries.iter().map(|entry| entry["op"].as_str().unwrap()).collect();
    for op in [
        "exec",
        "exec.start",
        "exec.list",
        "exec.signal",
        "write",
        "read",
        "edit",
        "ls",
        "glob",
        "grep",
        "stat",
        "upload",
        "download",
        "upload_tree",
        "download_tree",
    ] {
        assert!(ops.contains(op), "{op} isn't in {ops:?}");
    }
    let curl = entries.iter().find(|entry| entry["target"] == "curl x").unwrap();
    assert_eq!((&curl["decision"], &curl["sandbox"]), (&"denied".into(), &"box".into()));
    // Each file of a tree has a line of its own.
    assert!(entries.iter().any(|entry| entry["op"] == "upload" && entry["target"] == "t/file" && entry["bytes"] == 1));
}
