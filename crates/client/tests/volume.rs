//! Much output and much data: complete, bounded, and in nobody's way.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::{Duration, Instant};

use podbay_client::files::{Download, Read, Write};
use podbay_client::{Command, Event, Meter, State, Stream};
use support::Daemon;

const MIB: u64 = 1 << 20;

/// How much data to use: `cargo xtask soak` has the time and the disk space for more.
fn bytes_of(soak: u64, otherwise: u64) -> u64 {
    if std::env::var_os("PODBAY_SOAK").is_some() { soak } else { otherwise }
}

#[tokio::test]
async fn much_output_streams_complete() {
    let daemon = Daemon::start();
    // Every line has its own number, so that a piece that is missing, doubled or out of order is seen.
    const LINE: usize = "1000000000\n".len();
    let lines = bytes_of(2048 * MIB, 512 * MIB) / LINE as u64;
    let bytes = lines * LINE as u64;
    let line = format!("seq 1000000000 {}", 1_000_000_000 + lines - 1);
    let mut exec = daemon.sandbox().spawn(Command { timeout_ms: 0, ..Command::shell(line) }).await.unwrap();
    let (mut total, mut expected, mut rest) = (0, 1_000_000_000_u64, Vec::new());
    while let Some(event) = exec.next().await.unwrap() {
        match event {
            Event::Output(_, data) => {
                total += data.len() as u64;
                rest.extend_from_slice(&data);
                let whole = rest.len() / LINE * LINE;
                for line in rest[..whole].chunks(LINE * 997) {
                    // One line in a thousand is compared; the count below covers the others.
                    let number: u64 = std::str::from_utf8(&line[..10]).unwrap().parse().unwrap();
                    assert_eq!(number, expected);
                    expected += (line.len() / LINE) as u64;
                }
                rest.drain(..whole);
            }
            Event::Lost(bytes) => panic!("{bytes} bytes lost"),
            Event::End(info) => {
                assert!(matches!(info.state, State::Exited(exit) if exit.code == 0));
                assert_eq!(info.output_bytes, bytes);
            }
        }
    }
    assert_eq!(total, bytes);
}

#[tokio::test]
async fn output_that_nobody_reads_neither_blocks_nor_grows() {
    let daemon = Daemon::start();
    let bytes = bytes_of(10_240 * MIB, 2048 * MIB);
    let line = format!("head -c {bytes} /dev/zero; echo end >&2; echo done > done");
    let begun = Instant::now();
    let info = daemon.sandbox().start(Command { timeout_ms: 0, ..Command::shell(line) }).await.unwrap();
    let dir = daemon.state().join("exec").join(info.id.as_str());
    let mut largest = 0;
    while !daemon.work().join("done").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it hangs");
        largest = largest.max(size_below(&dir));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(largest <= 65 * MIB, "the log became {largest} bytes");
    let mut exec = daemon.sandbox().attach(&info.id, 0).await.unwrap();
    let (mut kept, mut lost, mut errors) = (0, 0, Vec::new());
    while let Some(event) = exec.next().await.unwrap() {
        match event {
            Event::Output(stream, data) => {
                kept += data.len() as u64;
                if stream == Stream::Stderr {
                    errors.extend_from_slice(&data);
                }
            }
            Event::Lost(bytes) => lost += bytes,
            Event::End(info) => {
                assert_eq!(info.output_bytes, bytes + 4);
                assert_eq!(info.dropped_bytes, lost);
            }
        }
    }
    assert_eq!(kept + lost, bytes + 4);
    assert!(kept >= 60 * MIB, "{kept} bytes were kept");
    assert_eq!(errors, b"end\n");
    let rss = resident(daemon.pid());
    assert!(rss <= 16 * MIB, "podbayd has {rss} bytes in memory");
}

fn size_below(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn unread_outputs_do_not_stop_a_read() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    std::fs::write(daemon.work().join("small"), "content").unwrap();
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(sandbox.spawn("head -c 100000000 /dev/zero").await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let (_, content) = sandbox.read(&Read::new("small")).await.unwrap();
    assert_eq!(content, "content");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    for mut exec in unread {
        let mut total = 0;
        while let Some(event) = exec.next().await.unwrap() {
            if let Event::Output(_, data) = event {
                total += data.len();
            }
        }
        assert_eq!(total, 100_000_000, "a slow reader loses nothing: the command waited for it");
    }
}

#[tokio::test]
async fn a_long_search_for_a_line_keeps_nobody_waiting() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    std::fs::File::create(daemon.work().join("sparse")).unwrap().set_len(8 << 30).unwrap();
    sandbox.write(&Write::new("small"), "one\ntwo\n").await.unwrap();
    let searching = tokio::spawn({
        let sandbox = sandbox.clone();
        async move { sandbox.read(&Read { offset: 1, ..Read::new("sparse") }).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    sandbox.read(&Read::new("small")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!searching.is_finished(), "it wasn't long");
    searching.abort();
}

#[tokio::test]
async fn a_large_file_goes_up_and_comes_back_while_reads_stay_quick() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let local = daemon.dir.path().join("local");
    let bytes = bytes_of(1024 * MIB, 256 * MIB);
    let made = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("seq 1 200000000 | head -c {bytes} > {}", local.display()))
        .status()
        .unwrap();
    assert!(made.success(), "the file to send can't be made");
    std::fs::write(daemon.work().join("small"), "content").unwrap();
    let told = std::sync::atomic::AtomicU64::new(0);
    let tell = |progress: podbay_client::Progress| told.store(progress.bytes, std::sync::atomic::Ordering::Relaxed);
    let meter = Meter::new(&tell);
    let write = Write::new("big");
    let mut upload = Box::pin(sandbox.upload_file(&local, &write, &meter));
    let mut slowest = Duration::ZERO;
    let written = loop {
        tokio::select! {
            written = &mut upload => break written.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                let begun = Instant::now();
                // The upload must go on meanwhile, so both are driven here.
                let request = Read::new("small");
                let read = sandbox.read(&request);
                let early = tokio::select! {
                    content = read => { assert_eq!(content.unwrap().1, "content"); None }
                    written = &mut upload => Some(written.unwrap()),
                };
                slowest = slowest.max(begun.elapsed());
                if let Some(written) = early { break written; }
            }
        }
    };
    assert_eq!(written.size, bytes);
    assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), bytes);
    assert!(slowest < Duration::from_secs(1), "a read took {slowest:?}");
    let back = daemon.dir.path().join("back");
    sandbox.download_file(&Download::new("big"), &back, &meter).await.unwrap();
    let same = std::process::Command::new("cmp").arg(&local).arg(&back).status().unwrap();
    assert!(same.success());
}

#[tokio::test]
async fn trees_go_both_ways_and_nothing_leaves_the_target() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let local = daemon.dir.path().join("tree");
    for number in 0..300 {
        let dir = local.join(format!("d{}", number % 7));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{number} ü")), vec![b'x'; number * 10]).unwrap();
    }
    std::fs::create_dir(local.join("empty")).unwrap();
    let meter = Meter::new(&|_| {});
    let done = sandbox.upload_tree(&local, "up", &meter).await.unwrap();
    assert_eq!((done.files, done.failed.len(), done.skipped.len()), (300, 0, 0));

    // What a hostile sandbox would try on the way back.
    let up = daemon.work().join("up");
    std::os::unix::fs::symlink("/etc", up.join("out")).unwrap();
    std::os::unix::fs::symlink("../../outside", up.join("d1/out")).unwrap();
    std::os::unix::fs::symlink("d1", up.join("in")).unwrap();
    let back = daemon.dir.path().join("back");
    let done = sandbox.download_tree("up", &back, &meter).await.unwrap();
    assert_eq!((done.files, done.failed.len(), done.skipped.len()), (300, 0, 2), "{done:?}");
    assert!(!back.join("out").exists() && !back.join("d1/out").exists());
    assert_eq!(std::fs::read_link(back.join("in")).unwrap(), std::path::Path::new("d1"));
    assert!(back.join("empty").is_dir());
    let diff =
        std::process::Command::new("diff").args(["-r", "--no-dereference"]).arg(&local).arg(&back).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&diff.stdout).lines().count(), 1, "only the link is new: {diff:?}");
}
