//! podbayd over its unix socket, and beside each figure the floor on the same machine in the same run.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

mod measure;
#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use measure::{Samples, Table, rate, show};
use podbay_client::files::{Download, Glob, Grep, Ls, Read, Stat, Write};
use podbay_client::{Event, Meter, Sandbox};
use support::Daemon;

#[tokio::main]
async fn main() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    size(&daemon).await;
    commands(&sandbox).await;
    files(&sandbox, &daemon.work()).await;
    transfers(&sandbox, &daemon).await;
    searches(&sandbox, &daemon.work()).await;
}

async fn size(daemon: &Daemon) {
    let table = Table::figures("Size and memory of podbayd");
    let binary = std::fs::metadata(support::podbayd()).unwrap().len();
    table.figure("size of the static binary", format!("{:.2} MB", binary as f64 / 1e6));
    daemon.sandbox().hello().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let value =
        |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap()[name.len()..].trim().to_owned();
    table.figure("resident memory, idle, one connection", value("VmRSS:"));
    table.figure("of which anonymous", value("RssAnon:"));
}

fn quiet(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}

async fn commands(sandbox: &Sandbox) {
    let table = Table::times("Commands");
    table.row(
        "baseline: fork and exec of `sh -c true`",
        &Samples::of_blocking(300, || quiet("/bin/sh", &["-c", "true"])),
    );
    table.row(
        "**podbay: `true`**",
        &Samples::of(500, |_| async { assert!(sandbox.run("true").await.unwrap().success()) }).await,
    );
    let echo = |_| async { assert_eq!(sandbox.run("echo hello").await.unwrap().bytes(), "hello\n") };
    table.row("podbay: `echo hello`", &Samples::of(300, echo).await);
    table.row("baseline: `python3 -c pass`", &Samples::of_blocking(40, || quiet("/usr/bin/python3", &["-c", "pass"])));
    let python = |_| async { assert!(sandbox.run("/usr/bin/python3 -c pass").await.unwrap().success()) };
    table.row("podbay: `python3 -c pass`", &Samples::of(40, python).await);
    let rates = Table::figures("Commands, 16 concurrent");
    rates.figure("baseline: fork and exec of `sh -c true`", sixteen_blocking());
    rates.figure("**podbay: `true`**", sixteen(sandbox).await);
}

fn sixteen_blocking() -> String {
    let begun = Instant::now();
    let threads: Vec<_> =
        (0..16).map(|_| std::thread::spawn(|| (0..60).for_each(|_| quiet("/bin/sh", &["-c", "true"])))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    format!("{:.0} per second (n = 960)", 960.0 / begun.elapsed().as_secs_f64())
}

async fn sixteen(sandbox: &Sandbox) -> String {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                for _ in 0..60 {
                    assert!(sandbox.run("true").await.unwrap().success());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    format!("{:.0} per second (n = 960)", 960.0 / begun.elapsed().as_secs_f64())
}

async fn files(sandbox: &Sandbox, work: &Path) {
    let dir = work.join("small");
    std::fs::create_dir(&dir).unwrap();
    for number in 0..20 {
        std::fs::write(dir.join(format!("file{number}.txt")), "line of text\n".repeat(300)).unwrap();
    }
    let path = dir.join("file0.txt");
    let table = Table::times("Small files (4 KB; a directory of 20)");
    table.row("baseline: read of the file", &Samples::of_blocking(2000, || drop(std::fs::read(&path).unwrap())));
    let python = || quiet("/usr/bin/python3", &["-c", "import os,json,base64,fnmatch; open('/etc/hostname').read()"]);
    table.row("baseline: a Python script that reads a file", &Samples::of_blocking(40, python));
    table.row("podbay: stat of a missing file", &Samples::of(2000, |_| missing(sandbox)).await);
    table.row(
        "**podbay: read**",
        &Samples::of(2000, |_| async { drop(sandbox.read(&Read::new("small/file0.txt")).await.unwrap()) }).await,
    );
    table.row(
        "podbay: stat",
        &Samples::of(2000, |_| async { drop(sandbox.stat(&Stat::new("small/file0.txt")).await.unwrap()) }).await,
    );
    table.row(
        "**podbay: ls**",
        &Samples::of(2000, |_| async { assert_eq!(sandbox.ls(&Ls::new("small")).await.unwrap().entries.len(), 20) })
            .await,
    );
    let glob = |_| async {
        let request = Glob { path: Some("small".into()), ..Glob::new("*1*.txt") };
        assert_eq!(sandbox.glob(&request).await.unwrap().matches.len(), 11);
    };
    table.row("**podbay: glob**", &Samples::of(2000, glob).await);
    let grep = |_| async {
        let request = Grep { path: Some("small".into()), ..Grep::new("nowhere") };
        assert_eq!(sandbox.grep(&request).await.unwrap().count, 0);
    };
    table.row("podbay: grep", &Samples::of(2000, grep).await);
    let target = dir.join("floor");
    let replace = || {
        std::fs::write(dir.join(".tmp"), [b'x'; 4000]).unwrap();
        std::fs::rename(dir.join(".tmp"), &target).unwrap();
    };
    table.row("baseline: write and rename", &Samples::of_blocking(1000, replace));
    let write = |_| async { drop(sandbox.write(&Write::new("small/written"), vec![b'x'; 4000]).await.unwrap()) };
    table.row("**podbay: write**", &Samples::of(1000, write).await);
    sandbox.write(&Write::new("small/edited"), "a needle b\n".to_owned() + &"line\n".repeat(700)).await.unwrap();
    let turn = std::cell::Cell::new(false);
    let edit = |_| async {
        // Back and forth, so that every edit changes the file.
        let (old, new) = if turn.replace(!turn.get()) { ("thread", "needle") } else { ("needle", "thread") };
        assert_eq!(sandbox.edit("small/edited", old, new).await.unwrap().occurrences, 1);
    };
    table.row("**podbay: edit**", &Samples::of(1000, edit).await);
    let connect = |_| async {
        let fresh = Sandbox::new(podbay_client::UnixChannel::new(
            work.with_file_name("state").join(podbay_proto::layout::SOCKET),
        ));
        fresh.hello().await.unwrap();
    };
    table.row("podbay: open a connection and get the first answer", &Samples::of(300, connect).await);
}

async fn missing(sandbox: &Sandbox) {
    let missing = sandbox.stat(&Stat::new("no/such/file")).await;
    assert!(missing.is_err());
}

async fn transfers(sandbox: &Sandbox, daemon: &Daemon) {
    const SIZE: u64 = 1 << 30;
    let table = Table::figures("Transfers (median of 3)");
    let local = daemon.dir.path().join("local");
    let mut file = std::fs::File::create(&local).unwrap();
    let block: Vec<u8> = (0..1 << 20).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    (0..SIZE >> 20).for_each(|_| file.write_all(&block).unwrap());
    drop(file);
    let target = daemon.work().join("floor");
    let floor = Samples::of_blocking(3, || socket_copy(&local, &target));
    table.figure("baseline: 1 GiB from a file through a unix socket to a file", rate(SIZE, floor.p50()));
    let meter = Meter::new(&|_| {});
    let up = Samples::of(3, |_| async {
        drop(sandbox.upload_file(&local, &Write::new("big"), &meter).await.unwrap());
    })
    .await;
    table.figure("**podbay: 1 GiB upload**", rate(SIZE, up.p50()));
    let back = daemon.dir.path().join("back");
    let down = Samples::of(3, |_| async {
        drop(sandbox.download_file(&Download::new("big"), &back, &meter).await.unwrap());
    })
    .await;
    table.figure("**podbay: 1 GiB download**", rate(SIZE, down.p50()));
    table.figure("read, p95, during a 1 GiB upload", reads_during_upload(sandbox, &local).await);
    let followed = Samples::of(3, |_| follow(sandbox)).await;
    table.figure("podbay: 256 MiB of a command's output, followed", rate(OUTPUT, followed.p50()));
    let files: Vec<_> = (0..10_000)
        .map(|number| (Write::new(format!("many/{number}")), bytes::Bytes::from(vec![b'x'; 1024])))
        .collect();
    let many = Samples::of(3, |_| async {
        let results = sandbox.write_all(files.clone()).await;
        assert!(results.iter().all(Result::is_ok));
    })
    .await;
    table.figure("podbay: upload of 10,000 files of 1 KiB", show(many.p50()));
    let plain = daemon.work().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let floor = Samples::of_blocking(3, || {
        (0..10_000).for_each(|number| {
            std::fs::write(plain.join(".tmp"), [b'x'; 1024]).unwrap();
            std::fs::rename(plain.join(".tmp"), plain.join(number.to_string())).unwrap();
        });
    });
    table.figure("baseline: 10,000 plain writes and renames", show(floor.p50()));
}

/// How much output the followed command has.
const OUTPUT: u64 = 256 << 20;

async fn follow(sandbox: &Sandbox) {
    let mut exec = sandbox.spawn(format!("head -c {OUTPUT} /dev/zero")).await.unwrap();
    let mut received = 0;
    while let Some(event) = exec.next().await.unwrap() {
        if let Event::Output(_, bytes) = event {
            received += bytes.len() as u64;
        }
    }
    assert_eq!(received, OUTPUT);
}

fn socket_copy(from: &Path, to: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let to = to.to_owned();
    let receiver = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        copy(&mut socket, &mut std::fs::File::create(to).unwrap());
    });
    let mut socket = UnixStream::connect(dir.path().join("socket")).unwrap();
    copy(&mut std::fs::File::open(from).unwrap(), &mut socket);
    drop(socket);
    receiver.join().unwrap();
}

fn copy(from: &mut impl std::io::Read, to: &mut impl std::io::Write) {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return,
            count => to.write_all(&buffer[..count]).unwrap(),
        }
    }
}

async fn reads_during_upload(sandbox: &Sandbox, local: &Path) -> String {
    let upload = tokio::spawn({
        let (sandbox, local) = (sandbox.clone(), local.to_owned());
        async move {
            let meter = Meter::new(&|_| {});
            sandbox.upload_file(&local, &Write::new("big"), &meter).await.unwrap();
        }
    });
    let mut times = Vec::new();
    while !upload.is_finished() {
        let begun = Instant::now();
        sandbox.read(&Read::new("small/file0.txt")).await.unwrap();
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    upload.await.unwrap();
    let count = times.len();
    format!("{} (n = {count})", show(Samples::from(times).at(0.95)))
}

async fn searches(sandbox: &Sandbox, work: &Path) {
    let tree = work.join("tree");
    let mut bytes = 0;
    let mut seed = 7_u64;
    for number in 0..30_000 {
        let dir = tree.join(format!("d{}/e{}", number % 30, number % 900));
        if number < 900 {
            std::fs::create_dir_all(&dir).unwrap();
        }
        let mut text = String::new();
        for _ in 0..100 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&format!("let value_{seed:x} = compute({:x}, \"{:x}\");\n", seed >> 7, seed >> 21));
        }
        if number % 1000 == 0 {
            text.push_str("    here is the needle\n");
        }
        bytes += text.len();
        std::fs::write(dir.join(format!("f{number}.rs")), text).unwrap();
    }
    let table = Table::times(&format!("Search in 30,000 files, {:.0} MB, in the page cache", bytes as f64 / 1e6));
    let start = tree.to_str().unwrap().to_owned();
    let rg = Samples::of_blocking(15, || quiet("rg", &["-uu", "-F", "the needle", &start]));
    table.row("baseline: `rg -uu -F`", &rg);
    let grep = Samples::of(15, |_| async {
        let request = Grep { path: Some(start.as_str().into()), ..Grep::new("the needle") };
        assert_eq!(sandbox.grep(&request).await.unwrap().count, 30);
    })
    .await;
    table.row("**podbay: grep**", &grep);
    let find = Samples::of_blocking(15, || quiet("find", &[&start, "-name", "f777*.rs"]));
    table.row("baseline: `find -name`", &find);
    let glob = Samples::of(15, |_| async {
        let request = Glob { path: Some(start.as_str().into()), ..Glob::new("f777*.rs") };
        assert_eq!(sandbox.glob(&request).await.unwrap().matches.len(), 11);
    })
    .await;
    table.row("podbay: glob", &glob);
    println!("\ngrep takes {:.2} times as long as rg (p50).", grep.p50().as_secs_f64() / rg.p50().as_secs_f64());
}
