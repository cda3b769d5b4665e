//! Settings of sandboxes on this machine, of rules and of the audit, each seen at work.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use podbay::audit::{Audit, AuditEntry, Digest};
use podbay::files::{Read, Write};
use podbay::provider::Query;
use podbay::{Error, ErrorCode, Podbay, Sandbox};

/// A `Podbay` with these settings, whose sandboxes are in the test's own directory.
fn podbay(dir: &tempfile::TempDir, settings: &[(&str, &str)]) -> Podbay {
    let builder = Podbay::builder().set("mode", "local").set("home", dir.path().join("home").to_str().unwrap());
    settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).build().unwrap()
}

fn directory(dir: &tempfile::TempDir, name: &str, content: &str) -> String {
    let path = dir.path().join(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("file"), content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_sandbox_is_as_its_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let work = directory(&dir, "work", "of the workspace\n");
    let mount = format!("{}:/data", directory(&dir, "data", "of the mount\n"));
    let plain = podbay(&dir, &[]);
    let podbay = podbay(
        &dir,
        &[
            ("env", "WHO=me"),
            ("labels", "team=red"),
            ("local.workspace", &work),
            ("local.mounts", &mount),
            ("local.descriptors", "64"),
        ],
    );
    let sandbox = podbay.create().await.unwrap();
    assert!(std::fs::read_dir(dir.path().join("home")).unwrap().next().is_some(), "the home is empty");
    let line = "echo $WHO; cat file; cat /data/file; ulimit -n; echo made > made";
    let output = sandbox.run(line).await.unwrap();
    assert_eq!(output.text(), "me\nof the workspace\nof the mount\n64\n");
    assert_eq!(std::fs::read_to_string(Path::new(&work).join("made")).unwrap(), "made\n");
    let listed = podbay.list_all(Query { labels: [("team".into(), "red".into())].into(), ..Query::default() });
    assert_eq!(listed.await.unwrap()[0].id, sandbox.id());

    let other = plain.create().await.unwrap();
    let output =
        other.run("echo $WHO; cat file /data/file 2>/dev/null; [ $(ulimit -n) = 64 ] || echo more").await.unwrap();
    assert_eq!(output.text(), "\nmore\n");
    for (sandbox, podbay) in [(sandbox, &podbay), (other, &plain)] {
        assert!(podbay.delete(sandbox.id()).await.unwrap());
    }
}

#[tokio::test]
async fn a_sandbox_ends_when_its_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let hours = podbay(&dir, &[("ttl", "2h"), ("idle_ttl", "1h")]);
    let sandbox = hours.create().await.unwrap();
    let described = hours.describe(sandbox.id()).await.unwrap();
    assert_eq!((described.ttl_ms, described.idle_ttl_ms), (Some(7_200_000), Some(3_600_000)));
    assert!(hours.delete(sandbox.id()).await.unwrap());
    for (key, millis) in [("ttl", 1500), ("idle_ttl", 1000)] {
        let podbay = podbay(&dir, &[(key, &format!("{millis}ms"))]);
        let begun = Instant::now();
        let sandbox = podbay.create().await.unwrap();
        while !matches!(podbay.describe(sandbox.id()).await, Err(Error::SandboxNotFound(_))) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{key} doesn't end it");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(begun.elapsed() >= Duration::from_millis(millis - 100), "{key}: {:?}", begun.elapsed());
    }
}

fn is_denied<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.code() == Some(ErrorCode::PolicyDenied))
}

#[tokio::test]
async fn rules_are_those_of_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let plain = podbay(&dir, &[]);
    let free = plain.create().await.unwrap();
    free.run("mkdir root secret; echo kept > secret/file").await.unwrap();
    let under = async |settings: &[(&str, &str)]| podbay(&dir, settings).reconnect(free.id()).await.unwrap();
    let reads = async |sandbox: &Sandbox, path: &str| sandbox.read(Read::new(path)).await;

    let allowed = under(&[("policy.allow_prefixes", "/workspace/root")]).await;
    assert!(is_denied(allowed.write("/workspace/a", "x").await));
    allowed.write("/workspace/root/a", "x").await.unwrap();

    let denied = under(&[("policy.deny_prefixes", "/workspace/secret")]).await;
    assert!(is_denied(denied.write("/workspace/secret/a", "x").await));
    denied.write("/workspace/a", "x").await.unwrap();
    reads(&denied, "/workspace/secret/file").await.unwrap();
    let hidden = under(&[("policy.deny_prefixes", "/workspace/secret"), ("policy.rules_for_reads", "true")]).await;
    assert!(is_denied(reads(&hidden, "/workspace/secret/file").await));

    let rooted = under(&[("policy.root", "/workspace/root")]).await;
    rooted.write("/workspace/root/b", "rooted").await.unwrap();
    let escaped = reads(&rooted, "/workspace/secret/file").await.unwrap_err();
    assert_eq!(escaped.code(), Some(ErrorCode::EscapesRoot), "{escaped}");
    let inside = under(&[("policy.root", "/workspace/root"), ("policy.virtual_mode", "true")]).await;
    inside.write("/c", "virtual").await.unwrap();
    assert_eq!(free.run("cat root/b root/c").await.unwrap().text(), "rootedvirtual");

    let words = under(&[("policy.deny_commands", "curl")]).await;
    assert!(is_denied(words.run("curl x").await));
    assert_eq!(words.run("echo curling").await.unwrap().text(), "curling\n");
    let anywhere = under(&[("policy.deny_commands", "curl"), ("policy.match", "substring")]).await;
    assert!(is_denied(anywhere.run("echo curling").await));
    assert!(plain.delete(free.id()).await.unwrap());
}

#[tokio::test]
async fn the_audit_is_where_and_as_strict_as_the_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    for strict in ["false", "true"] {
        let log = tempfile::tempdir().unwrap();
        let file = log.path().join("audit");
        let recorded = podbay(&dir, &[("audit.file", file.to_str().unwrap()), ("audit.strict", strict)]);
        let sandbox = recorded.create().await.unwrap();
        sandbox.run("echo recorded").await.unwrap();
        let lines = std::fs::read_to_string(&file).unwrap();
        assert!(lines.contains(r#""op":"exec","target":"echo recorded""#), "{lines}");
        // From now on nothing can be recorded.
        log.close().unwrap();
        assert_eq!(is_denied(sandbox.write("unrecorded", "x").await), strict == "true", "strict is {strict}");
        assert!(podbay(&dir, &[]).delete(sandbox.id()).await.unwrap());
    }
}

/// An audit function in code switched off the log that the settings name, and decided alone whether the audit is strict.
#[tokio::test]
async fn an_audit_given_by_code_is_told_beside_the_log_and_as_strict_as_the_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let telling = told.clone();
    let audit = Audit::new(move |entry: &AuditEntry| match entry.op {
        "write" => Err(io::Error::other("not on my watch")),
        op => {
            telling.lock().unwrap().push(op);
            Ok(())
        }
    });
    let builder = Podbay::builder().set("home", dir.path().join("home").to_str().unwrap());
    let builder = builder.set("audit.file", file.to_str().unwrap()).set("audit.strict", "true");
    let sandbox = builder.audit(audit.clone()).build().unwrap().create().await.unwrap();
    sandbox.run("echo recorded").await.unwrap();
    assert!(is_denied(sandbox.write("refused", "x").await), "it is strict");
    sandbox.destroy().await.unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    let entries: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended = entries.iter().filter(|entry| entry["event"] == "ended");
    let ended: Vec<_> =
        ended.map(|entry| (entry["op"].as_str().unwrap(), entry["decision"].as_str().unwrap())).collect();
    assert_eq!(ended, [("create", "allowed"), ("exec", "allowed"), ("write", "denied"), ("destroy", "allowed")]);
    assert_eq!(*told.lock().unwrap(), ["create", "create", "exec", "exec", "destroy", "destroy"]);

    let nobody = Podbay::builder().set("audit.strict", "true").build().unwrap_err();
    assert!(nobody.to_string().contains("audit.strict: nothing records operations"), "{nobody}");
    Podbay::builder().set("audit.strict", "true").audit(audit).build().unwrap();
}

/// Who sent a command's output to a file left an entry without the command, and could write any text as the gap.
#[tokio::test]
async fn a_commands_output_in_a_file_is_recorded_with_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    let sandbox = podbay(&dir, &[("audit.file", file.to_str().unwrap())]).create().await.unwrap();
    let id = sandbox.run("seq 1000").await.unwrap().info.id;
    sandbox.write_output_of("numbers", id.clone(), 4, "whatever I like").await.unwrap();
    sandbox.destroy().await.unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    let entries: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let begun = entries.iter().find(|entry| entry["op"] == "write").unwrap();
    assert_eq!(
        (&begun["path"], &begun["exec_id"], &begun["output_cap"]),
        (&"numbers".into(), &id.as_str().into(), &4.into())
    );
    assert_eq!(begun["gap"], serde_json::json!(Digest::of(b"whatever I like")));
}

/// Nothing of an upload that failed was recorded.
#[tokio::test]
async fn an_upload_that_fails_is_recorded_with_what_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (log, file) = (dir.path().join("audit"), dir.path().join("large"));
    let content = vec![7; 3 << 20];
    std::fs::write(&file, &content).unwrap();
    let settings = [("audit.file", log.to_str().unwrap()), ("policy.deny_prefixes", "/workspace/denied")];
    let sandbox = podbay(&dir, &settings).create().await.unwrap();
    let nobody = |_| {};
    sandbox.upload_file(&file, Write::new("denied/large"), &podbay::Meter::new(&nobody)).await.unwrap_err();
    sandbox.destroy().await.unwrap();
    let lines = std::fs::read_to_string(&log).unwrap();
    let entries: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [begun, ended] = [&entries[2], &entries[3]];
    assert_eq!((&begun["op"], &begun["size"]), (&"upload".into(), &(3 << 20).into()));
    assert_eq!((&ended["decision"], &ended["denied_by"]), (&"denied".into(), &"sandbox".into()));
    let sent = usize::try_from(ended["content"]["bytes"].as_u64().unwrap()).unwrap();
    assert_eq!(ended["content"], serde_json::json!(Digest::of(&content[..sent])));
    assert!(ended["bytes"].is_null(), "{ended}");
}
