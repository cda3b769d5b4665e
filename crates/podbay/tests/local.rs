//! The core on local sandboxes: the operation suite, the manager, rules and the record.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suite;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podbay::audit::{Audit, AuditEntry, AuditLog, Decision, Rotation};
use podbay::files::{Download, Ls, Read, Scope, Write};
use podbay::local::{Home, Local};
use podbay::policy::{CommandRules, Matching, Policy};
use podbay::provider::{Provided, Provider, Query, Wanted};
use podbay::{ErrorCode, Podbay, Sandbox, thread};

/// A home of the test's own, and what is made there.
fn local(home: &tempfile::TempDir) -> Arc<Local> {
    Arc::new(Local::at(Home::at(home.path().join("h")).unwrap()))
}

/// An observer that can record nothing but that somebody wants to use a sandbox.
fn full_disk(entry: &AuditEntry) -> io::Result<()> {
    match entry.op {
        "reconnect" => Ok(()),
        _ => Err(io::Error::other("the disk is full")),
    }
}

/// The same sandbox, with rules and audit.
async fn guarded(local: &Arc<Local>, made: &Provided, policy: Policy, audit: Audit) -> Sandbox {
    let podbay = Podbay::builder().provider(local.clone()).policy(policy).audit(audit).build().unwrap();
    podbay.reconnect(&made.id).await.unwrap()
}

/// Sandboxes of a test end with its process, whatever happens to it.
fn leashed() -> Wanted {
    Wanted { leashed: true, ..Wanted::default() }
}

#[tokio::test]
async fn the_operation_suite() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    suite::all(&made.sandbox).await;
    local.delete(&made.id).await.unwrap();
}

/// The same suite with Landlock alone, as on machines without user namespaces.
#[tokio::test]
async fn the_operation_suite_without_namespaces() {
    // Root's sandbox is a user of its own there, who has to get to its directory.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let home = tempfile::Builder::new().permissions(open).tempdir().unwrap();
    let options = podbay::local::Options { isolation: podbay::local::Isolation::Landlock, ..Default::default() };
    let local = Local::at(Home::at(home.path().join("h")).unwrap()).with(options);
    let made = local.get_or_create(&leashed()).await.unwrap();
    suite::all(&made.sandbox).await;
    local.delete(&made.id).await.unwrap();
}

/// A full disk once made every command's outcome unknown, the one that would have made room included.
#[tokio::test]
async fn on_a_full_disk_commands_still_tell_how_they_ended() {
    let home = tempfile::tempdir().unwrap();
    let limits = podbay::local::JailLimits { disk: Some(8 << 20), ..Default::default() };
    let options = podbay::local::Options { limits, ..Default::default() };
    let local = Local::at(Home::at(home.path().join("h")).unwrap()).with(options);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let filled = made.sandbox.run("cat /dev/zero > big; exit 3").await.unwrap();
    assert_eq!(filled.code(), Some(3), "{:?}", filled.info);
    let printed = made.sandbox.run("echo something").await.unwrap();
    assert_eq!((printed.code(), printed.info.output_bytes), (Some(0), 10), "{:?}", printed.info);
    assert_eq!(printed.bytes().len() as u64 + printed.cut.map_or(0, |cut| cut.bytes), 10);
    assert_eq!(made.sandbox.run("rm big").await.unwrap().code(), Some(0));
    assert_eq!(made.sandbox.run("echo room again").await.unwrap().text(), "room again\n");
    local.delete(&made.id).await.unwrap();
}

#[tokio::test]
async fn a_thread_keeps_its_sandbox_and_hears_of_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let wanted = Wanted { ttl: Some(Duration::from_secs(4)), ..leashed() };
    let of = || Podbay::builder().provider(local.clone()).build().unwrap();
    let (one, other) = (of(), of());
    let first = one.thread_with("acme", "t1", wanted.clone()).await.unwrap();
    assert!((first.created(), first.replaced()) == (true, false));
    first.run("echo kept > file").await.unwrap();
    let same = other.thread("acme", "t1").await.unwrap();
    assert!((same.created(), same.replaced()) == (false, false) && same.id() == first.id());
    assert_eq!(same.run("cat file").await.unwrap().text(), "kept\n");
    let stranger = one.thread_with("other", "t1", wanted.clone()).await.unwrap();
    assert_ne!(stranger.id(), first.id());

    let labels = thread::labels("acme", None);
    let page = one.list(&Query { labels, ..Query::default() }).await.unwrap();
    assert_eq!(page.sandboxes.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), [first.id()]);

    while local.reconnect(first.id()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let again = one.thread_with("acme", "t1", wanted).await.unwrap();
    assert!((again.created(), again.replaced()) == (true, true), "it had ended, and the caller is told");
    let told = other.thread("acme", "t1").await.unwrap();
    assert!((told.created(), told.replaced()) == (false, true), "also when another process has replaced it");
    assert_eq!(told.run("ls").await.unwrap().text(), "");
    assert!(told.destroy().await.unwrap());
    assert!(!again.destroy().await.unwrap());
    stranger.destroy().await.unwrap();
}

/// One of the processes of the test below.
async fn race_for_a_thread(home: String) {
    let podbay = Podbay::builder().provider(Arc::new(Local::at(Home::at(home).unwrap()))).build().unwrap();
    let got = podbay.thread("tenant", "thread").await.unwrap();
    let instance = got.hello().await.unwrap().instance;
    println!("got {} {} {instance}", got.created(), got.id());
}

#[tokio::test]
async fn fifty_processes_that_want_one_thread_get_one_sandbox() {
    // The test starts itself fifty times.
    if let Ok(home) = std::env::var("RACE_HOME") {
        return race_for_a_thread(home).await;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("h");
    let children: Vec<_> = (0..50)
        .map(|_| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["fifty_processes_that_want_one_thread_get_one_sandbox", "--exact", "--nocapture"]);
            command.env("RACE_HOME", &path);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            text.lines().find_map(|line| line.split_once("got ").map(|(_, rest)| rest.to_owned())).unwrap()
        })
        .collect();
    let local = local(&home);
    assert!(local.delete(&thread::sandbox_id("tenant", "thread")).await.unwrap());
    let makers = outputs.iter().filter(|line| line.starts_with("true")).count();
    let mut sandboxes: Vec<&str> = outputs.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    sandboxes.dedup();
    assert_eq!((makers, sandboxes.len()), (1, 1), "{outputs:?}");
}

#[tokio::test]
async fn rules_hold_and_everything_is_recorded() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let policy = Policy {
        paths: Scope { deny_prefixes: vec!["/workspace/secret".into()], ..Scope::default() },
        commands: CommandRules::deny(["rm -rf"], Matching::Words),
    };
    let entries: Arc<Mutex<Vec<AuditEntry>>> = Arc::default();
    let record = entries.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        record.lock().unwrap().push(entry.clone());
        Ok(())
    });
    let sandbox = guarded(&local, &made, policy, audit).await;
    entries.lock().unwrap().clear();

    sandbox.write(&Write::new("/workspace/a"), "hello").await.unwrap();
    sandbox.read(&Read::new("/workspace/a")).await.unwrap();
    let denied = sandbox.write(&Write::new("/workspace/secret/b"), "x").await.unwrap_err();
    assert_eq!(denied.code(), Some(ErrorCode::PolicyDenied));
    let wider = Write {
        scope: Scope { allow_prefixes: vec!["/".into()], ..Scope::default() },
        ..Write::new("/workspace/secret/b")
    };
    assert_eq!(
        sandbox.write(&wider, "x").await.unwrap_err().code(),
        Some(ErrorCode::PolicyDenied),
        "asking only narrows"
    );
    let several = vec![(Write::new("/workspace/c"), "c".into()), (Write::new("/workspace/secret/d"), "d".into())];
    let results = sandbox.write_all(several).await;
    assert!(results[0].is_ok() && results[1].as_ref().unwrap_err().code() == Some(ErrorCode::PolicyDenied));
    assert_eq!(sandbox.run("exit 7").await.unwrap().code(), Some(7));
    let denied = sandbox.run("true; r''m -fr /workspace").await.unwrap_err();
    assert_eq!(denied.code(), Some(ErrorCode::PolicyDenied));
    assert!(sandbox.start("rm -rf x").await.is_err() && sandbox.spawn("rm -rf x").await.is_err());
    sandbox.read(&Read::new("/workspace/none")).await.unwrap_err();
    sandbox.ls(&Ls::new("/workspace")).await.unwrap();
    sandbox.download(&Download::new("/workspace/a")).await.unwrap();

    let entries = std::mem::take(&mut *entries.lock().unwrap());
    let ends = entries.iter().filter_map(|entry| Some((entry.op, entry.outcome.as_ref()?)));
    let mut seen: Vec<_> =
        ends.map(|(op, outcome)| (op, outcome.decision, outcome.effect.bytes, outcome.effect.exit)).collect();
    // The two of `write_all` are done at the same time, and end in any order.
    seen[4..6].sort_by_key(|(_, decision, ..)| *decision != Decision::Allowed);
    assert_eq!(entries.len(), 2 * seen.len(), "each has a beginning");
    use Decision::{Allowed, Denied, Failed};
    assert_eq!(
        seen,
        [
            ("write", Allowed, Some(5), None),
            ("read", Allowed, Some(5), None),
            ("write", Denied, None, None),
            ("write", Denied, None, None),
            ("write", Allowed, Some(1), None),
            ("write", Denied, None, None),
            ("exec", Allowed, Some(0), Some(7)),
            ("exec", Denied, None, None),
            ("exec.start", Denied, None, None),
            ("exec", Denied, None, None),
            ("read", Failed, None, None),
            ("ls", Allowed, None, None),
            ("download", Allowed, Some(5), None),
        ]
    );
    local.delete(&made.id).await.unwrap();
}

#[tokio::test]
async fn a_strict_audit_stops_what_it_cant_record() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let broken = || Audit::new(full_disk);
    let open = guarded(&local, &made, Policy::default(), broken()).await;
    open.write(&Write::new("open"), "x").await.unwrap();
    let strict = guarded(&local, &made, Policy::default(), broken().strict()).await;
    let error = strict.write(&Write::new("strict"), "x").await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(strict.run("touch strict").await.is_err());
    assert_eq!(made.sandbox.run("ls").await.unwrap().text(), "open\n", "it was stopped before it happened");

    let file = home.path().join("audit.jsonl");
    let audit = Audit::new(AuditLog::open(&file, Rotation::default()).unwrap());
    let recorded = guarded(&local, &made, Policy::default(), audit).await;
    recorded.run("echo hi").await.unwrap();
    recorded.read(&Read::new("none")).await.unwrap_err();
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert!(lines.contains(r#""op":"exec","target":"echo hi","exec_id":""#), "{lines}");
    assert!(lines.contains(r#""shell":"echo hi""#), "{lines}");
    assert!(lines.contains(r#""op":"exec","target":"echo hi","decision":"allowed""#), "{lines}");
    assert!(lines.contains(r#""decision":"failed""#) && lines.contains(r#""error":"not_found""#), "{lines}");
    local.delete(&made.id).await.unwrap();
}

/// People put keys into environment variables; the record is read by others.
#[tokio::test]
async fn values_of_environment_variables_are_not_recorded() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let file = home.path().join("audit.jsonl");
    let audit = Audit::new(AuditLog::open(&file, Rotation::default()).unwrap()).strict();
    let recorded = guarded(&local, &made, Policy::default(), audit).await;
    let mut command = podbay::Command::shell("echo $KEY");
    command.env.insert("KEY".into(), "s3cr3t".into());
    assert_eq!(recorded.run(command.clone()).await.unwrap().text(), "s3cr3t\n");
    recorded.start(command).await.unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    assert!(lines.contains("echo $KEY") && !lines.contains("s3cr3t"), "{lines}");
    local.delete(&made.id).await.unwrap();
}

/// Input and signals once passed unrecorded, so that `sh` was all that the log had of whatever was typed into it.
#[tokio::test]
async fn input_and_signals_are_recorded() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let file = home.path().join("audit.jsonl");
    let audit = Audit::new(AuditLog::open(&file, Rotation::default()).unwrap());
    let recorded = guarded(&local, &made, Policy::default(), audit).await;
    let mut exec = recorded.spawn(podbay::Command { stdin: true, ..podbay::Command::argv(["sh"]) }).await.unwrap();
    let mut control = exec.control();
    control.write("echo typed; sleep 100\n").await.unwrap();
    control.signal(15).await.unwrap();
    control.close_input().await.unwrap();
    while exec.next().await.unwrap().is_some() {}
    recorded.run_with_input("cat", "given", 1000).await.unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    let entries: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let begun = |op: &str| entries.iter().filter(|e| e["op"] == op && e["event"] == "begun").collect::<Vec<_>>();
    let typed = podbay::audit::Digest::of(b"echo typed; sleep 100\n");
    assert_eq!(begun("exec.input")[0]["input"], serde_json::json!(typed));
    assert_eq!(begun("exec.input")[1]["closes_input"], true);
    assert_eq!(
        (&begun("exec.signal")[0]["signal"], &begun("exec.signal")[0]["signal_target"]),
        (&15.into(), &"all".into())
    );
    assert_eq!(begun("exec.signal")[0]["exec_id"], exec.id().as_str());
    assert_eq!(begun("exec")[1]["input"], serde_json::json!(podbay::audit::Digest::of(b"given")));
    assert!(podbay::audit::verify(&[&file], None).unwrap().intact);

    // What can't be recorded isn't typed, nor sent.
    let refusing = |entry: &AuditEntry| match entry.op {
        "exec" => Ok(()),
        _ => full_disk(entry),
    };
    let strict = guarded(&local, &made, Policy::default(), Audit::new(refusing).strict()).await;
    let mut exec = strict.spawn(podbay::Command { stdin: true, ..podbay::Command::argv(["cat"]) }).await.unwrap();
    let mut control = exec.control();
    assert_eq!(control.write("typed").await.unwrap_err().code(), Some(ErrorCode::PolicyDenied));
    assert_eq!(control.kill().await.unwrap_err().code(), Some(ErrorCode::PolicyDenied));
    made.sandbox.kill(exec.id()).await.unwrap();
    while let Some(event) = exec.next().await.unwrap() {
        assert!(!matches!(event, podbay::Event::Output(..)), "{event:?}");
    }
    local.delete(&made.id).await.unwrap();
}

#[tokio::test]
async fn rules_hold_for_each_file_of_a_tree() {
    let home = tempfile::tempdir().unwrap();
    let local = local(&home);
    let made = local.get_or_create(&leashed()).await.unwrap();
    let deny = |reads| Policy {
        paths: Scope { deny_prefixes: vec!["/workspace/t/secret".into()], rules_for_reads: reads, ..Scope::default() },
        commands: CommandRules::default(),
    };
    let entries: Arc<Mutex<Vec<AuditEntry>>> = Arc::default();
    let record = entries.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        record.lock().unwrap().push(entry.clone());
        Ok(())
    });
    let source = home.path().join("t");
    for (name, content) in [("open", "o"), ("secret/key", "k"), ("deep/er", "e")] {
        let file = source.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    let meter = |_| {};
    let meter = podbay::Meter::new(&meter);
    let sandbox = guarded(&local, &made, deny(false), audit.clone()).await;
    let sent = sandbox.upload_tree(&source, "/workspace/t", &meter).await.unwrap();
    assert_eq!((sent.files, sent.failed.len()), (2, 1), "{sent:?}");
    assert_eq!((&*sent.failed[0].0, sent.failed[0].1.code()), ("secret/key", Some(ErrorCode::PolicyDenied)));
    assert_eq!(made.sandbox.run("find t -type f | sort").await.unwrap().text(), "t/deep/er\nt/open\n");
    let decided = |target: &str| {
        let entries = entries.lock().unwrap();
        let of_file =
            entries.iter().find(|entry| entry.op == "upload" && entry.target() == target && entry.outcome.is_some());
        of_file.and_then(|entry| entry.outcome.as_ref().map(|outcome| (outcome.decision, outcome.effect.bytes)))
    };
    assert_eq!(decided("/workspace/t/open"), Some((Decision::Allowed, Some(1))));
    assert_eq!(decided("/workspace/t/secret/key"), Some((Decision::Denied, None)));

    // Where the rules hold for reading too, what they deny isn't there.
    made.sandbox.run("mkdir -p t/secret; echo k > t/secret/key").await.unwrap();
    let readers = guarded(&local, &made, deny(true), audit).await;
    let back = home.path().join("back");
    let fetched = readers.download_tree("/workspace/t", &back, &meter).await.unwrap();
    assert_eq!((fetched.files, fetched.failed.len()), (2, 0), "{fetched:?}");
    assert!(back.join("open").exists() && !back.join("secret/key").exists());
    let each = ["/workspace/t/open", "/workspace/t/secret/key"].map(Download::new).to_vec();
    let each = readers.download_all(each).await;
    assert_eq!(each[0].as_ref().unwrap(), "o");
    assert_eq!(each[1].as_ref().unwrap_err().code(), Some(ErrorCode::PolicyDenied));

    // What can't be recorded isn't sent.
    let broken = Audit::new(full_disk).strict();
    let strict = guarded(&local, &made, Policy::default(), broken).await;
    assert!(strict.upload_tree(&source, "/workspace/strict", &meter).await.is_err());
    assert!(!made.sandbox.run("test -e strict").await.unwrap().success());
    local.delete(&made.id).await.unwrap();
}
