//! agent-sandbox: a claim on a warm pool, and its pod through the router.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use rig::{Namespace, TestCluster};
use serde_json::{Value, json};

use crate::pods::{Pods, http_get, waiting};
use crate::timing::part;

pub(crate) async fn claim(cluster: &TestCluster, namespace: &Namespace) -> Result<()> {
    let start = Instant::now();
    cluster.add_warm_pool(namespace.name(), 1)?;
    let pools = api(cluster.admin(), namespace, "SandboxWarmPool");
    let full = wait(&pools, "python", "0", |pool| pool["status"]["readyReplicas"] == 1).await?;
    ensure!(full["spec"]["replicas"] == 1, "{full}");
    part("warm pool: create to full", start);

    let start = Instant::now();
    let claims = api(namespace.client(), namespace, "SandboxClaim");
    let wanted: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "one"}, "spec": {"warmPoolRef": {"name": "python"}},
    }))?;
    let made = claims.create(&PostParams::default(), &wanted).await?;
    let version = made.metadata.resource_version.context("no resourceVersion")?;
    let ready = |claim: &Value| {
        let conditions = claim["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    };
    let claim = wait(&claims, "one", &version, ready).await?;
    part("claim: create to Ready", start);
    let sandbox = claim["status"]["sandbox"]["name"].as_str().context("the claim names no sandbox")?;
    ensure!(sandbox.starts_with("python-"), "{sandbox} isn't from the pool");
    let ip = claim["status"]["sandbox"]["podIPs"][0].as_str().context("the claim has no pod IP")?;

    let system: Api<Pod> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
    let routers = system.list(&ListParams::default().labels("app=sandbox-router")).await?;
    let router = routers.items.first().and_then(|pod| pod.metadata.name.clone()).context("no router")?;
    let start = Instant::now();
    let mut forward = system.portforward(&router, &[8080]).await?;
    let stream = forward.take_stream(8080).context("no stream")?;
    let headers = [
        ("X-Sandbox-ID", sandbox),
        ("X-Sandbox-Namespace", namespace.name()),
        ("X-Sandbox-Port", "8888"),
        ("X-Sandbox-Pod-IP", ip),
    ];
    let answer = http_get(stream, "/", &headers).await?;
    ensure!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"status\":\"ok\""), "{answer}");
    part("GET through the router", start);
    Ok(())
}

/// The Go runtime starts and says that it is healthy.
pub(crate) async fn sandboxd(pods: &Pods) -> Result<()> {
    let mut spec = waiting(rig::SANDBOXD);
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/v1/health", "port": 8080}, "periodSeconds": 1});
    pods.run("sandboxd", spec).await
}

/// A Gateway can be made, and gets an address when somebody writes its status.
pub(crate) async fn gateway(cluster: &TestCluster, namespace: &Namespace) -> Result<()> {
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway");
    let gateways: Api<DynamicObject> =
        Api::namespaced_with(cluster.admin(), namespace.name(), &ApiResource::from_gvk(&kind));
    let wanted = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "front"},
        "spec": {"gatewayClassName": "rig", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    }))?;
    gateways.create(&PostParams::default(), &wanted).await?;
    let address = json!({"status": {"addresses": [{"type": "IPAddress", "value": "127.0.0.1"}]}});
    gateways.patch_status("front", &PatchParams::default(), &Patch::Merge(&address)).await?;
    let made = serde_json::to_value(gateways.get("front").await?)?;
    ensure!(made["status"]["addresses"][0]["value"] == "127.0.0.1", "{made}");
    Ok(())
}

fn api(client: kube::Client, namespace: &Namespace, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("extensions.agents.x-k8s.io", "v1beta1", kind);
    Api::namespaced_with(client, namespace.name(), &ApiResource::from_gvk(&kind))
}

/// Watches until the object is as wanted.
async fn wait(
    api: &Api<DynamicObject>,
    name: &str,
    version: &str,
    is_as_wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut events = Box::pin(api.watch(&only, version).await?);
    let mut last = Value::Null;
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
            last = serde_json::to_value(object)?;
            if is_as_wanted(&last) {
                return Ok(last);
            }
        }
    }
    bail!("{name} wasn't as wanted after 60 s: {last}")
}
