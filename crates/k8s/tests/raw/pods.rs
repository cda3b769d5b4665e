//! Pods for tests of the channel alone.

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use podbay_k8s::Container;
use podbay_k8s::channel::exec::ExecChannel;
use podbay_k8s::raw::Features;
use serde_json::{Value, json};

/// What `podbay install` grants a client that uses network rules and a pool, and nothing else.
pub(crate) fn rules() -> Vec<PolicyRule> {
    Features { network_rules: true, pool: true, ..Features::default() }.needs().policy_rules()
}

/// Makes a pod, waits until it is ready, and gives a channel to it.
pub(crate) async fn channel(namespace: &rig::Namespace, name: &str, container: Value) -> Result<ExecChannel> {
    channel_as(&namespace.client(), namespace.name(), name, container).await
}

/// The same as anybody, anywhere.
pub(crate) async fn channel_as(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    container: Value,
) -> Result<ExecChannel> {
    let mut container = container;
    container["name"] = "main".into();
    container["imagePullPolicy"] = "Never".into();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "run", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}],
        },
    }))?;
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let made = api.create(&PostParams::default(), &pod).await?;
    let uid = made.metadata.uid.context("no UID")?;
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut events = Box::pin(api.watch(&only, "0").await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event {
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                let container = Container { namespace: namespace.into(), pod: name.into(), uid, name: "main".into() };
                return Ok(ExecChannel::new(client.clone(), container, "/tmp"));
            }
        }
    }
    anyhow::bail!("{name} isn't ready after a minute")
}
