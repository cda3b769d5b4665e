//! The log and its check, as a writer, a reader and an attacker see them.

mod files;
mod tampering;
mod writers;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use podbay_client::files::Write;
use podbay_proto::exec::{Command, ExecId, Target};

use super::*;

/// An audit that writes to a file.
fn audit(path: &Path, rotation: Rotation) -> Audit {
    Audit::new(AuditLog::open(path, rotation).unwrap()).strict()
}

/// Performs an operation that does nothing: two entries.
fn perform(audit: &Audit, target: &str) {
    let operation = audit.begin("box", "read", || Details::path(&target.into())).unwrap();
    audit.end(operation, Ok(RecordedEffect::bytes(5))).unwrap();
}

/// Rotates about every fourth operation.
fn small() -> Rotation {
    Rotation { max_bytes: Some(3000), keep: None }
}

/// A log and the files that it filled, sorted by name.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn entries(path: &Path) -> Vec<serde_json::Value> {
    lines(path).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_operation_has_a_beginning_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, Rotation::default());
    let mut command = Command::argv(["printf", "a b\n"]);
    command.env.insert("TOKEN".to_owned(), "s3cr3t".into());
    let operation = audit.begin("box", "exec", || Details::command(&command).with_input(b"in")).unwrap();
    audit.end(operation, Ok(RecordedEffect { exit: Some(3), ..RecordedEffect::bytes(4) })).unwrap();
    let id = ExecId::new("e1").unwrap();
    let operation = audit.begin("box", "exec.signal", || Details::exec(&id).with_signal(15, Target::Main)).unwrap();
    let denied = podbay_proto::Error::new(ErrorCode::PolicyDenied, "no signals today");
    audit.end(operation, Err(&denied.into())).unwrap();
    drop(audit.begin("box", "write", || Details::path(&Write::new("f").path).with_content(b"new")).unwrap());

    let all = entries(&path);
    assert_eq!(all.len(), 6);
    let [begun, ended] = [&all[0], &all[1]];
    assert_eq!((&begun["event"], &ended["event"]), (&"begun".into(), &"ended".into()));
    assert_eq!(begun["operation"], ended["operation"]);
    assert_eq!(begun["argv"], serde_json::json!(["printf", "a b\n"]));
    assert_eq!(begun["env"], serde_json::json!(["TOKEN"]));
    assert_eq!(begun["input"], serde_json::json!(Digest::of(b"in")));
    assert_eq!(begun["pid"], std::process::id());
    assert!(begun["decision"].is_null() && ended["argv"].is_null());
    assert_eq!((&ended["decision"], &ended["exit"], &ended["bytes"]), (&"allowed".into(), &3.into(), &4.into()));
    assert_eq!(ended["target"], "printf 'a b\n'");
    let [begun, ended] = [&all[2], &all[3]];
    assert_eq!(
        (&begun["signal"], &begun["signal_target"], &begun["exec_id"]),
        (&15.into(), &"main".into(), &"e1".into())
    );
    assert_eq!((&ended["decision"], &ended["error"]), (&"denied".into(), &"no signals today".into()));
    let [begun, ended] = [&all[4], &all[5]];
    assert_eq!(begun["content"], serde_json::json!(Digest::of(b"new")));
    assert_eq!((&ended["decision"], &ended["error"]), (&"failed".into(), &"cancelled".into()), "it was dropped");
    assert!(!std::fs::read_to_string(&path).unwrap().contains("s3cr3t"));
    assert!(verify(&[&path], None).unwrap().intact);
}

#[test]
fn only_a_strict_audit_refuses_what_it_cant_record() {
    let broken = || Audit::new(|_: &AuditEntry| Err(io::Error::other("the disk is full")));
    let operation = broken().begin("box", "read", Details::none).unwrap();
    broken().end(operation, Ok(RecordedEffect::default())).unwrap();
    let refused = broken().strict().begin("box", "read", Details::none).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::PolicyDenied));
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
}

#[test]
fn without_an_observer_nothing_is_computed() {
    let operation = Audit::default().begin("box", "write", || panic!("details were computed")).unwrap();
    Audit::default().end(operation, Ok(RecordedEffect::default())).unwrap();
}

#[test]
fn an_observer_is_told_of_both() {
    let seen: Arc<Mutex<Vec<AuditEntry>>> = Arc::default();
    let told = seen.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        told.lock().unwrap().push(entry.clone());
        Ok(())
    });
    perform(&audit, "f");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(AuditEntry::decision).collect::<Vec<_>>(), [None, Some(Decision::Allowed)]);
    assert!(seen.iter().all(|entry| entry.operation == seen[0].operation && entry.target() == "f"));
}
