//! Commands and small files in a pod that is there.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use podbay_client::Sandbox;
use podbay_client::files::{Glob, Grep, Ls, Read, Stat, Write};
use podbay_client::provider::Provider;

use crate::measure::{Samples, Table};
use crate::rivals::Rivals;
use crate::stock::{EACH, Stock};
use crate::{Bench, config, made};

/// What a package without anything in the pod runs there to read a file.
const SCRIPT: &str =
    "import base64, json, os\nprint(json.dumps({'content': open('/workspace/small/file0.txt').read()}))";

pub async fn measure(bench: &Bench) {
    let raw = bench.raw(config(rig::DEBIAN)).await;
    let provided = made(&raw).await;
    let (sandbox, rivals) = (&provided.sandbox, Rivals::of(bench, &provided.id).await);
    prepare(sandbox).await;
    let way = round_trip(&rivals).await;
    commands(sandbox, &rivals, &way).await;
    // Before the files: ext4 searches long for a free inode where many were deleted in the last minutes.
    sixteen(bench, sandbox, &rivals).await;
    files(sandbox, &rivals, &way).await;
    raw.delete(&provided.id).await.unwrap();
}

async fn prepare(sandbox: &Sandbox) {
    let text = "line of text\n".repeat(300);
    let files = (0..20).map(|n| (Write::new(format!("small/file{n}.txt")), text.clone().into()));
    sandbox.write_all(files.collect()).await.into_iter().for_each(|result| drop(result.unwrap()));
    sandbox.write(&Write::new("small/edited"), "a needle b\n".to_owned() + &"line\n".repeat(700)).await.unwrap();
}

async fn round_trip(rivals: &Rivals<'_>) -> Samples {
    let mut echo = rivals.echo().await;
    let mut times = Vec::new();
    for round in 0..550 {
        let begun = Instant::now();
        echo.there_and_back().await;
        if round >= 50 {
            times.push(begun.elapsed());
        }
    }
    Samples::from(times)
}

/// Times of something by its p50 beside those of something else.
fn factor(slow: &Samples, fast: &Samples) -> String {
    format!("{:.0} times", slow.p50().as_secs_f64() / fast.p50().as_secs_f64())
}

fn above(samples: &Samples, way: &Samples) -> String {
    crate::measure::show(samples.p50().saturating_sub(way.p50()))
}

async fn commands(sandbox: &Sandbox, rivals: &Rivals<'_>, way: &Samples) {
    let table = Table::times("Commands in a running pod");
    table.row("baseline: round trip of 192 bytes through an open exec of `cat`", way);
    let kubectl = Samples::of_blocking(20, || rivals.kubectl_exec(&["true"]));
    table.row("`kubectl exec POD -- true`", &kubectl);
    let api = Samples::of(40, |_| rivals.api_exec(&["true"])).await;
    table.row("one API exec of `true`", &api);
    let run = |_| async { assert!(sandbox.run("true").await.unwrap().success()) };
    let podbay = Samples::of(500, run).await;
    table.row("**podbay: `true`**", &podbay);
    let facts = Table::figures("Commands, compared (p50)");
    facts.figure("`true`, above the round trip", above(&podbay, way));
    facts.figure("faster than one API exec by", factor(&api, &podbay));
    facts.figure("faster than `kubectl exec` by", factor(&kubectl, &podbay));
}

async fn files(sandbox: &Sandbox, rivals: &Rivals<'_>, way: &Samples) {
    let table = Table::times("Small files (4 KB; a directory of 21)");
    let api = Samples::of(30, |_| rivals.api_exec(&["python3", "-c", SCRIPT])).await;
    table.row("one API exec of a Python script that reads the file", &api);
    let cat = Samples::of(30, |_| rivals.api_exec(&["cat", "/workspace/small/file0.txt"])).await;
    table.row("one API exec of `cat`", &cat);
    let missing = |_| async { assert!(sandbox.stat(&Stat::new("no/such/file")).await.is_err()) };
    table.row("podbay: stat of a missing file", &Samples::of(1000, missing).await);
    let mut all = Vec::new();
    let mut row = |name: &str, samples: Samples| {
        table.row(&format!("**podbay: {name}**"), &samples);
        all.push((name.to_owned(), samples));
    };
    let read = |_| async { drop(sandbox.read(&Read::new("small/file0.txt")).await.unwrap()) };
    row("read", Samples::of(1000, read).await);
    let ls = |_| async { assert_eq!(sandbox.ls(&Ls::new("small")).await.unwrap().entries.len(), 21) };
    row("ls", Samples::of(1000, ls).await);
    let glob = |_| async {
        let request = Glob { path: Some("small".into()), ..Glob::new("*1*.txt") };
        assert_eq!(sandbox.glob(&request).await.unwrap().matches.len(), 11);
    };
    row("glob", Samples::of(1000, glob).await);
    let grep = |_| async {
        let request = Grep { path: Some("small".into()), ..Grep::new("nowhere") };
        assert_eq!(sandbox.grep(&request).await.unwrap().count, 0);
    };
    row("grep", Samples::of(1000, grep).await);
    let write = |name: String| async move {
        drop(sandbox.write(&Write::new(format!("written/{name}")), vec![b'x'; 4000]).await.unwrap());
    };
    row("write", Samples::of(1000, |round| write(round.to_string())).await);
    row("write, replacing a file", Samples::of(1000, |_| write("0".into())).await);
    let turn = Cell::new(false);
    let edit = |_| async {
        // Back and forth, so that every edit changes the file.
        let (old, new) = if turn.replace(!turn.get()) { ("thread", "needle") } else { ("needle", "thread") };
        assert_eq!(sandbox.edit("small/edited", old, new).await.unwrap().occurrences, 1);
    };
    row("edit", Samples::of(1000, edit).await);
    let facts = Table::figures("Small files, compared (p50)");
    for (name, samples) in &all {
        facts.figure(
            &format!("{name}: above the round trip / faster than a Python script in an API exec"),
            format!("{} / {}", above(samples, way), factor(&api, samples)),
        );
    }
}

async fn sixteen(bench: &Bench, sandbox: &Sandbox, rivals: &Rivals<'_>) {
    let table = Table::figures("Commands, 16 concurrent");
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
    let per_second = |rate: f64, count: usize| format!("{rate:.0} per second (n = {count})");
    let begun = Instant::now();
    join_all((0..16).map(|_| async {
        for _ in 0..6 {
            rivals.api_exec(&["true"]).await;
        }
    }))
    .await;
    table.figure("one API exec of `true` each", per_second(rate(96, begun.elapsed()), 96));
    let stock = Stock::start(bench).await;
    let rival = stock.rate(bench);
    stock.end().await;
    table.figure("the stock HTTP runtime at its pod IP, connections kept open", per_second(rival, 16 * EACH));
    let mut ours = 0.0;
    // The first commands of a pod wait for its processor quota; these don't count.
    for _ in 0..2 {
        let begun = Instant::now();
        let tasks = (0..16).map(|_| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                for _ in 0..EACH {
                    assert!(sandbox.run("true").await.unwrap().success());
                }
            })
        });
        join_all(tasks).await.into_iter().for_each(|task| task.unwrap());
        ours = rate(16 * EACH, begun.elapsed());
    }
    table.figure("**podbay: `true`**", per_second(ours, 16 * EACH));
    table.figure("podbay / the stock HTTP runtime", format!("{:.2}", ours / rival));
}
