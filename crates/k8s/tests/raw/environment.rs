//! Environment variables from Secrets and ConfigMaps.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use podbay_client::provider::Provider;
use podbay_k8s::raw::Config;
use serde_json::json;

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

/// A key for a model could only be given as plain text, in the pod for everybody to read.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_from_a_secret_is_in_the_sandbox_and_nowhere_else() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "model"}, "stringData": {"key": "s3cr3t-value"}}))?;
    Api::namespaced(cluster.admin(), namespace.name()).create(&PostParams::default(), &secret).await?;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "options"}, "data": {"region": "north"}}))?;
    Api::namespaced(cluster.admin(), namespace.name()).create(&PostParams::default(), &map).await?;
    let from = json!({
        "API_KEY": {"secretKeyRef": {"name": "model", "key": "key"}},
        "REGION": {"configMapKeyRef": {"name": "options", "key": "region"}},
    });
    let config = Config { env_from: serde_json::from_value(from)?, ..config(rig::BUSYBOX) };
    let raw = provider(&namespace, config.clone())?;
    let made = raw.get_or_create(&wanted("pb-env")).await?;
    ensure!(made.sandbox.run("echo $API_KEY $REGION").await?.text() == "s3cr3t-value north\n");
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default()).await?.items.pop().context("no pod")?;
    let shown = format!("{}{config:?}{:?}", serde_json::to_string(&pod)?, raw.list(&Default::default()).await?);
    ensure!(!shown.contains("s3cr3t"), "the value is in the pod: {shown}");

    let missing = json!({"API_KEY": {"secretKeyRef": {"name": "nowhere", "key": "key"}}});
    let config = Config { env_from: serde_json::from_value(missing)?, startup_timeout: 20, ..config };
    let error = provider(&namespace, config)?.get_or_create(&wanted("pb-none")).await.err().context("it was made")?;
    ensure!(error.to_string().contains("nowhere"), "{error}");
    Ok(())
}
