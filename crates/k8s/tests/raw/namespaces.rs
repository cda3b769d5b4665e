//! Sandboxes with namespaces of their own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use http::Method;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use podbay_client::provider::{Phase, Provider, Query};
use podbay_k8s::raw::{Config, Features};
use rig::faults::ApiProxy;
use serde_json::json;

use crate::faults::through;
use crate::provider::{config, provider, wanted};

/// Rights in all namespaces, which such sandboxes need. They go with this value.
struct Everywhere {
    name: String,
    cluster: rig::Cluster,
}

impl Everywhere {
    async fn grant(cluster: &rig::TestCluster, namespace: &rig::Namespace) -> Result<Self> {
        let name = format!("everywhere-{}", namespace.name());
        let features =
            Features { network_rules: true, namespace_per_sandbox: true, namespace_quota: true, ..Features::default() };
        let rules = features.needs().policy_rules();
        let metadata = json!({"name": name});
        let role: ClusterRole = serde_json::from_value(json!({"metadata": metadata, "rules": rules}))?;
        Api::all(cluster.admin()).create(&PostParams::default(), &role).await?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "test", "namespace": namespace.name()}],
        }))?;
        Api::all(cluster.admin()).create(&PostParams::default(), &binding).await?;
        Ok(Self { name, cluster: rig::Cluster::clone(cluster) })
    }
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        for kind in ["clusterrolebinding", "clusterrole"] {
            let _ = self.cluster.kubectl().args(["delete", kind, &self.name]).output();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_of_its_own_comes_with_the_sandbox_and_goes_with_it() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(vec![]).await?;
    let _rights = Everywhere::grant(&cluster, &namespace).await?;
    let config = Config {
        namespace_per_sandbox: true,
        namespace_labels: [("pod-security.kubernetes.io/enforce".into(), "restricted".into())].into(),
        namespace_quota: [("pods".into(), "1".into()), ("limits.memory".into(), "2Gi".into())].into(),
        ..config(rig::BUSYBOX)
    };
    let providers: Vec<_> = (0..3).map(|_| provider(&namespace, config.clone())).collect::<Result<_>>()?;
    let raw = &providers[0];
    let (one, other) = (wanted("pb-one"), wanted("pb-other"));
    let start = Instant::now();
    let (all, _) = futures_util::future::try_join(
        try_join_all(providers.iter().map(|raw| raw.get_or_create(&one))),
        raw.get_or_create(&other),
    )
    .await?;
    println!("namespace and sandbox in {:?}", start.elapsed());
    ensure!(all.iter().filter(|one| one.created).count() == 1, "not one creator");
    ensure!(all[2].sandbox.run("echo hello").await?.text() == "hello\n");

    let of_home = ListParams::default().labels(&format!("podbay.dev/home={}", namespace.name()));
    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    let found = namespaces.list(&of_home).await?.items;
    ensure!(found.len() == 2, "{} namespaces", found.len());
    let own = found.iter().filter_map(|one| one.metadata.name.clone()).find(|name| name.starts_with("pb-one-"));
    let own = own.context("no namespace of the sandbox's name")?;
    let labels = namespaces.get(&own).await?.metadata.labels.unwrap_or_default();
    ensure!(labels["pod-security.kubernetes.io/enforce"] == "restricted");
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.admin(), &own);
    let hard = quotas.list(&ListParams::default()).await?.items[0].spec.clone().and_then(|spec| spec.hard);
    ensure!(hard.context("no quota")?["pods"].0 == "1");
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), &own);
    ensure!(policies.list(&ListParams::default()).await?.items.len() == 1, "no network policy");

    // Listed page by page, and found by the old form of its id.
    let first = raw.list(&Query { limit: Some(1), ..Query::default() }).await?;
    let second = raw.list(&Query { limit: Some(1), cursor: first.cursor.clone(), ..Query::default() }).await?;
    let mut ids: Vec<_> = first.sandboxes.iter().chain(&second.sandboxes).map(|listed| listed.id.as_str()).collect();
    ids.sort_unstable();
    let one_of_them = first.sandboxes.iter().chain(&second.sandboxes).find(|listed| listed.id == "pb-one");
    ensure!(one_of_them.and_then(|listed| listed.namespace.as_deref()) == Some(own.as_str()), "{first:?} {second:?}");
    ensure!(ids == ["pb-one", "pb-other"] && first.sandboxes[0].phase == Phase::Running, "{first:?} {second:?}");
    raw.reconnect(&format!("{own}/pb-one")).await?.sandbox.hello().await?;

    // Deleted whole; whoever wants it meanwhile waits for the end and gets a new one.
    ensure!(raw.delete("pb-one").await? && !raw.delete("pb-one").await?);
    let start = Instant::now();
    let again = raw.get_or_create(&one).await?;
    println!("deleted and made again in {:?}", start.elapsed());
    ensure!(again.created && again.sandbox.run("true").await?.success());

    // A namespace without a sandbox is what an interrupted creation leaves.
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(cluster.admin(), &own);
    leases.delete("pb-one", &DeleteParams::default()).await?;
    let impatient = provider(&namespace, Config { startup_timeout: 1, ..config })?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let cleaned = impatient.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.failed.is_empty() && cleaned.deleted.len() == 2, "{cleaned:?}");
    let start = Instant::now();
    while !namespaces.list(&of_home).await?.items.is_empty() {
        ensure!(start.elapsed() < Duration::from_secs(60), "namespaces are left");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("namespaces gone after {:?}", start.elapsed());
    Ok(())
}

/// A namespace was deleted by its UID: a sandbox that somebody had created in it since went with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_used_again_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(vec![]).await?;
    let _rights = Everywhere::grant(&cluster, &namespace).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let config = Config { namespace_per_sandbox: true, startup_timeout: 20, ..config(rig::BUSYBOX) };
    let raw = provider(&namespace, config.clone())?;
    let slow = through(&namespace, proxy.port(), config).await?;
    raw.get_or_create(&wanted("pb-reused")).await?;
    // The Lease is gone and the namespace isn't, when somebody wants the sandbox again.
    let mut held_pod = proxy.hold(Method::DELETE, "/pods/");
    let mut held = proxy.hold(Method::DELETE, "/api/v1/namespaces/pb-reused-");
    let deleting = tokio::spawn(async move { slow.delete("pb-reused").await });
    held_pod.arrived().await?;
    drop(held_pod);
    held.arrived().await?;
    let again = raw.get_or_create(&wanted("pb-reused")).await?;
    ensure!(again.created && again.sandbox.run("echo live > work").await?.success());
    drop(held);
    ensure!(deleting.await??);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let text = again.sandbox.run("cat work").await.context("the sandbox is gone")?.text().into_owned();
    ensure!(text == "live\n", "{text:?}");
    ensure!(raw.delete("pb-reused").await?);
    Ok(())
}
