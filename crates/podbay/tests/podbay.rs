//! `Podbay`: whatever comes out of it obeys rules and audit; creating, finding and deleting sandboxes; lazy ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podbay::audit::{Audit, AuditEntry};
use podbay::files::{Mkdir, Scope};
use podbay::local::{Home, Local};
use podbay::policy::{CommandRules, Matching, Policy};
use podbay::provider::{Phase, Provider, Query, Wanted};
use podbay::{Builder, Error, ErrorCode, ErrorName, LazySandbox, Podbay};

fn local(home: &tempfile::TempDir) -> Arc<dyn Provider> {
    Arc::new(Local::at(Home::at(home.path().join("h")).unwrap()))
}

fn builder(home: &tempfile::TempDir) -> Builder {
    Podbay::builder().provider(local(home))
}

/// An audit, and the operations that it has seen, each once.
fn recorder() -> (Audit, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        let mut seen = record.lock().unwrap();
        let line = format!("{} {}", entry.op, entry.sandbox);
        if seen.last() != Some(&line) {
            seen.push(line);
        }
        Ok(())
    });
    (audit, seen)
}

#[tokio::test]
async fn a_sandbox_is_created_found_listed_described_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let podbay = builder(&home).build().unwrap();
    assert_eq!(podbay.mode(), "local");
    let sandbox = podbay.get_or_create("box").await.unwrap();
    assert!((sandbox.id(), sandbox.created(), sandbox.replaced()) == ("box", true, false));
    sandbox.write("note", "kept").await.unwrap();
    let same = podbay.get_or_create("box").await.unwrap();
    assert!(!same.created());
    let found = podbay.reconnect("box").await.unwrap();
    assert_eq!(&found.download("note").await.unwrap()[..], b"kept");

    let listed = podbay.list_all(Query { limit: Some(1), ..Query::default() }).await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["box"]);
    let page = podbay.list(&Query::default()).await.unwrap();
    assert_eq!((page.sandboxes.len(), page.cursor), (1, None));
    assert_eq!(podbay.describe("box").await.unwrap().listed.id, "box");
    assert_eq!(podbay.stats(Duration::from_secs(300)).await.unwrap().running, 1);
    assert_eq!(podbay.pool_status().await.unwrap().total, 0);
    for (error, what, advice) in [
        (podbay.refill().await.unwrap_err(), "has no warm pool", "use mode raw and set raw.warm_pool_size"),
        (podbay.suspend("box").await.unwrap_err(), "can't suspend sandboxes", "use mode agent-sandbox"),
        (podbay.resume("box").await.unwrap_err(), "can't resume sandboxes", "use mode agent-sandbox"),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::Unsupported));
        assert_eq!(error.to_string(), format!("mode local {what}: {advice}"));
    }
    assert_eq!(podbay.cleanup(None).await.unwrap().kept, 1);

    assert!(found.destroy().await.unwrap());
    assert!(!sandbox.destroy().await.unwrap() && !podbay.delete("box").await.unwrap());
    assert!(matches!(podbay.reconnect("box").await, Err(Error::SandboxNotFound(_))));
    assert!(matches!(podbay.describe("box").await, Err(Error::SandboxNotFound(_))));
}

/// The old manager handed out sandboxes that nobody checked.
#[tokio::test]
async fn whatever_comes_out_obeys_rules_and_audit() {
    let home = tempfile::tempdir().unwrap();
    let (audit, seen) = recorder();
    let policy = Policy { commands: CommandRules::deny(["curl"], Matching::Words), ..Policy::default() };
    let podbay = builder(&home).policy(policy).audit(audit).build().unwrap();
    let wanted = Wanted { leashed: true, ..Wanted::from("named") };
    let lazy = podbay.lazy(Wanted { leashed: true, ..Wanted::from("lazy") });
    let thread = Wanted { leashed: true, ..Wanted::default() };
    let sandboxes = [
        podbay.create().await.unwrap(),
        podbay.get_or_create(wanted).await.unwrap(),
        podbay.thread_with("acme", "t1", thread).await.unwrap(),
        podbay.thread("acme", "t1").await.unwrap(),
        podbay.reconnect("named").await.unwrap(),
        lazy.open().await.unwrap(),
    ];
    for sandbox in &sandboxes {
        seen.lock().unwrap().clear();
        let denied = sandbox.run("curl example.com").await.unwrap_err();
        assert_eq!(denied.code(), Some(ErrorCode::PolicyDenied), "{}", sandbox.id());
        assert_eq!(*seen.lock().unwrap(), [format!("exec {}", sandbox.id())]);
    }
    for sandbox in &sandboxes {
        sandbox.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn creating_and_deleting_are_recorded() {
    let home = tempfile::tempdir().unwrap();
    let (audit, seen) = recorder();
    let podbay = builder(&home).audit(audit).build().unwrap();
    let sandbox = podbay.create().await.unwrap();
    let id = sandbox.id().to_owned();
    sandbox.destroy().await.unwrap();
    podbay.get_or_create("box").await.unwrap();
    podbay.delete("box").await.unwrap();
    let expected = [format!("create {id}"), format!("destroy {id}"), "create box".into(), "destroy box".into()];
    assert_eq!(*seen.lock().unwrap(), expected);

    // What can't be recorded isn't created.
    let broken = Audit::new(|_: &AuditEntry| Err(io::Error::other("the disk is full"))).strict();
    let strict = builder(&home).audit(broken).build().unwrap();
    let error = strict.get_or_create("box").await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(podbay.list_all(Query::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_clean_up_says_which_sandboxes_it_deleted() {
    let home = tempfile::tempdir().unwrap();
    let ended: Arc<Mutex<Vec<AuditEntry>>> = Arc::default();
    let record = ended.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        record.lock().unwrap().extend(entry.outcome.is_some().then(|| entry.clone()));
        Ok(())
    });
    let podbay = builder(&home).audit(audit).build().unwrap();
    podbay.get_or_create("idle").await.unwrap().run("true").await.unwrap();
    let busy = podbay.get_or_create("busy").await.unwrap();
    busy.start("sleep 100").await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(podbay.cleanup(Some(Duration::from_millis(500))).await.unwrap().deleted, ["idle"]);
    let last = ended.lock().unwrap().last().unwrap().clone();
    let effect = serde_json::to_value(&last.outcome.unwrap().effect).unwrap();
    assert_eq!((last.op, effect), ("cleanup", serde_json::json!({ "changed": true, "deleted": ["idle"] })));
    busy.destroy().await.unwrap();
}

/// Whoever no longer follows a command gets no result, nor an error in its place: nobody was told.
#[tokio::test]
async fn an_end_that_cant_be_recorded_is_told_where_there_is_no_caller() {
    let home = tempfile::tempdir().unwrap();
    let audit = Audit::new(|entry: &AuditEntry| match (entry.op, &entry.outcome) {
        ("exec" | "exec.attach" | "read", Some(_)) => Err(io::Error::other("the disk is full")),
        _ => Ok(()),
    });
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = told.clone();
    let podbay = builder(&home)
        .audit(audit.strict())
        .on_audit_failure(move |message| tell.lock().unwrap().push(message.to_owned()))
        .build()
        .unwrap();
    let sandbox = podbay.create().await.unwrap();
    drop(sandbox.spawn("sleep 60").await.unwrap());
    assert_eq!(told.lock().unwrap().len(), 1, "{told:?}");
    assert!(told.lock().unwrap()[0].contains("the disk is full"), "{told:?}");
    // A caller who gives up.
    tokio::time::timeout(Duration::from_millis(300), sandbox.run("sleep 60")).await.unwrap_err();
    assert_eq!(told.lock().unwrap().len(), 2, "{told:?}");
    assert!(told.lock().unwrap()[1].contains("was cancelled, and"), "{told:?}");
    // One who waits is told by the error.
    sandbox.run("true").await.unwrap_err();
    assert_eq!(told.lock().unwrap().len(), 2, "{told:?}");
    sandbox.destroy().await.unwrap();
}

/// In the log, `/etc/passwd` in virtual mode looked like the sandbox's own, and `a` below one directory like `a` below another.
#[tokio::test]
async fn what_paths_mean_is_recorded() {
    let home = tempfile::tempdir().unwrap();
    let begun: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
    let record = begun.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        let details = serde_json::to_value(&*entry.details).unwrap();
        record.lock().unwrap().extend((entry.outcome.is_none() && entry.op == "mkdir").then_some(details));
        Ok(())
    });
    let paths = Scope { root: Some("/workspace".into()), virtual_paths: true, ..Scope::default() };
    let policy = Policy { paths, ..Policy::default() };
    let podbay = builder(&home).audit(audit.clone()).policy(policy).build().unwrap();
    podbay.create().await.unwrap().mkdir("/etc/a").await.unwrap();
    let podbay = builder(&home).audit(audit).build().unwrap();
    let sandbox = podbay.create().await.unwrap();
    for dir in ["/tmp/one", "/tmp/two"] {
        let scope = Scope { workdir: Some(dir.into()), ..Scope::default() };
        sandbox.mkdir(Mkdir { scope, ..Mkdir::new("a") }).await.unwrap();
    }
    sandbox.mkdir("b").await.unwrap();
    assert_eq!(
        *begun.lock().unwrap(),
        [
            serde_json::json!({ "path": "/etc/a", "root": "/workspace", "virtual_paths": true }),
            serde_json::json!({ "path": "a", "workdir": "/tmp/one" }),
            serde_json::json!({ "path": "a", "workdir": "/tmp/two" }),
            serde_json::json!({ "path": "b" }),
        ]
    );
}

#[tokio::test]
async fn a_created_sandbox_ends_with_its_last_handle() {
    let home = tempfile::tempdir().unwrap();
    let podbay = builder(&home).build().unwrap();
    let sandbox = podbay.create().await.unwrap();
    let id = sandbox.id().to_owned();
    let exec = sandbox.clone().spawn("sleep 60").await.unwrap();
    drop(sandbox);
    assert!(podbay.reconnect(&id).await.unwrap().run("true").await.unwrap().success(), "a command is followed yet");
    drop(exec);
    let gone = async {
        while podbay.reconnect(&id).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test]
async fn a_lazy_sandbox_is_created_when_it_is_used_and_deleted_when_it_is_closed() {
    let home = tempfile::tempdir().unwrap();
    let podbay = builder(&home).build().unwrap();
    let lazy = podbay.lazy(Wanted::default());
    let id = lazy.id();
    assert!(lazy.created().is_none() && podbay.list_all(Query::default()).await.unwrap().is_empty());
    let (one, other) = tokio::join!(lazy.open(), lazy.open());
    assert_eq!((one.unwrap().id(), other.unwrap().id()), (id.as_str(), id.as_str()));
    assert_eq!((lazy.created(), lazy.closed()), (Some(true), false));

    // What was only found stays.
    let found = podbay.lazy(id.as_str());
    found.open().await.unwrap();
    found.close().await.unwrap();
    let given = LazySandbox::of(&podbay, podbay.reconnect(&id).await.unwrap());
    assert_eq!((given.id(), given.created()), (id.clone(), Some(false)));
    given.close().await.unwrap();
    assert!(podbay.reconnect(&id).await.is_ok());

    lazy.close().await.unwrap();
    lazy.close().await.unwrap();
    assert!(matches!(podbay.reconnect(&id).await, Err(Error::SandboxNotFound(_))));
    let closed = lazy.open().await.unwrap_err();
    assert!(matches!(closed, Error::Closed(_)) && ErrorName::of(&closed).exception == "ClosedError", "{closed}");

    let doomed = podbay.lazy("doomed");
    assert!(!doomed.destroy().await.unwrap(), "it was never created");
    podbay.get_or_create("doomed").await.unwrap();
    assert!(doomed.destroy().await.unwrap(), "whoever created it");
}

/// A caller that was cancelled once left behind a sandbox that nobody deleted.
#[tokio::test]
async fn a_cancelled_caller_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let podbay = builder(&home).build().unwrap();
    let lazy = podbay.lazy(Wanted::default());
    {
        let mut opening = std::pin::pin!(lazy.open());
        let started =
            std::future::poll_fn(|context| std::task::Poll::Ready(opening.as_mut().poll(context).is_pending()));
        assert!(started.await, "it takes a while");
    }
    tokio::task::yield_now().await;
    lazy.close().await.unwrap();
    assert!(podbay.list_all(Query::default()).await.unwrap().is_empty());
}

#[test]
fn settings_that_dont_fit_are_reported_by_build() {
    let error = Podbay::builder().set("no.such.key", "1").set("mode", "local").build().unwrap_err();
    assert_eq!(ErrorName::of(&error).code, "config", "{error}");
    let error = Podbay::builder().set("audit.file", "/nonexistent/dir/log").build().unwrap_err();
    assert_eq!(ErrorName::of(&error).code, "config", "{error}");
    assert_eq!(Podbay::local().unwrap().mode(), "local");
}

/// Python's stub lacked `suspended`.
#[test]
fn the_packages_types_have_every_phase() {
    let phases = Phase::ALL.map(|phase| format!("\"{}\"", phase.as_str()));
    let python = format!("\n_Phase: TypeAlias = Literal[{}]\n", phases.join(", "));
    assert!(include_str!("../../../python/podbay/_native.pyi").contains(&python), "_native.pyi lacks {python}");
    let typescript = format!("\nexport type Phase = {};\n", phases.join(" | "));
    assert!(include_str!("../../../node/src/results.ts").contains(&typescript), "results.ts lacks {typescript}");
}
