//! The operation suite: what every sandbox does, whoever provides it. Each provider's tests run [`all`].

use bytes::Bytes;
use podbay::files::{Delete, Download, Glob, Grep, Ls, Mkdir, Read, Stat, Tree, Write};
use podbay::{Command, ErrorCode, Event, Sandbox, Stream};

/// Runs every part, in a directory of its own below the working directory.
pub async fn all(sandbox: &Sandbox) {
    commands(sandbox).await;
    streams(sandbox).await;
    background(sandbox).await;
    files(sandbox).await;
    searches(sandbox).await;
    transfers(sandbox).await;
}

/// Commands that end.
pub async fn commands(sandbox: &Sandbox) {
    let output = sandbox.run("echo out; echo err >&2; exit 3").await.unwrap();
    assert_eq!((output.code(), output.stdout(), output.stderr()), (Some(3), b"out\n".to_vec(), b"err\n".to_vec()));

    let argv = sandbox.run(Command::argv(["printf", "%s|", "a b", "$HOME", "*"])).await.unwrap();
    assert_eq!(argv.text(), "a b|$HOME|*|");

    let mut command = Command::shell("echo $WHO; pwd; cat; echo end");
    command.env.insert("WHO".to_owned(), "agent".into());
    command.cwd = Some("/tmp".into());
    assert_eq!(sandbox.run(command).await.unwrap().text(), "agent\n/tmp\nend\n");

    let slow = Command { timeout_ms: 300, grace_ms: 200, ..Command::shell("echo begun; sleep 100") };
    let output = sandbox.run(slow).await.unwrap();
    let exit = output.exit().unwrap();
    assert_eq!((exit.code, exit.timed_out, output.text().as_ref()), (124, true, "begun\n"));

    let killed = sandbox.run("kill -KILL $$").await.unwrap();
    assert_eq!((killed.code(), killed.exit().unwrap().signal.as_deref()), (Some(137), Some("SIGKILL")));

    let capped = sandbox.run_capped("seq 100000", 1000).await.unwrap();
    assert!(capped.bytes().len() <= 1000 && capped.cut.is_some());
    assert!(capped.text().starts_with("1\n") && capped.text().ends_with("100000\n"));

    let missing = sandbox.run(Command::argv(["/no/such/program"])).await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::SpawnFailed));
}

async fn streams(sandbox: &Sandbox) {
    let command = Command { stdin: true, ..Command::shell("tr a-z A-Z") };
    let mut exec = sandbox.spawn(command).await.unwrap();
    let mut control = exec.control();
    assert!(control.write("hello\n").await.unwrap());
    control.close_input().await.unwrap();
    let mut seen = Vec::new();
    let mut code = None;
    while let Some(event) = exec.next().await.unwrap() {
        match event {
            Event::Output(Stream::Stdout, data) => seen.extend_from_slice(&data),
            Event::End(info) => code = Some(info),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, b"HELLO\n");
    assert!(code.is_some());
}

async fn background(sandbox: &Sandbox) {
    let info = sandbox.start("echo begun; sleep 1000").await.unwrap();
    assert!(sandbox.commands(true).await.unwrap().iter().any(|other| other.id == info.id));
    let mut exec = sandbox.attach(&info.id, 0).await.unwrap();
    assert!(matches!(exec.next().await.unwrap(), Some(Event::Output(Stream::Stdout, data)) if data == "begun\n"));
    assert!(sandbox.kill(&info.id).await.unwrap() >= 1);
    exec.wait().await.unwrap();
    assert!(!sandbox.commands(true).await.unwrap().iter().any(|other| other.id == info.id));
    // It was listed for a moment after it had ended.
    for _ in 0..20 {
        sandbox.run("true").await.unwrap();
        assert!(sandbox.commands(true).await.unwrap().is_empty());
    }
}

/// Files and directories.
pub async fn files(sandbox: &Sandbox) {
    sandbox.mkdir(&Mkdir::new("suite")).await.unwrap();
    let written = sandbox.write(&Write::new("suite/deep/er/file.txt"), "one\ntwo\nthree\n").await.unwrap();
    assert_eq!((written.size, written.created), (14, true));
    let (page, content) = sandbox.read(&Read::new("suite/deep/er/file.txt")).await.unwrap();
    // A page of lines ends without the last line end.
    assert_eq!((page.size, content.as_ref()), (14, &b"one\ntwo\nthree"[..]));

    assert_eq!(sandbox.edit("suite/deep/er/file.txt", "two", "TWO").await.unwrap().occurrences, 1);
    let error = sandbox.edit("suite/deep/er/file.txt", "absent", "x").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::StringNotFound));
    assert_eq!(sandbox.run("cat suite/deep/er/file.txt").await.unwrap().text(), "one\nTWO\nthree\n");

    let exclusive = Write { create_only: true, ..Write::new("suite/deep/er/file.txt") };
    assert_eq!(sandbox.write(&exclusive, "x").await.unwrap_err().code(), Some(ErrorCode::AlreadyExists));
    assert_eq!(sandbox.read(&Read::new("suite/nothing")).await.unwrap_err().code(), Some(ErrorCode::NotFound));

    assert_eq!(sandbox.stat(&Stat::new("suite/deep/er/file.txt")).await.unwrap().entry.size, 14);
    assert_eq!(sandbox.ls(&Ls::new("suite/deep/er")).await.unwrap().entries.len(), 1);
    sandbox.mv(("suite/deep/er/file.txt", "suite/moved.txt")).await.unwrap();
    assert_eq!(sandbox.ls(&Ls::new("suite/deep/er")).await.unwrap().entries.len(), 0);
    let tree = sandbox.tree(&Tree::new("suite")).await.unwrap();
    assert_eq!(tree.entries.len(), 3, "{:?}", tree.entries);

    let whole = sandbox.delete(&Delete { recursive: false, ..Delete::new("suite/deep") }).await;
    assert_eq!(whole.unwrap_err().code(), Some(ErrorCode::NotEmpty));
    sandbox.delete(&Delete { recursive: true, ..Delete::new("suite/deep") }).await.unwrap();
    assert_eq!(sandbox.run("ls suite").await.unwrap().text(), "moved.txt\n");
}

/// Searches.
pub async fn searches(sandbox: &Sandbox) {
    for (name, content) in [("a.py", "needle\n"), ("b.py", "hay\nneedle 2\n"), ("c.txt", "needle\n")] {
        sandbox.write(&Write::new(format!("suite/src/{name}")), content).await.unwrap();
    }
    let glob = sandbox.glob(&Glob { path: Some("suite".into()), ..Glob::new("**/*.py") }).await.unwrap();
    assert_eq!(glob.matches.len(), 2);
    let grep = Grep { path: Some("suite".into()), glob: Some("*.py".into()), ..Grep::new("needle") };
    let grep = sandbox.grep(&grep).await.unwrap();
    assert_eq!((grep.files.len(), grep.count), (2, 2));
}

/// Contents of some size.
pub async fn transfers(sandbox: &Sandbox) {
    let large = Bytes::from((0..3_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let files = vec![(Write::new("suite/large"), large.clone()), (Write::new("suite/empty"), Bytes::new())];
    for result in sandbox.write_all(files).await {
        result.unwrap();
    }
    assert_eq!(sandbox.download(&Download::new("suite/large")).await.unwrap(), large);
    assert!(sandbox.download(&Download::new("suite/empty")).await.unwrap().is_empty());
    let many = sandbox.download_all(vec![Download::new("suite/moved.txt"), Download::new("suite/none")]).await;
    assert_eq!(many[0].as_ref().unwrap().as_ref(), b"one\nTWO\nthree\n");
    assert_eq!(many[1].as_ref().unwrap_err().code(), Some(ErrorCode::NotFound));
}
