//! The controller, the router and the API server go away and come back while claims are made and used. A program of its own, because all
//! other tests on the cluster would notice.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod counting;
#[path = "agent_sandbox/fixture.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod fixture;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use podbay_client::files::Read;
use podbay_client::provider::Provider;
use podbay_k8s::agent_sandbox::{AgentSandbox, Config};
use podbay_k8s::channel::Connection;
use podbay_k8s::keys::PrivateKey;
use podbay_k8s::{Access, Cluster};
use rig::faults::{start_api_server, stop_api_server};
use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};

use fixture::{ALL, Fixture, template, wanted};

const SECONDS: u32 = 10;

/// How long a sandbox is tried again. On a busy machine, scheduler and kubelet may take a minute until they watch pods again.
const PATIENCE: Duration = Duration::from_secs(240);

/// Creates a sandbox, runs a command in it that must run once, and deletes it. What fails meanwhile is tried again, as a user
/// would. Returns the errors that were seen.
async fn one_of_many(provider: AgentSandbox, name: String) -> Result<Vec<String>> {
    let (begun, mut seen) = (Instant::now(), Vec::new());
    let made = loop {
        match provider.get_or_create(&wanted(&name)).await {
            Ok(made) => break made,
            Err(error) => seen.push(error.to_string()),
        }
        ensure!(begun.elapsed() < PATIENCE, "{name} can't be created: {seen:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    // Its caller may get an error, but it must not run again by itself.
    if let Err(error) = made.sandbox.run("echo once >> ran").await {
        seen.push(error.to_string());
    }
    let ran = loop {
        match made.sandbox.run("touch ran; cat ran").await {
            Ok(output) => break output.text().into_owned(),
            Err(error) => seen.push(error.to_string()),
        }
        ensure!(begun.elapsed() < PATIENCE, "{name} can't be used: {seen:?}");
    };
    ensure!(ran == "once\n" || (ran.is_empty() && !seen.is_empty()), "{name}: {ran:?}, errors: {seen:?}");
    loop {
        match provider.delete(&name).await {
            Ok(_) => return Ok(seen),
            Err(error) => seen.push(error.to_string()),
        }
        ensure!(begun.elapsed() < PATIENCE, "{name} can't be deleted: {seen:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// A provider that reaches sandboxes through a tunnel to the router.
fn through_the_router(fixture: &Fixture, key_file: &std::path::Path) -> Result<AgentSandbox> {
    std::fs::write(key_file, PrivateKey::from_seed([7; 32]).secret_text())?;
    let cluster = Cluster::with_client(fixture.cluster.admin(), fixture.namespace.name());
    let private_key_file = key_file.to_str().map(str::to_owned);
    Ok(AgentSandbox::new(&cluster, Config { connection: Connection::Tunnel, private_key_file, ..template("debian") })?)
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_and_api_server_may_restart_while_claims_are_made_and_used() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({"networkPolicyManagement": "Unmanaged"})).await?;
    fixture.pool("debian", "debian", 2).await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, fixture.namespace.access().kubeconfig())?;
    let access = Access { kubeconfig: Some(file), ..Access::default() };
    let provider = AgentSandbox::new(&Cluster::connect(&access).await?, template("debian"))?;
    let made = provider.get_or_create(&wanted("pb-used")).await?;
    let instance = made.sandbox.hello().await?.instance;
    let mut exec = made.sandbox.spawn(counting::command(SECONDS)).await?;
    while made.sandbox.read(&Read::new("ran")).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let routed = through_the_router(&fixture, &dir.path().join("key"))?;
    let through = routed.get_or_create(&wanted("pb-routed")).await?;
    let mut routed_exec = through.sandbox.spawn(counting::command(SECONDS)).await?;
    let mut load = JoinSet::new();
    for number in 0..10 {
        let provider = provider.clone();
        load.spawn(async move {
            tokio::time::sleep(Duration::from_millis(400 * number)).await;
            one_of_many(provider, format!("pb-load-{number}")).await
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The router's too: every connection through it breaks.
    let controllers: Api<Pod> = Api::namespaced(fixture.cluster.admin(), "agent-sandbox-system");
    for pod in controllers.list(&ListParams::default()).await?.items {
        let name = pod.metadata.name.unwrap_or_default();
        controllers.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    let cluster = rig::Cluster::clone(&fixture.cluster);
    let stopped = cluster.clone();
    spawn_blocking(move || stop_api_server(&stopped)).await??;
    tokio::time::sleep(Duration::from_secs(2)).await;
    spawn_blocking(move || start_api_server(&cluster)).await??;

    counting::arrives_whole(&mut exec, SECONDS).await?;
    ensure!(made.sandbox.run("cat ran").await?.text() == "x\n");
    ensure!(made.sandbox.hello().await?.instance == instance, "another podbayd");
    counting::arrives_whole(&mut routed_exec, SECONDS).await.context("through the router")?;
    ensure!(through.sandbox.run("cat ran").await?.text() == "x\n");
    ensure!(routed.delete("pb-routed").await?);
    while let Some(one) = load.join_next().await {
        for error in one?? {
            println!("during the outage: {error}");
        }
    }
    ensure!(provider.delete("pb-used").await?);
    fixture.only_pools_are_left(2).await.context("after the outage")
}
