//! Operations of every kind, on images of every kind.

use anyhow::{Context, Result, ensure};
use podbay_client::files::{Delete, Download, Glob, Grep, Ls, Mkdir, Read, Stat, Write};
use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, ErrorCode, Meter, Sandbox};
use podbay_k8s::raw::Config;

use crate::pods::rules;
use crate::provider::{config, provider};

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_works_on_every_image() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let as_root =
        Config { run_as_user: None, run_as_group: None, fs_group: None, run_as_non_root: false, ..config(rig::DEBIAN) };
    for (name, config) in [
        ("debian", config(rig::DEBIAN)),
        ("root", as_root),
        ("busybox", config(rig::BUSYBOX)),
        ("nonroot", Config { read_only_root: true, ..config(rig::NONROOT) }),
    ] {
        let raw = provider(&namespace, config)?;
        let provided = raw.get_or_create(&Wanted::default()).await.with_context(|| name.to_owned())?;
        files(&provided.sandbox).await.with_context(|| format!("files in {name}"))?;
        commands(&provided.sandbox).await.with_context(|| format!("commands in {name}"))?;
        large(&provided.sandbox).await.with_context(|| format!("a large file in {name}"))?;
        ensure!(raw.delete(&provided.id).await?);
    }
    Ok(())
}

async fn files(sandbox: &Sandbox) -> Result<()> {
    sandbox.write(&Write::new("deep/er/a.txt"), "one\ntwo\nthree\n").await?;
    ensure!(sandbox.edit("deep/er/a.txt", "two", "zwei").await?.occurrences == 1);
    let (page, content) = sandbox.read(&Read::new("/workspace/deep/er/a.txt")).await?;
    ensure!(content.starts_with(b"one\nzwei\nthree") && page.size == 15, "{content:?}");
    ensure!(sandbox.grep(&Grep::new("zwei")).await?.count == 1);
    ensure!(sandbox.glob(&Glob::new("**/*.txt")).await?.matches.len() == 1);
    sandbox.mkdir(&Mkdir::new("other")).await?;
    sandbox.mv(("deep/er/a.txt", "other/b.txt")).await?;
    let entries = sandbox.ls(&Ls::new("other")).await?.entries;
    ensure!(entries.len() == 1, "{entries:?}");
    sandbox.stat(&Stat::new("other/b.txt")).await?;
    sandbox.delete(&Delete::new("other/b.txt")).await?;
    let error = sandbox.read(&Read::new("other/b.txt")).await.err().context("it is there")?;
    ensure!(error.code() == Some(ErrorCode::NotFound), "{error}");
    sandbox.write(&Write::new("/large_tool_results/1"), "x").await?;
    Ok(())
}

async fn commands(sandbox: &Sandbox) -> Result<()> {
    let output = sandbox.run("echo out; echo err >&2; exit 3").await?;
    ensure!(output.code() == Some(3) && output.stdout() == b"out\n" && output.stderr() == b"err\n", "{output:?}");
    let command = Command { timeout_ms: 300, ..Command::shell("echo begun; sleep 60") };
    let late = sandbox.run(command).await?;
    ensure!(late.code() == Some(124) && late.text() == "begun\n", "{late:?}");
    let background = sandbox.run("sleep 1000 >/dev/null 2>&1 & echo started").await?;
    ensure!(background.text() == "started\n");
    // 16 at once on one connection.
    let all = futures_util::future::try_join_all((0..16).map(|n| async move {
        let output = sandbox.run(format!("echo {n}").as_str()).await?;
        Ok::<_, podbay_client::Error>(output.text() == format!("{n}\n"))
    }))
    .await?;
    ensure!(all.iter().all(|right| *right));
    Ok(())
}

/// Over the second connection, there and back.
async fn large(sandbox: &Sandbox) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&from, &bytes)?;
    let quiet = |_| {};
    let start = std::time::Instant::now();
    sandbox.upload_file(&from, &Write::new("large"), &Meter::new(&quiet)).await?;
    let up = start.elapsed();
    sandbox.download_file(&Download::new("large"), &to, &Meter::new(&quiet)).await?;
    println!("20 MB up in {up:?}, down in {:?}", start.elapsed() - up);
    ensure!(std::fs::read(&to)? == bytes, "it came back changed");
    Ok(())
}
