//! Local sandboxes beside bubblewrap and a plain fork and exec, in one run.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

#[path = "../../client/benches/measure/mod.rs"]
mod measure;

use std::process::{Command, Stdio};
use std::time::Instant;

use measure::{Samples, Table};
use podbay::files::{Ls, Read, Write};
use podbay::local::Local;
use podbay::provider::{Provider, Wanted};

const BWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/workspace",
    "--chdir",
    "/workspace",
    "true",
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let local = Local::new().unwrap();
    let table = Table::times("A new sandbox for one command");
    table.row("baseline: fork and exec of `true`", &Samples::of_blocking(200, || quiet("true", &[])));
    table.row("`bwrap … true`", &Samples::of_blocking(200, || quiet("bwrap", BWRAP)));
    let podbay = std::env::var("BENCH_PODBAY").expect("cargo xtask bench sets BENCH_PODBAY");
    table.row("**`podbay run -- true`**", &Samples::of_blocking(200, || quiet(&podbay, &["run", "--", "true"])));
    let wanted = Wanted { leashed: true, ..Wanted::default() };
    let mut created = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let provided = local.get_or_create(&wanted).await.unwrap();
        assert!(provided.sandbox.run("true").await.unwrap().success());
        created.push(begun.elapsed());
        local.delete(&provided.id).await.unwrap();
    }
    table.row("**podbay, in process: create to first result**", &Samples::from(created));

    let provided = local.get_or_create(&wanted).await.unwrap();
    let sandbox = provided.sandbox.clone();
    let table = Table::times("Operations in a running sandbox");
    table.row(
        "baseline: fork and exec of `sh -c true`",
        &Samples::of_blocking(300, || quiet("/bin/sh", &["-c", "true"])),
    );
    table.row(
        "**`true`**",
        &Samples::of(500, |_| async { assert!(sandbox.run("true").await.unwrap().success()) }).await,
    );
    sandbox.write(&Write::new("file"), "line of text\n".repeat(300)).await.unwrap();
    table
        .row("**read**", &Samples::of(2000, |_| async { drop(sandbox.read(&Read::new("file")).await.unwrap()) }).await);
    table.row("**ls**", &Samples::of(2000, |_| async { drop(sandbox.ls(&Ls::new(".")).await.unwrap()) }).await);
    let write = |_| async { drop(sandbox.write(&Write::new("written"), vec![b'x'; 4000]).await.unwrap()) };
    table.row("**write**", &Samples::of(2000, write).await);
    sandbox.write(&Write::new("edited"), "here is a needle\n").await.unwrap();
    let turn = std::cell::Cell::new(false);
    let edit = |_| async {
        // Back and forth, so that every edit changes the file.
        let (old, new) = if turn.replace(!turn.get()) { ("thread", "needle") } else { ("needle", "thread") };
        assert_eq!(sandbox.edit("edited", old, new).await.unwrap().occurrences, 1);
    };
    table.row("**edit**", &Samples::of(2000, edit).await);
    local.delete(&provided.id).await.unwrap();
}

fn quiet(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}
