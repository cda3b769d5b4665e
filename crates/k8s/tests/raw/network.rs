//! A sandbox has no network but what it is allowed, beside a pod that shows that there is one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
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

/// A server at the address of clouds' metadata services, on the node. It ends with this value, and the address goes.
struct Metadata(rig::Cluster, std::process::Child);

impl Metadata {
    const ADDRESS: &str = "169.254.169.254";

    fn serve(cluster: &rig::Cluster) -> Result<Self> {
        let script = "ip address add $0/32 dev lo 2>/dev/null; d=$(mktemp -d) && cd $d && echo reached > answer &&
            exec timeout 120 python3 -m http.server 8000 --bind $0";
        let child = cluster.inside("sh")?.args(["-c", script, Self::ADDRESS]).spawn()?;
        Ok(Self(cluster.clone(), child))
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
        let address = format!("{}/32", Self::ADDRESS);
        let _ = self.0.inside("ip").map(|mut ip| ip.args(["address", "del", &address, "dev", "lo"]).output());
    }
}

/// A rule for all addresses also opened the node's credentials and the cluster's own pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_for_everything_opens_neither_metadata_nor_the_cluster() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let server = json!({"image": rig::DEBIAN, "command": ["sh", "-c", SERVE]});
    channel(&namespace, "listener", server).await?;
    let control = channel(&namespace, "control", json!({"image": rig::DEBIAN})).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let listener = address(&pods, "listener").await?;
    let _metadata = Metadata::serve(&cluster)?;
    for target in [listener.as_str(), Metadata::ADDRESS] {
        let start = Instant::now();
        while !from_pod(&control, target).await? {
            ensure!(start.elapsed() < Duration::from_secs(20), "even a pod without rules can't reach {target}");
        }
    }
    let everything = json!([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]);
    let sandbox = |egress, ranges: &[&str]| {
        let mut config = Config { egress: serde_json::from_value(egress).unwrap(), ..config(rig::DEBIAN) };
        if !ranges.is_empty() {
            config.cluster_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        }
        let raw = provider(&namespace, config);
        async move { anyhow::Ok(raw?.get_or_create(&Wanted::default()).await?.sandbox) }
    };
    // Where the pods' range is said not to be the cluster's, the rule opens them, and still not the metadata.
    let open = sandbox(everything.clone(), &["10.96.0.0/16"]).await?;
    let start = Instant::now();
    while !from_sandbox(&open, &listener).await? {
        ensure!(start.elapsed() < Duration::from_secs(10), "the rule opens nothing");
    }
    ensure!(!from_sandbox(&open, Metadata::ADDRESS).await?, "the metadata service was reached");
    let usual = sandbox(everything, &[]).await?;
    for target in [listener.as_str(), Metadata::ADDRESS] {
        ensure!(!from_sandbox(&usual, target).await?, "{target} was reached");
    }
    // So with a rule that names no destination, as the usual one for DNS.
    let ports = sandbox(json!([{"ports": [{"port": 8000}]}]), &[]).await?;
    for target in [listener.as_str(), Metadata::ADDRESS] {
        ensure!(!from_sandbox(&ports, target).await?, "{target} was reached");
    }
    // What is named is open.
    let named = sandbox(json!([{"to": [{"ipBlock": {"cidr": format!("{}/32", Metadata::ADDRESS)}}]}]), &[]).await?;
    let start = Instant::now();
    while !from_sandbox(&named, Metadata::ADDRESS).await? {
        ensure!(start.elapsed() < Duration::from_secs(10), "what is named can't be reached");
    }
    Ok(())
}

/// A policy that somebody had opened kept its name and the number of its rules, and was taken for the closed one.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_was_changed_is_refused() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let egress = json!([{"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 443}, {"port": 53, "protocol": "UDP"}]}]);
    let config = Config { egress: serde_json::from_value(egress)?, ..config(rig::BUSYBOX) };
    let raw = provider(&namespace, config)?;
    raw.get_or_create(&Wanted::default()).await?;
    // As the API server keeps it, it is what was asked for.
    raw.get_or_create(&Wanted::default()).await?;
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), namespace.name());
    let name =
        policies.list(&ListParams::default()).await?.items.pop().and_then(|one| one.metadata.name).context("none")?;
    let opened = json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}});
    policies.patch(&name, &PatchParams::default(), &Patch::Merge(opened)).await?;
    let error = raw.get_or_create(&Wanted::default()).await.err().context("it was made")?.to_string();
    ensure!(error.contains(&name) && error.contains("delete it"), "{error}");
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
