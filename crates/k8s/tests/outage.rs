//! The API server goes away and comes back. A program of its own, because all other tests on the cluster would notice.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod counting;
#[path = "raw/pods.rs"]
#[allow(dead_code, reason = "only the account's rules are wanted here")]
mod pods;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::files::{Read, Write};
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::raw::{Config, Raw};
use podbay_k8s::{Access, Cluster};
use rig::faults::{start_api_server, stop_api_server};
use tokio::task::spawn_blocking;

const SECONDS: u32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_may_restart_while_sandboxes_are_used_and_made() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(pods::rules()).await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, namespace.access().kubeconfig())?;
    let access = Access { kubeconfig: Some(file), ..Access::default() };
    let config = Config {
        image: rig::DEBIAN.into(),
        image_pull_policy: "Never".into(),
        memory_request: "16Mi".into(),
        ..Config::default()
    };
    let raw = Raw::new(Cluster::connect(&access).await?, config)?;
    let made = raw.get_or_create(&Wanted::default()).await?;
    made.sandbox.write(&Write::new("kept"), "yes").await?;
    let instance = made.sandbox.hello().await?.instance;
    let mut exec = made.sandbox.spawn(counting::command(SECONDS)).await?;
    let (running, second) = (made.sandbox.clone(), raw.clone());
    let run = tokio::spawn(async move { running.run("echo y >> ran; sleep 4; echo end").await });
    while made.sandbox.read(&Read::new("ran")).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A pod is being made when it happens.
    let half = Wanted { id: Some("pb-half".into()), ..Wanted::default() };
    let being_made = tokio::spawn(async move { second.get_or_create(&half).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(150)).await;

    let start = Instant::now();
    let stopped = rig::Cluster::clone(&cluster);
    spawn_blocking(move || stop_api_server(&stopped)).await??;
    // Nothing can be made now, and that is said in time.
    let refused = raw.get_or_create(&Wanted::default()).await.err().context("made without an API server")?.to_string();
    ensure!(refused.contains("can't be reached") && start.elapsed() < Duration::from_secs(20), "{refused}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let started = rig::Cluster::clone(&cluster);
    spawn_blocking(move || start_api_server(&started)).await??;
    println!("the API server was away for {:?}", start.elapsed());

    // What ran went on, once, and no byte of its output is missing or there twice.
    counting::arrives_whole(&mut exec, SECONDS).await?;
    ensure!(run.await??.text() == "end\n");
    let mut ran: Vec<_> = made.sandbox.run("cat ran").await?.text().lines().map(str::to_owned).collect();
    ran.sort();
    ensure!(ran == ["x", "y"], "{ran:?}");
    ensure!(made.sandbox.hello().await?.instance == instance, "another podbayd");

    // What was being made is there, or an error said that it isn't and the next caller gets it whole.
    let half = tokio::time::timeout(Duration::from_secs(60), being_made).await.context("it never ends")??;
    println!("made during the outage: {half:?}");
    let again = raw.get_or_create(&Wanted { id: Some("pb-half".into()), ..Wanted::default() }).await?;
    ensure!(again.sandbox.run("echo whole").await?.text() == "whole\n");
    for id in [made.id.as_str(), "pb-half"] {
        ensure!(raw.delete(id).await?);
    }
    let left = raw.list(&podbay_client::provider::Query::default()).await?.sandboxes;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}
