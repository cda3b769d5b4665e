//! What is in the way now and then: an API server that is busy, policies that nobody needs, ids of other times.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::{join_all, try_join_all};
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Provider, Query, Wanted};
use podbay_k8s::Cluster;
use podbay_k8s::raw::{Config, Raw};
use rig::faults::{Answer, ApiProxy};

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_no_pod_is_under_are_removed_and_no_pod_loses_its_own() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), namespace.name());
    raw.get_or_create(&wanted("pb-kept")).await?;
    ensure!(raw.cleanup(None).await?.failed.is_empty());
    ensure!(policies.list(&ListParams::default()).await?.items.len() == 1, "one that is used was removed");
    raw.delete("pb-kept").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    while !pods.list(&ListParams::default()).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(raw.cleanup(None).await?.failed.is_empty());
    ensure!(policies.list(&ListParams::default()).await?.items.is_empty(), "it stays");

    // Creators and cleaners at once, again and again: every pod that is there in the end has its policy.
    for round in 0..5 {
        let ids: Vec<Wanted> = (0..3).map(|n| wanted(&format!("pb-{round}-{n}"))).collect();
        let creators = ids.iter().map(|wanted| raw.get_or_create(wanted));
        let cleaners = (0..6).map(|n| {
            let raw = &raw;
            async move {
                tokio::time::sleep(Duration::from_millis(n * 7)).await;
                raw.cleanup(None).await
            }
        });
        let (created, cleaned) = tokio::join!(try_join_all(creators), join_all(cleaners));
        created?;
        for cleaned in cleaned {
            ensure!(cleaned?.failed.is_empty());
        }
        ensure!(policies.list(&ListParams::default()).await?.items.len() == 1, "a pod has no policy");
        try_join_all(ids.iter().map(|wanted| raw.delete(wanted.id.as_deref().unwrap_or_default()))).await?;
        while !pods.list(&ListParams::default()).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_busy_is_asked_again() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let client = namespace.access().through(proxy.port()).client().await?;
    let raw = Raw::new(Cluster::with_client(client, namespace.name()), config(rig::BUSYBOX))?;
    for code in [429, 500, 503, 410] {
        let status = StatusCode::from_u16(code)?;
        let name = format!("pb-{code}");
        // All of these but a watch's 410 pass by themselves.
        let requests = [
            (Method::POST, "/leases"),
            (Method::POST, "/pods"),
            (Method::PATCH, "/leases"),
            (Method::GET, "watch=true"),
            (Method::GET, "/networkpolicies"),
            (Method::DELETE, "/leases"),
        ];
        for (method, path) in requests.into_iter().filter(|(_, path)| code != 410 || *path == "watch=true") {
            proxy.answer(Answer::new(status).to(method).on(path).times(2));
        }
        let made = raw.get_or_create(&wanted(&name)).await.with_context(|| format!("after {code}"))?;
        ensure!(made.sandbox.run("echo hello").await?.text() == "hello\n");
        ensure!(raw.delete(&name).await.with_context(|| format!("after {code}"))?);
        proxy.step_aside();
    }
    // What doesn't pass is told at once.
    proxy.answer(Answer::new(StatusCode::UNPROCESSABLE_ENTITY).to(Method::POST).on("/leases"));
    let start = std::time::Instant::now();
    ensure!(raw.get_or_create(&wanted("pb-no")).await.is_err() && start.elapsed() < Duration::from_secs(5));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_other_times_and_of_threads_find_their_sandbox() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    // As a manager labels what it wants.
    let labels = [("podbay.dev/thread".to_owned(), "a1b2".to_owned())].into();
    let made = raw.get_or_create(&Wanted { labels, ..wanted("pb-one") }).await?;
    let instance = made.sandbox.hello().await?.instance;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    for id in [
        "pb-one".to_owned(),
        format!("{}/pb-one", namespace.name()),
        pod.clone(),
        format!("{}/{pod}", namespace.name()),
    ] {
        let found = raw.reconnect(&id).await.with_context(|| id.clone())?;
        ensure!(found.id == "pb-one" && found.sandbox.hello().await?.instance == instance, "{id}");
    }
    let labels = [("podbay.dev/thread".to_owned(), "a1b2".to_owned())].into();
    let page = raw.list(&Query { labels, ..Query::default() }).await?;
    ensure!(page.sandboxes.len() == 1 && page.sandboxes[0].labels["podbay.dev/thread"] == "a1b2", "{page:?}");
    for bad in ["other/pb-one", "pb-none", "kube-system"] {
        ensure!(raw.reconnect(bad).await.is_err(), "{bad}");
    }
    ensure!(raw.delete(&pod).await? && !raw.delete(&pod).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_run_where_their_architecture_is() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let raw = provider(&namespace, Config { image_arch: Some(arch.into()), ..config(rig::BUSYBOX) })?;
    let made = raw.get_or_create(&wanted("pb-arch")).await?;
    ensure!(made.sandbox.run("true").await?.success());
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let spec = pods.list(&ListParams::default()).await?.items.remove(0).spec.context("no spec")?;
    ensure!(spec.node_selector.unwrap_or_default()["kubernetes.io/arch"] == arch);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_removed() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let waits = Config { command: Some(vec!["sleep".into(), "infinity".into()]), ..config(rig::BUSYBOX) };
    let raw = provider(&namespace, Config { setup_script: Some("sleep 60".into()), ..waits })?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    // Given up at different moments: while the Lease is made, while the pod starts, while the setup script runs.
    for millis in [10, 200, 2500] {
        let made = tokio::time::timeout(Duration::from_millis(millis), raw.get_or_create(&Wanted::default())).await;
        ensure!(made.is_err(), "it was made within {millis} ms");
        let start = std::time::Instant::now();
        loop {
            let left =
                (pods.list(&ListParams::default()).await?.items, leases.list(&ListParams::default()).await?.items);
            // A request that was cut off may be served a moment later.
            if left.0.is_empty() && left.1.is_empty() && start.elapsed() > Duration::from_secs(1) {
                break;
            }
            ensure!(start.elapsed() < Duration::from_secs(15), "left after {millis} ms: {left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}
