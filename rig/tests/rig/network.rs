//! NetworkPolicy: closes and opens.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use rig::{Namespace, TestCluster};
use serde_json::json;

use crate::pods::Pods;
use crate::timing::part;

/// A policy that denies everything cuts pods off from each other and from the API server; without it they reach both.
pub(crate) async fn deny_all(cluster: &TestCluster, namespace: &Namespace, pods: &Pods) -> Result<()> {
    let server = pods.get("server").await?.status.and_then(|status| status.pod_ip).context("no pod IP")?;
    let targets =
        [format!("http://{server}:8000/"), "https://10.96.0.1/version".into(), "https://10.99.0.1:6443/".into()];
    for target in &targets {
        ensure!(reaches(pods, target).await?, "without a policy, {target} isn't reached");
    }

    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), namespace.name());
    let deny: NetworkPolicy = serde_json::from_value(json!({
        "metadata": {"name": "deny-all"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }))?;
    policies.create(&PostParams::default(), &deny).await?;
    let start = Instant::now();
    for target in &targets {
        wait_until(pods, target, false).await?;
    }
    part("the policy holds for all targets", start);
    let (_, still) = pods.exec("client", &["true"], None).await?;
    ensure!(still, "exec doesn't pass a policy");

    policies.delete("deny-all", &DeleteParams::default()).await?;
    let start = Instant::now();
    for target in &targets {
        wait_until(pods, target, true).await?;
    }
    part("all targets are reached again", start);
    Ok(())
}

async fn wait_until(pods: &Pods, target: &str, reached: bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(15);
    while reaches(pods, target).await? != reached {
        ensure!(Instant::now() < deadline, "{target}: still reached = {}", !reached);
    }
    Ok(())
}

/// Any answer counts: 403 from the API server is one too.
async fn reaches(pods: &Pods, target: &str) -> Result<bool> {
    let curl = ["curl", "--silent", "--insecure", "--output", "/dev/null", "--max-time", "2", target];
    Ok(pods.exec("client", &curl, None).await?.1)
}
