//! Files there and back.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use podbay_client::files::{Download, Read, Write};
use podbay_client::provider::Provider;
use podbay_client::{Meter, Sandbox};

use crate::measure::{Samples, Table, rate, show};
use crate::rivals::Rivals;
use crate::{Bench, config, made};

const SIZE: u64 = 200_000_000;
const LARGE: u64 = 1_000_000_000;
const ROUNDS: usize = 5;

pub async fn measure(bench: &Bench) {
    let raw = bench.raw(config(rig::DEBIAN)).await;
    let provided = made(&raw).await;
    let (sandbox, rivals) = (&provided.sandbox, Rivals::of(bench, &provided.id).await);
    let local = bench.dir.path().join("local");
    fill(&local, SIZE);
    one_file(sandbox, &rivals, &local, &bench.dir.path().join("back")).await;
    let table = Table::figures("Reading during an upload");
    reads_during_upload(sandbox, &table, &bench.dir.path().join("large")).await;
    raw.delete(&provided.id).await.unwrap();
}

pub async fn measure_many(bench: &Bench) {
    let raw = bench.raw(config(rig::DEBIAN)).await;
    let provided = made(&raw).await;
    let rivals = Rivals::of(bench, &provided.id).await;
    many_files(&provided.sandbox, &rivals, bench.dir.path()).await;
    raw.delete(&provided.id).await.unwrap();
}

fn fill(path: &Path, size: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    let block: Vec<u8> = (0..1_000_000).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    (0..size / 1_000_000).for_each(|_| file.write_all(&block).unwrap());
}

async fn one_file(sandbox: &Sandbox, rivals: &Rivals<'_>, local: &Path, back: &Path) {
    let mut times: [Vec<Duration>; 6] = Default::default();
    let meter = Meter::new(&|_| {});
    let pod = format!("{}:/workspace/cp", rivals.pod);
    let (from, to) = (local.to_str().unwrap(), back.to_str().unwrap());
    // All six in each round: what the machine does besides, it does to all of them.
    for _ in 0..ROUNDS {
        let mut step = Instant::now();
        let mut took = |index: usize| {
            times[index].push(step.elapsed());
            step = Instant::now();
        };
        rivals.kubectl(&["cp", from, &pod]);
        took(0);
        rivals.cat_up(local).await;
        took(1);
        sandbox.upload_file(local, &Write::new("big"), &meter).await.unwrap();
        took(2);
        rivals.kubectl(&["cp", &pod, to]);
        took(3);
        rivals.cat_down(back, SIZE).await;
        took(4);
        sandbox.download_file(&Download::new("big"), back, &meter).await.unwrap();
        took(5);
    }
    assert_eq!(std::fs::metadata(back).unwrap().len(), SIZE);
    let median = times.map(|times| Samples::from(times).p50());
    let table = Table::figures("Transferring 200 MB through the API server (median of 5 interleaved runs)");
    let names = ["`kubectl cp`, upload", "a bare WebSocket to `cat`, upload", "**podbay: upload**"];
    let down = ["`kubectl cp`, download", "a bare WebSocket from `cat`, download", "**podbay: download**"];
    for (name, time) in names.into_iter().chain(down).zip(median) {
        table.figure(name, rate(SIZE, time));
    }
    let times = |one: usize, other: usize| format!("{:.2}", median[one].as_secs_f64() / median[other].as_secs_f64());
    table.figure("podbay / `kubectl cp`, upload and download", format!("{} and {}", times(0, 2), times(3, 5)));
    table.figure("podbay / a bare WebSocket, upload and download", format!("{} and {}", times(1, 2), times(4, 5)));
}

async fn reads_during_upload(sandbox: &Sandbox, table: &Table, large: &Path) {
    fill(large, LARGE);
    sandbox.write(&Write::new("small.txt"), "line of text\n".repeat(300)).await.unwrap();
    let upload = tokio::spawn({
        let (sandbox, large) = (sandbox.clone(), large.to_owned());
        async move {
            let meter = Meter::new(&|_| {});
            sandbox.upload_file(&large, &Write::new("big"), &meter).await.unwrap();
        }
    });
    let mut times = Vec::new();
    while !upload.is_finished() {
        let begun = Instant::now();
        sandbox.read(&Read::new("small.txt")).await.unwrap();
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    upload.await.unwrap();
    std::fs::remove_file(large).unwrap();
    let count = times.len();
    let samples = Samples::from(times);
    table.figure(
        "read of a small file during a 1 GB upload",
        format!("p50 {}, p95 {} (n = {count})", show(samples.p50()), show(samples.at(0.95))),
    );
}

async fn many_files(sandbox: &Sandbox, rivals: &Rivals<'_>, dir: &Path) {
    let many = dir.join("many");
    std::fs::create_dir(&many).unwrap();
    (0..10_000).for_each(|number| std::fs::write(many.join(number.to_string()), [b'x'; 1024]).unwrap());
    let from = many.to_str().unwrap().to_owned();
    let table = Table::times("Uploading 10,000 files of 1 KiB");
    let mut copies = 0..;
    let copied = Samples::of_blocking(3, || {
        let to = format!("{}:/workspace/copied-{}", rivals.pod, copies.next().unwrap());
        rivals.kubectl(&["cp", &from, &to]);
    });
    table.row("`kubectl cp` (one archive)", &copied);
    let send = |dir: String| async move {
        let files = (0..10_000).map(|number| (Write::new(format!("{dir}/{number}")), Bytes::from(vec![b'x'; 1024])));
        assert!(sandbox.write_all(files.collect()).await.iter().all(Result::is_ok));
    };
    table.row("**podbay**", &Samples::of(3, |round| send(format!("sent-{round}"))).await);
    table.row("podbay, replacing existing files", &Samples::of(3, |_| send("sent-0".into())).await);
}
