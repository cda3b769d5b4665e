//! Sandboxes on a node that only some pods tolerate. A program of its own, because no other test could create a pod meanwhile.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "raw/pods.rs"]
#[allow(dead_code, reason = "only the account's rules are wanted here")]
mod pods;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::Cluster;
use podbay_k8s::raw::{Config, Raw};
use serde_json::{Value, json};

#[tokio::test]
async fn only_a_pod_that_tolerates_the_nodes_taint_is_scheduled() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(pods::rules()).await?;
    let nodes: Api<Node> = Api::all(cluster.admin());
    let [node] = &nodes.list(&ListParams::default()).await?.items[..] else { bail!("the rig has one node") };
    let name = node.metadata.name.clone().unwrap_or_default();
    let taint = async |taints: Value| {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        nodes.patch(&name, &PatchParams::default(), &patch).await.map(drop)
    };
    taint(json!([{"key": "podbay.dev/test", "value": "agents", "effect": "NoSchedule"}])).await?;
    let result = plain_and_tolerant(&namespace).await;
    taint(Value::Null).await?;
    result
}

async fn plain_and_tolerant(namespace: &rig::Namespace) -> Result<()> {
    let plain = Config {
        image: rig::BUSYBOX.into(),
        image_pull_policy: "Never".into(),
        memory_request: "16Mi".into(),
        ..Config::default()
    };
    let toleration =
        json!([{"key": "podbay.dev/test", "operator": "Equal", "value": "agents", "effect": "NoSchedule"}]);
    let tolerant = Config { tolerations: serde_json::from_value(toleration)?, ..plain.clone() };
    let cluster = Cluster::with_client(namespace.client(), namespace.name());
    let error = refused(&Raw::new(cluster.clone(), plain)?).await?;
    ensure!(error.contains("untolerated taint"), "{error}");
    let tolerant = Raw::new(cluster, tolerant)?;
    let made = tolerant.get_or_create(&Wanted::default()).await?;
    ensure!(made.sandbox.run("echo scheduled").await?.text() == "scheduled\n");
    ensure!(tolerant.delete(&made.id).await?);
    Ok(())
}

/// Why no sandbox can be created. The scheduler hears of a taint a moment later.
async fn refused(raw: &Raw) -> Result<String> {
    for _ in 0..20 {
        match raw.get_or_create(&Wanted::default()).await {
            Ok(made) => ensure!(raw.delete(&made.id).await?),
            Err(error) => return Ok(error.to_string()),
        }
    }
    bail!("the taint had no effect")
}
