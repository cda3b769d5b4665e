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
    audit.deny(operation, &denied.into()).unwrap();
    drop(audit.begin("box", "write", || Details::path(&Write::new("f").path).with_content(b"new")).unwrap());

    let all = entries(&path);
    assert_eq!(all.len(), 6);
    let [begun, ended] = [&all[0], &all[1]];
    assert_eq!((&begun["event"], &ended["event"]), (&"begun".into(), &"ended".into()));
    assert_eq!(begun["operation"], ended["operation"]);
    assert_eq!(begun["argv"], serde_json::json!(["printf", "a b\n"]));
    let value = Digest::of(b"s3cr3t");
    assert_eq!(begun["env"], serde_json::json!([{ "name": "TOKEN", "bytes": 6, "sha256": value.sha256 }]));
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
    assert_eq!((&ended["decision"], &ended["error"]), (&"denied".into(), &"policy_denied".into()));
    assert_eq!((&ended["denied_by"], &ended["reason"]), (&"client".into(), &"no signals today".into()));
    let [begun, ended] = [&all[4], &all[5]];
    assert_eq!(begun["content"], serde_json::json!(Digest::of(b"new")));
    assert_eq!((&ended["decision"], &ended["error"]), (&"failed".into(), &"cancelled".into()), "it was dropped");
    assert!(!std::fs::read_to_string(&path).unwrap().contains("s3cr3t"));
    assert!(verify(&[&path], None).unwrap().intact);
}

/// What a sandbox answers was written as it came: 32 MiB of it made a line that `verify` called tampering and that kept other
/// writers from using the file. A denial that a sandbox claims looked like one of our own.
#[test]
fn what_a_sandbox_answers_is_a_code_and_its_own_word() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, Rotation::default());
    let hostile = "x".repeat(20 << 20);
    let answers: [(Error, &str, &str); 5] = [
        (podbay_proto::Error::new(ErrorCode::PolicyDenied, &*hostile).into(), "denied", "policy_denied"),
        (podbay_proto::Error::new(ErrorCode::EscapesRoot, &*hostile).into(), "denied", "escapes_root"),
        (podbay_proto::Error::new(ErrorCode::Unknown, &*hostile).into(), "failed", "unknown"),
        (Error::BadAnswer { what: "read", reason: hostile.clone() }, "failed", "bad_answer"),
        (Error::SandboxNotFound(hostile.clone()), "failed", "sandbox_not_found"),
    ];
    for (answer, ..) in &answers {
        let operation = audit.begin("box", "read", Details::none).unwrap();
        audit.end(operation, Err(answer)).unwrap();
    }
    // Nor is an id that a model made up.
    drop(audit.begin(&hostile, "create", || Details::sandbox(&hostile, "local")).unwrap());
    let all = entries(&path);
    for ((_, decision, code), ended) in answers.iter().zip(all.iter().skip(1).step_by(2)) {
        assert_eq!((&ended["decision"], &ended["error"]), (&(*decision).into(), &(*code).into()));
        let by_sandbox = if *decision == "denied" { "sandbox".into() } else { serde_json::Value::Null };
        assert_eq!((&ended["denied_by"], &ended["reason"]), (&by_sandbox, &serde_json::Value::Null), "{code}");
    }
    let create = &all[10];
    assert_eq!(create["sandbox"]["sha256"], Digest::of(hostile.as_bytes()).sha256);
    assert_eq!(create["sandbox"]["head"].as_str().unwrap().len(), 1024);
    assert!(std::fs::metadata(&path).unwrap().len() < 32 << 10);
    perform(&super::tests::audit(&path, Rotation::default()), "another writer");
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.unfinished_count == 0, "{report:?}");
}

/// Reading such an entry back once needed the id to be a string.
#[test]
fn an_unfinished_operation_on_an_endless_id_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, Rotation::default());
    let pending = audit.begin(&"x".repeat(5000), "create", Details::none).unwrap();
    let report = verify(&[&path], None).unwrap();
    assert_eq!(report.unfinished[0].sandbox, format!("{}…", "x".repeat(1024)));
    drop(pending);
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

/// A front end shows the failure: nobody reads the warnings of a library.
#[test]
fn an_audit_that_fails_says_so_once() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let audit = Audit::new(move |entry: &AuditEntry| match failing.load(Ordering::Relaxed) {
        // As functions that are only told of ends.
        true if entry.outcome.is_some() => Err(io::Error::other("the disk is full")),
        _ => Ok(()),
    });
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hearing = heard.clone();
    let audit = audit.with_alarm(Some(Arc::new(move |message: &str| hearing.lock().unwrap().push(message.to_owned()))));
    (0..3).for_each(|_| perform(&audit, "f"));
    assert_eq!(heard.lock().unwrap().len(), 1, "{heard:?}");
    assert!(
        heard.lock().unwrap()[0].starts_with("can't record 'read' in the audit log: the disk is full"),
        "{heard:?}"
    );
    fails.store(false, Ordering::Relaxed);
    perform(&audit, "f");
    fails.store(true, Ordering::Relaxed);
    (0..3).for_each(|_| perform(&audit, "f"));
    assert_eq!(heard.lock().unwrap().len(), 2, "{heard:?}");

    // Where it is strict, the caller is told; except of the end of an operation that was cancelled.
    let audit = audit.strict();
    let operation = audit.begin("box", "read", Details::none).unwrap();
    audit.end(operation, Ok(RecordedEffect::default())).unwrap_err();
    assert_eq!(heard.lock().unwrap().len(), 2, "{heard:?}");
    drop(audit.begin("box", "read", Details::none).unwrap());
    assert!(heard.lock().unwrap()[2].contains("was cancelled, and"), "{heard:?}");
    // What was denied wasn't carried out.
    let operation = audit.begin("box", "exec", Details::none).unwrap();
    let denied = podbay_proto::Error::new(ErrorCode::PolicyDenied, "a rule").into();
    let error = audit.deny(operation, &denied).unwrap_err().to_string();
    assert!(error.contains("was denied, and"), "{error}");
}

/// What one observer refuses, the others have heard of.
#[test]
fn an_operation_that_one_of_two_refuses_is_recorded_as_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let refuse = Audit::new(|entry: &AuditEntry| match entry.op {
        "exec" => Err(io::Error::other("not on my watch")),
        _ => Ok(()),
    });
    let both = Audit::new(AuditLog::open(&path, Rotation::default()).unwrap()).and(refuse);
    let both = both.strict();
    both.begin("box", "exec", || Details::command(&Command::shell("make"))).unwrap_err();
    perform(&both, "f");
    let all = entries(&path);
    assert_eq!(all.len(), 4);
    assert_eq!((&all[0]["event"], &all[1]["event"]), (&"begun".into(), &"ended".into()));
    assert_eq!((&all[1]["decision"], &all[1]["denied_by"]), (&"denied".into(), &"client".into()));
    assert!(all[1]["reason"].as_str().unwrap().contains("not on my watch"), "{}", all[1]);
    assert_eq!(verify(&[&path], None).unwrap().unfinished_count, 0);
}
