//! The client is killed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use podbay_client::Event;
use podbay_client::files::Read;
use podbay_client::provider::Provider;
use podbay_k8s::raw::Raw;
use podbay_k8s::{Access, Cluster};
use serde_json::json;

use super::{bridges_end, nothing_is_left, only_pod, wanted};
use crate::live::ago;
use crate::pods::rules;
use crate::provider::{config, provider};

const KUBECONFIG: &str = "KILLED_CLIENT_KUBECONFIG";
const TASK: &str = "KILLED_CLIENT_TASK";

#[tokio::test]
#[ignore = "a process that the tests below start"]
async fn child_that_is_killed() -> Result<()> {
    let kubeconfig = std::env::var(KUBECONFIG)?;
    let access = Access { kubeconfig: Some(kubeconfig.into()), ..Access::default() };
    let raw = Raw::new(Cluster::connect(&access).await?, config(rig::DEBIAN))?;
    match std::env::var(TASK)?.as_str() {
        "run" => drop(
            raw.reconnect("pb-client").await?.sandbox.run("echo x >> ran; seq 1 1000; sleep 3; echo y >> ran").await?,
        ),
        "create" => drop(raw.get_or_create(&wanted("pb-half")).await?),
        other => anyhow::bail!("{other}?"),
    }
    std::future::pending().await
}

/// A process of its own, killed at the latest when dropped.
struct Client(Child);

impl Client {
    fn start(namespace: &rig::Namespace, dir: &tempfile::TempDir, task: &str) -> Result<Self> {
        let file = dir.path().join("kubeconfig");
        std::fs::write(&file, namespace.access().kubeconfig())?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["faults::client::child_that_is_killed", "--exact", "--ignored", "--nocapture"]);
        command.env(KUBECONFIG, &file).env(TASK, task).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SIGKILL; it may have ended by itself, which the test finds out by what it did.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_client_ran_runs_on_once_and_can_be_found() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let dir = tempfile::tempdir()?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let made = raw.get_or_create(&wanted("pb-client")).await?;
    let client = Client::start(&namespace, &dir, "run")?;
    let start = Instant::now();
    while made.sandbox.read(&Read::new("ran")).await.is_err() {
        ensure!(start.elapsed() < Duration::from_secs(20), "the client doesn't begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(client);
    let running = made.sandbox.commands(true).await?;
    ensure!(running.len() == 1, "{running:?}");
    let mut exec = made.sandbox.attach(&running[0].id, 0).await?;
    let mut output = Vec::new();
    while let Some(event) = exec.next().await? {
        if let Event::Output(_, data) = event {
            output.extend_from_slice(&data);
        }
    }
    let expected: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    ensure!(output == expected.as_bytes(), "{} bytes", output.len());
    let (_, ran) = made.sandbox.read(&Read::new("ran")).await?;
    ensure!(&ran[..] == b"x\ny", "{ran:?}");
    bridges_end(&made.sandbox, 1).await?;
    ensure!(raw.delete("pb-client").await?);
    nothing_is_left(&cluster, &namespace).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_client_half_made_is_completed_or_removed() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let dir = tempfile::tempdir()?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    for complete in [true, false] {
        let client = Client::start(&namespace, &dir, "create")?;
        let start = Instant::now();
        while leases.get_opt("pb-half").await?.is_none() {
            ensure!(start.elapsed() < Duration::from_secs(20), "the client doesn't begin");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(client);
        if complete {
            let made = raw.get_or_create(&wanted("pb-half")).await?;
            ensure!(made.sandbox.run("echo whole").await?.text() == "whole\n");
            only_pod(&cluster, &namespace).await.context("not one pod")?;
            ensure!(raw.delete("pb-half").await?);
        } else {
            // Its creator may be alive for as long as a start may take.
            let cleaned = raw.cleanup(Some(Duration::ZERO)).await?;
            ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1, "{cleaned:?}");
            let patch = json!({"spec": {"acquireTime": ago(3600)}});
            leases.patch("pb-half", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            let cleaned = raw.cleanup(Some(Duration::ZERO)).await?;
            ensure!(cleaned.deleted == ["pb-half"], "{cleaned:?}");
        }
        nothing_is_left(&cluster, &namespace).await?;
    }
    Ok(())
}
