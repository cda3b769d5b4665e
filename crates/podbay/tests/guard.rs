//! The hook for rules and audit: every operation of the table passes it, whichever method sends it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use podbay::files::{Delete, Download, Edit, Glob, Grep, Ls, Mkdir, Move, Read, Scope, Stat, Tree, Write};
use podbay::local::{Home, Local};
use podbay::policy::Policy;
use podbay::{
    Command, Content, Effect, Ending, Error, ErrorCode, Event, Group, Guard, Lifetime, Meter, OPERATIONS,
    OperationError, Podbay, RawPath, Result, Sandbox, Subject, Target, Ticket,
};
use sha2::Digest;

/// What the guard was told: action, subject, length of what was sent, and how it ended.
type Told = (String, String, Option<u64>, Option<Result<Effect, ErrorCode>>);

/// How an operation failed: whether the guard itself denied it, and what was sent until then.
type Failed = (ErrorCode, bool, Effect);

/// Forbids `/workspace/denied`, every command with the word `denied` and the variable `DENIED`, and remembers what it was told.
#[derive(Debug, Default)]
struct Recorder {
    told: Mutex<Vec<Told>>,
    failed: Mutex<Vec<Failed>>,
}

impl Guard for Recorder {
    fn narrow(&self, scope: &mut Scope) -> Result<()> {
        scope.deny_prefixes.push("/workspace/denied".into());
        scope.rules_for_reads = true;
        Ok(())
    }

    fn check(&self, command: &Command) -> Result<()> {
        match command.summary().contains("denied") || command.env.contains_key("DENIED") {
            true => Err(OperationError::new(ErrorCode::PolicyDenied, "denied").into()),
            false => Ok(()),
        }
    }

    fn begin(
        &self,
        action: &'static str,
        subject: Subject<'_>,
        scope: Option<&Scope>,
        content: Content<'_>,
    ) -> Result<Ticket> {
        assert!(scope.is_none_or(|scope| scope.rules_for_reads), "{action} wasn't narrowed");
        let length = match content {
            Content::Bytes(bytes) => Some(bytes.len() as u64),
            Content::Stream(length) => Some(length),
            _ => None,
        };
        let mut told = self.told.lock().unwrap();
        told.push((action.to_owned(), subject.to_string(), length, None));
        Ok(Box::new(told.len() - 1))
    }

    fn wants_digests(&self) -> bool {
        true
    }

    fn end_failed_unheard(&self, error: &Error) {
        panic!("{error}");
    }

    fn end(&self, ticket: Ticket, Ending { error, denied, effect }: Ending<'_>) -> Result<()> {
        let at = *ticket.downcast::<usize>().unwrap();
        let ended = &mut self.told.lock().unwrap()[at].3;
        assert!(ended.is_none(), "an operation ended twice");
        *ended = Some(match error.map(|error| error.code().unwrap_or(ErrorCode::Unknown)) {
            None => Ok(effect),
            Some(code) => {
                self.failed.lock().unwrap().push((code, denied, effect));
                Err(code)
            }
        });
        Ok(())
    }
}

impl Recorder {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

/// A sandbox on this machine, with and without the guard.
async fn sandboxes(home: &tempfile::TempDir) -> (Sandbox, Sandbox, Arc<Recorder>) {
    let local = Local::at(Home::at(home.path().join("h")).unwrap());
    let podbay = Podbay::builder().provider(Arc::new(local)).build().unwrap();
    let sandbox = podbay.create().await.unwrap();
    let recorder = Arc::new(Recorder::default());
    (sandbox.clone(), sandbox.guarded(recorder.clone()), recorder)
}

/// Performs the operation of that name on `place`, which is a path or a word of a command.
async fn perform(sandbox: &Sandbox, name: &str, place: &str) -> Result<()> {
    let command = format!("cat > /dev/null; echo {place}");
    let waiting = || async {
        let waiting = Command::shell("cat; sleep 60").stdin();
        // Started by the one without rules, so that only what follows is told.
        sandbox.start(waiting).await
    };
    match name {
        "lifetime" => sandbox.set_lifetime(&Lifetime { ttl_ms: Some(3_600_000), idle_ttl_ms: None }).await,
        "protections" => sandbox.protection().await.map(drop),
        "exec.run" => sandbox.run(command).await.map(drop),
        "exec.start" => sandbox.start(command).await.map(drop),
        "exec.attach" => {
            let mut exec = sandbox.spawn(command).await?;
            exec.wait().await.map(drop)
        }
        "exec.input" => sandbox.run_with_input(command, "input", 1 << 20).await.map(drop),
        "exec.signal" => {
            let id = waiting().await?.id;
            sandbox.kill(&id).await.map(drop)
        }
        "exec.status" => {
            let id = waiting().await?.id;
            let status = sandbox.status(&id).await.map(drop);
            sandbox.kill(&id).await?;
            status
        }
        "exec.list" => sandbox.commands(false).await.map(drop),
        other => perform_on_files(sandbox, other, place, &Scope::default()).await,
    }
}

/// Performs the operation on files of that name in a directory, within a scope.
async fn perform_on_files(sandbox: &Sandbox, name: &str, dir: &str, scope: &Scope) -> Result<()> {
    let (scope, at) = (scope.clone(), |name: &str| format!("{dir}/{name}"));
    match name {
        "read" => sandbox.read(Read::new(at("file")).within(scope)).await.map(drop),
        "write" => sandbox.write(Write::new(at("new")).within(scope), "new").await.map(drop),
        "edit" => sandbox.edit(Edit::in_file(at("file")).within(scope), "content", "content").await.map(drop),
        "ls" => sandbox.ls(Ls::new(dir).within(scope)).await.map(drop),
        "stat" => sandbox.stat(Stat::new(at("file")).within(scope)).await.map(drop),
        "tree" => sandbox.tree(Tree::new(dir).within(scope)).await.map(drop),
        "glob" => sandbox.glob(Glob::new("*").below(dir).within(scope)).await.map(drop),
        "grep" => sandbox.grep(Grep::new("content").below(dir).within(scope)).await.map(drop),
        "delete" => sandbox.delete(Delete::new(at("file")).within(scope)).await.map(drop),
        "mkdir" => sandbox.mkdir(Mkdir::new(at("dir")).within(scope)).await.map(drop),
        "move" => sandbox.mv(Move::new(at("dir"), at("moved")).within(scope)).await.map(drop),
        "download" => sandbox.download(Download::new(at("file")).within(scope)).await.map(drop),
        other => panic!("the table has an operation {other:?}, and this test doesn't perform it"),
    }
}

#[tokio::test]
async fn every_operation_of_the_table_passes_the_guard() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    let setup = "mkdir -p denied/dir free/dir; echo content > denied/file; echo content > free/file";
    assert!(free.run(setup).await.unwrap().success());
    // The handshake of a connection, which touches nothing.
    for operation in OPERATIONS.iter().filter(|operation| operation.name != "hello") {
        let name = operation.name;
        let known_as = match name {
            "exec.run" | "exec.attach" | "exec.input" => "exec",
            other => other,
        };
        // What deletes comes last in its directory.
        if name == "delete" {
            free.write("free/file", "content").await.unwrap();
        }
        let allowed = perform(&sandbox, name, "/workspace/free").await;
        let told = recorder.take();
        assert!(allowed.is_ok(), "{name}: {allowed:?}");
        let entry = told.iter().find(|(action, ..)| action == known_as).unwrap_or_else(|| panic!("{name}: {told:?}"));
        assert!(matches!(entry.3, Some(Ok(_))), "{name}: {told:?}");
        assert!(told.iter().all(|entry| entry.3.is_some()), "{name}: something has no end: {told:?}");
        if name == "delete" {
            free.write("free/file", "content").await.unwrap();
        }

        if matches!(name, "lifetime" | "protections" | "exec.signal" | "exec.status" | "exec.list") {
            continue;
        }
        let denied = perform(&sandbox, name, "/workspace/denied").await.unwrap_err();
        let told = recorder.take();
        assert_eq!(denied.code(), Some(ErrorCode::PolicyDenied), "{name}: {denied}");
        let entry = told.iter().find(|(action, ..)| action == known_as).unwrap_or_else(|| panic!("{name}: {told:?}"));
        assert_eq!(entry.3, Some(Err(ErrorCode::PolicyDenied)), "{name}");
    }
    let left = free.run("cat denied/file; ls denied").await.unwrap();
    assert_eq!(left.text(), "content\ndir\nfile\n", "nothing of it happened");
    free.destroy().await.unwrap();
}

/// The page lacked `lifetime` and `protections`.
#[tokio::test]
async fn the_page_about_the_audit_log_lists_every_operation() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    assert!(free.run("mkdir -p free/dir").await.unwrap().success());
    for operation in OPERATIONS.iter().filter(|operation| operation.name != "hello") {
        // The one before may have deleted it.
        free.write("free/file", "content").await.unwrap();
        perform(&sandbox, operation.name, "/workspace/free").await.unwrap();
    }
    // A command that is followed from its beginning is `exec`.
    let started = free.start("true").await.unwrap();
    drop(sandbox.attach(&started.id, 0).await.unwrap());
    let nobody = |_| {};
    let (tree, meter) = (home.path().join("tree"), Meter::new(&nobody));
    sandbox.download_tree("/workspace/free", &tree, &meter).await.unwrap();
    sandbox.upload_tree(&tree, "/workspace/back", &meter).await.unwrap();
    let input = Command::shell("cat").stdin();
    let mut exec = sandbox.spawn(input).await.unwrap();
    exec.control().close_input().await.unwrap();
    exec.wait().await.unwrap();

    let recorded: BTreeSet<String> = recorder.take().into_iter().map(|(action, ..)| action).collect();
    let page = include_str!("../../../docs/audit.md");
    let (_, table) = page.split_once("| `op` | operation |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let rows = rows.filter(|row| !row.ends_with("| on sandboxes as a whole |"));
    let listed: Vec<&str> = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    assert_eq!(BTreeSet::from_iter(listed.iter().map(|&name| name.to_owned())), recorded);
    assert_eq!(listed.len(), recorded.len(), "one has two rows: {listed:?}");
    free.destroy().await.unwrap();
}

/// Input and signals once went to a running command without a word in the audit.
#[tokio::test]
async fn input_and_signals_to_a_running_command_are_told() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    let mut exec = sandbox.spawn(Command::shell("cat; sleep 60").stdin()).await.unwrap();
    let mut control = exec.control();
    assert!(control.write("hello").await.unwrap());
    control.close_input().await.unwrap();
    assert!(matches!(exec.next().await.unwrap(), Some(Event::Output(..))));
    control.signal(15).await.unwrap();
    exec.wait().await.unwrap();
    drop(exec);
    let id = recorder.told.lock().unwrap()[1].1.clone();
    let effect = |bytes, exit| Some(Ok(Effect { bytes, exit, sha256: None }));
    assert_eq!(
        recorder.take(),
        [
            ("exec".to_owned(), "cat; sleep 60".to_owned(), None, effect(Some(5), Some(143))),
            ("exec.input".to_owned(), id.clone(), Some(5), effect(None, None)),
            ("exec.input".to_owned(), id.clone(), None, effect(None, None)),
            ("exec.signal".to_owned(), format!("{id} 15"), None, effect(None, None)),
        ]
    );
    // Attached again, and no longer followed before anything came.
    let started = free.start("sleep 60").await.unwrap();
    drop(sandbox.attach(&started.id, 0).await.unwrap());
    assert_eq!(sandbox.signal_to(&started.id, 9, Target::Main).await.unwrap(), 1);
    let told = recorder.take();
    assert_eq!(told[0], ("exec.attach".to_owned(), started.id.to_string(), None, effect(Some(0), None)));
    assert_eq!(told[1].0, "exec.signal");
    free.destroy().await.unwrap();
}

#[tokio::test]
async fn each_file_of_many_is_told_and_decided_on() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    let written = sandbox.write_all(vec![(Write::new("denied/a"), "a".into()), (Write::new("b"), "b".into())]).await;
    assert!(written[0].is_err() && written[1].is_ok());
    let fetched = sandbox.download_all(vec![Download::new("b"), Download::new("denied/a")]).await;
    assert!(fetched[0].is_ok() && fetched[1].is_err());
    let actions: Vec<_> =
        recorder.take().into_iter().map(|(action, subject, ..)| format!("{action} {subject}")).collect();
    assert_eq!(actions, ["write denied/a", "write b", "download b", "download denied/a"]);

    let source = home.path().join("tree");
    std::fs::create_dir_all(source.join("denied")).unwrap();
    for (file, length) in [("small", 1), ("large", 3 << 20), ("denied/c", 1)] {
        std::fs::write(source.join(file), vec![b'x'; length]).unwrap();
    }
    let nobody = |_| {};
    let meter = Meter::new(&nobody);
    let sent = sandbox.upload_tree(&source, "/workspace", &meter).await.unwrap();
    assert_eq!((sent.files, sent.failed.len()), (2, 1), "{sent:?}");
    let mut told = recorder.take();
    told.sort_by(|one, other| one.1.cmp(&other.1));
    let streamed = told.iter().find(|(_, subject, ..)| subject == "/workspace/large").unwrap();
    let sha256: [u8; 32] = sha2::Sha256::digest(vec![b'x'; 3 << 20]).into();
    assert_eq!(streamed.3, Some(Ok(Effect { bytes: Some(3 << 20), exit: None, sha256: Some(sha256) })));
    let told: Vec<_> = told.into_iter().map(|(action, subject, length, _)| (action, subject, length)).collect();
    let entry = |action: &str, subject: &str, length| (action.to_owned(), subject.to_owned(), length);
    assert_eq!(
        told,
        [
            entry("upload_tree", "/workspace", None),
            entry("mkdir", "/workspace", None),
            entry("upload", "/workspace/denied/c", Some(1)),
            entry("upload", "/workspace/large", Some(3 << 20)),
            entry("upload", "/workspace/small", Some(1)),
        ]
    );
    let back = home.path().join("back");
    assert_eq!(sandbox.download_tree("/workspace", &back, &meter).await.unwrap().files, 3);
    let mut actions: Vec<_> = recorder.take().into_iter().map(|(action, ..)| action).collect();
    actions.sort();
    assert_eq!(actions, ["download", "download", "download", "download_tree", "tree"]);
    free.destroy().await.unwrap();
}

/// A caller that gives up leaves an end in the record, and no command that runs on.
#[tokio::test]
async fn an_operation_that_is_given_up_ends_as_cancelled() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    let run = sandbox.run("sleep 60");
    assert!(tokio::time::timeout(std::time::Duration::from_millis(500), run).await.is_err());
    let told = recorder.take();
    assert_eq!(told, [("exec".to_owned(), "sleep 60".to_owned(), None, Some(Err(ErrorCode::Cancelled)))]);
    while !free.commands(true).await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(recorder.take(), [], "the kill is part of it");
    free.destroy().await.unwrap();
}

/// A sandbox that has rules keeps them, whatever is put in front of it.
#[tokio::test]
async fn guards_add_up() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, inner) = sandboxes(&home).await;
    let outer = Arc::new(Recorder::default());
    let both = sandbox.guarded(outer.clone());
    assert_eq!(both.run("echo denied").await.unwrap_err().code(), Some(ErrorCode::PolicyDenied));
    both.write("a", "a").await.unwrap();
    let of = |recorder: &Recorder| -> Vec<_> {
        recorder.take().into_iter().map(|(action, _, _, end)| (action, end.unwrap().is_ok())).collect()
    };
    let expected = [("exec".to_owned(), false), ("write".to_owned(), true)];
    assert_eq!(of(&outer), expected);
    assert_eq!(of(&inner), expected);
    free.destroy().await.unwrap();
}

/// A caller's root, virtual paths and working directory once changed what the policy's prefixes meant: with the root
/// `/workspace/secret`, the prefix `/workspace/secret` was a directory below it.
#[tokio::test]
async fn no_scope_of_a_request_reaches_what_the_policy_denies() {
    let secret: Vec<_> = vec!["/workspace/secret".into()];
    let relative: Vec<_> = vec!["secret".into()];
    let reads = || Scope { rules_for_reads: true, ..Scope::default() };
    let policies = [
        Scope { deny_prefixes: secret.clone(), ..reads() },
        Scope { deny_prefixes: relative.clone(), ..reads() },
        Scope { allow_prefixes: vec!["/workspace/free".into()], ..reads() },
        Scope { allow_prefixes: vec!["free".into()], ..reads() },
        Scope { root: Some("/workspace".into()), deny_prefixes: secret, ..reads() },
        Scope { root: Some("/workspace".into()), deny_prefixes: relative, ..reads() },
    ];
    // Each with the name that it gives to the secret directory.
    let rooted = |root: &str| Scope { root: Some(root.into()), ..Scope::default() };
    let below = |root: &str| Scope { virtual_paths: true, ..rooted(root) };
    let from = |workdir: &str| Scope { workdir: Some(workdir.into()), ..Scope::default() };
    let requests = [
        (Scope::default(), "/workspace/secret"),
        (rooted("/workspace"), "/workspace/secret"),
        (rooted("/workspace/secret"), "/workspace/secret"),
        (rooted("/workspace/free/link"), "/workspace/free/link"),
        (below("/"), "/workspace/secret"),
        (below("/workspace"), "/secret"),
        (below("/workspace/secret"), "/."),
        (below("/workspace/free/link"), "/."),
        (from("/workspace/free"), "/workspace/secret"),
        (from("/workspace/secret"), "."),
        (Scope { allow_prefixes: vec!["/".into()], ..Scope::default() }, "/workspace/secret"),
        (Scope { allow_prefixes: vec!["/workspace/secret".into()], ..Scope::default() }, "/workspace/secret"),
        (Scope { allow_prefixes: vec![".".into()], ..from("/workspace/secret") }, "."),
    ];
    let home = tempfile::tempdir().unwrap();
    let local = Arc::new(Local::at(Home::at(home.path().join("h")).unwrap()));
    let free = Podbay::builder().provider(local.clone()).build().unwrap().create().await.unwrap();
    let setup = "mkdir -p secret/dir free; echo content > secret/file; ln -s ../secret free/link";
    assert!(free.run(setup).await.unwrap().success());
    let on_files = || OPERATIONS.iter().filter(|operation| operation.group == Group::Files);
    for paths in policies {
        let policy = Policy { paths: paths.clone(), ..Policy::default() };
        let podbay = Podbay::builder().provider(local.clone()).policy(policy).build().unwrap();
        let sandbox = podbay.reconnect(free.id()).await.unwrap();
        for (scope, secret) in &requests {
            for operation in on_files() {
                let done = perform_on_files(&sandbox, operation.name, secret, scope).await;
                let code = done.as_ref().err().and_then(Error::code);
                let what = format!("{} within {scope:?} and the policy {paths:?}: {done:?}", operation.name);
                assert_eq!(code, Some(ErrorCode::PolicyDenied), "{what}");
            }
        }
    }
    let left = free.run("cat secret/file; ls secret").await.unwrap();
    assert_eq!(left.text(), "content\ndir\nfile\n", "nothing of it happened");
    free.destroy().await.unwrap();
}

/// Where relative paths begin is only known in the sandbox, so a policy can't replace a request's root by a working directory.
#[tokio::test]
async fn rules_don_t_move_relative_paths() {
    let home = tempfile::tempdir().unwrap();
    let local = Arc::new(Local::at(Home::at(home.path().join("h")).unwrap()));
    let free = Podbay::builder().provider(local.clone()).build().unwrap().create().await.unwrap();
    free.run("mkdir -p in sub/in /tmp/d/in").await.unwrap();
    let under = async |paths: Scope| {
        let policy = Policy { paths, ..Policy::default() };
        let podbay = Podbay::builder().provider(local.clone()).policy(policy).build().unwrap();
        podbay.reconnect(free.id()).await.unwrap()
    };
    let denying = under(Scope { deny_prefixes: vec!["/etc".into()], ..Scope::default() }).await;
    let allowing = under(Scope { allow_prefixes: vec!["/".into()], ..Scope::default() }).await;
    let roots = [
        ("/", "/tmp/d"),
        ("/workspace", "/workspace/in"),
        ("/workspace/sub", "/workspace/sub/in"),
        ("/tmp/d", "/tmp/d/in"),
    ];
    for (root, inside) in roots {
        for workdir in [None, Some(inside), Some("/tmp"), Some("/workspace")] {
            let scope = Scope { root: Some(root.into()), workdir: workdir.map(RawPath::from), ..Scope::default() };
            let write = async |sandbox: &Sandbox| {
                let written = sandbox.write(Write::new("x").within(scope.clone()), "").await;
                written.map(|written| written.path).map_err(|error| error.code())
            };
            let expected = write(&free).await;
            assert!(expected.is_ok(), "{scope:?}: {expected:?}");
            assert_eq!(write(&denying).await, expected, "{scope:?}");
            let allowed = write(&allowing).await;
            assert!(allowed == expected || allowed == Err(Some(ErrorCode::PolicyDenied)), "{scope:?}: {allowed:?}");
        }
    }
    free.destroy().await.unwrap();
}

/// A sandbox that claims a denial once looked like the rule's own.
#[tokio::test]
async fn a_denial_of_the_guard_is_told_from_one_of_the_sandbox() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    sandbox.run("echo denied").await.unwrap_err();
    sandbox.write("denied/x", "x").await.unwrap_err();
    let failed = std::mem::take(&mut *recorder.failed.lock().unwrap());
    let denied = |by_guard| (ErrorCode::PolicyDenied, by_guard, Effect::default());
    assert_eq!(failed, [denied(true), denied(false)]);
    free.destroy().await.unwrap();
}

/// What had been sent was only told if all of it was.
#[tokio::test]
async fn an_upload_that_fails_or_is_given_up_tells_what_was_sent() {
    let home = tempfile::tempdir().unwrap();
    let (free, sandbox, recorder) = sandboxes(&home).await;
    let content: Vec<u8> = (0..24_u32 << 20).map(|number| (number % 251) as u8).collect();
    let local = home.path().join("large");
    std::fs::write(&local, &content).unwrap();
    let nobody = |_| {};
    sandbox.upload_file(&local, Write::new("denied/large"), &Meter::new(&nobody)).await.unwrap_err();
    // It is given up when something of it has been sent.
    let (send, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let tell = move |_| {
        let _ = send.send(());
    };
    let meter = Meter::new(&tell);
    let upload = sandbox.upload_file(&local, Write::new("large"), &meter);
    tokio::select! {
        biased;
        Some(()) = sent.recv() => {}
        done = upload => panic!("it wasn't given up: {done:?}"),
    }
    let failed = std::mem::take(&mut *recorder.failed.lock().unwrap());
    let [(denied, _, at_denial), (cancelled, _, at_cancelling)] = failed[..] else { panic!("{failed:?}") };
    assert_eq!((denied, cancelled), (ErrorCode::PolicyDenied, ErrorCode::Cancelled));
    for effect in [at_denial, at_cancelling] {
        let bytes = usize::try_from(effect.bytes.unwrap()).unwrap();
        let sha256: [u8; 32] = sha2::Sha256::digest(&content[..bytes]).into();
        assert_eq!(effect.sha256, Some(sha256), "of {bytes} bytes");
    }
    assert!((1..=24 << 20).contains(&at_cancelling.bytes.unwrap()), "{at_cancelling:?}");
    assert!(recorder.take().iter().all(|(_, _, size, _)| *size == Some(24 << 20)), "the beginning tells the size");
    free.destroy().await.unwrap();
}

#[tokio::test]
async fn the_owners_variables_arent_the_callers() {
    let home = tempfile::tempdir().unwrap();
    let (_keep, sandbox, _) = sandboxes(&home).await;
    let sandbox = sandbox.with_env([("DENIED".to_owned(), "owner".to_owned())].into());
    assert_eq!(sandbox.run("printf %s \"$DENIED\"").await.unwrap().stdout(), b"owner");
    let mut command = Command::shell("true");
    command.env.insert("DENIED".to_owned(), "caller".into());
    assert_eq!(sandbox.run(command).await.unwrap_err().code(), Some(ErrorCode::PolicyDenied));
}
