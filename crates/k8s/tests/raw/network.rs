//! A sandbox has no network but what it is allowed, beside a pod that shows that there is one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use podbay_client::Sandbox;
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::channel::exec::ExecChannel;
use podbay_k8s::raw::Config;
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::pods::{channel, rules};
use crate::provider::{config, provider};

const SERVE: &str = "cd /tmp && echo reached > answer && exec python3 -m http.server 8000";

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_reaches_nothing_that_its_rules_do_not_name() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let server = json!({"image": rig::DEBIAN, "command": ["sh", "-c", SERVE]});
    channel(&namespace, "listener", server).await?;
    let control = channel(&namespace, "control", json!({"image": rig::DEBIAN})).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let listener = address(&pods, "listener").await?;

    // Without the policy there is a way. If this fails, the rest would prove nothing.
    let start = Instant::now();
    while !from_pod(&control, &listener).await? {
        ensure!(start.elapsed() < Duration::from_secs(20), "even a pod without rules can't reach the listener");
    }
    let closed = provider(&namespace, config(rig::DEBIAN))?;
    let made = closed.get_or_create(&Wanted::default()).await?;
    ensure!(!from_sandbox(&made.sandbox, &listener).await?, "a sandbox without network reached the listener");
    ensure!(from_pod(&control, &listener).await?, "the policy of a sandbox holds for other pods");

    // Nor is it reached.
    made.sandbox.start(SERVE).await?;
    let start = Instant::now();
    while !from_sandbox(&made.sandbox, "127.0.0.1").await? {
        ensure!(start.elapsed() < Duration::from_secs(10), "nobody listens in the sandbox");
    }
    let list = pods.list(&ListParams::default().labels(&format!("podbay.dev/sandbox={}", made.id))).await?;
    let name = list.items.first().and_then(|pod| pod.metadata.name.clone()).context("no pod")?;
    ensure!(!from_pod(&control, &address(&pods, &name).await?).await?, "a sandbox without network was reached");

    // One that is allowed this way has this way and no other.
    let rule = json!({"to": [{"ipBlock": {"cidr": format!("{listener}/32")}}], "ports": [{"port": 8000}]});
    let config = Config { egress: vec![serde_json::from_value(rule)?], ..config(rig::DEBIAN) };
    let open = provider(&namespace, config)?.get_or_create(&Wanted::default()).await?;
    let start = Instant::now();
    while !from_sandbox(&open.sandbox, &listener).await? {
        ensure!(start.elapsed() < Duration::from_secs(10), "what is allowed can't be reached");
    }
    let elsewhere = open.sandbox.run("curl -skm 2 https://10.96.0.1/ >/dev/null && echo reached").await?;
    ensure!(elsewhere.text().is_empty(), "the API server was reached");
    Ok(())
}

async fn address(pods: &Api<Pod>, name: &str) -> Result<String> {
    pods.get(name).await?.status.and_then(|status| status.pod_ip).context("no address")
}

fn fetch(address: &str) -> String {
    format!("curl -sm 2 http://{address}:8000/answer; true")
}

async fn from_pod(pod: &ExecChannel, address: &str) -> Result<bool> {
    let mut output = String::new();
    pod.start(&["sh", "-c", &fetch(address)]).await?.read_to_string(&mut output).await?;
    Ok(output == "reached\n")
}

async fn from_sandbox(sandbox: &Sandbox, address: &str) -> Result<bool> {
    Ok(sandbox.run(fetch(address).as_str()).await?.text() == "reached\n")
}
