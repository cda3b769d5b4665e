//! Pods that wait to become sandboxes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use podbay_client::provider::{Phase, Provider, Query, Wanted};
use podbay_k8s::raw::{Config, Raw};
use serde_json::json;

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

pub(crate) fn pooled(size: u32) -> Config {
    Config { warm_pool_size: size, ..config(rig::BUSYBOX) }
}

pub(crate) async fn until_available(raw: &Raw, count: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let status = raw.pool_status().await?;
        if status.available == count {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(60), "{status:?} instead of {count} available");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A client's keeper and a call of `refill` once warmed the same pods: the later of the two found them added already,
/// failed, and deleted them, by then perhaps somebody's sandboxes.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_fill_a_pool_at_once_in_one_client_do_it_once() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, pooled(2))?;
    for round in 0..3 {
        try_join_all((0..4).map(|_| raw.refill())).await.with_context(|| format!("round {round}"))?;
        let status = raw.pool_status().await?;
        ensure!((status.available, status.total) == (2, 2 + round), "round {round}: {status:?}");
        // The keeper begins at once to replace what is taken.
        let made = raw.get_or_create(&wanted(&format!("pb-fill-{round}"))).await?;
        ensure!(made.sandbox.run("echo mine > file").await?.success());
    }
    raw.refill().await?;
    for round in 0..3 {
        let found = raw.reconnect(&format!("pb-fill-{round}")).await?;
        ensure!(found.sandbox.run("cat file").await?.text() == "mine\n", "the sandbox of round {round} was replaced");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_from_the_pool_is_there_at_once() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let script = Some("echo ready > file".to_owned());
    let raw = provider(&namespace, Config { setup_script: script, ..pooled(2) })?;
    let start = Instant::now();
    let status = raw.refill().await?;
    println!("two pods warm after {:?}", start.elapsed());
    ensure!((status.available, status.active, status.total, status.target) == (2, 0, 2, 2), "{status:?}");
    let page = raw.list(&Query { phase: Some(Phase::Warm), ..Query::default() }).await?;
    ensure!(page.sandboxes.len() == 2 && page.cursor.is_none(), "{page:?}");
    let stats = raw.stats(Duration::from_secs(60)).await?;
    ensure!((stats.total, stats.warm, stats.running) == (2, 2, 0), "{stats:?}");

    // By a client that has no session open, and by one that has.
    let mut times = Vec::new();
    for round in 0..6 {
        until_available(&raw, 2).await?;
        let held = round % 2 == 1;
        let client = if held {
            raw.clone()
        } else {
            provider(&namespace, Config { setup_script: Some("echo ready > file".into()), ..pooled(2) })?
        };
        if held {
            // The keeper has had time to open its session.
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
        let start = Instant::now();
        let ttl = Some(Duration::from_secs(600));
        let labels = [("team".to_owned(), "blue".to_owned())].into();
        let made = client.get_or_create(&Wanted { ttl, labels, ..wanted(&format!("pb-{round}")) }).await?;
        let output = made.sandbox.run("cat file").await?;
        times.push((held, start.elapsed()));
        ensure!(made.created && output.text() == "ready\n", "{:?}", output.text());
        ensure!(!client.get_or_create(&wanted(&format!("pb-{round}"))).await?.created, "made twice");
    }
    println!("create to first result (session held, time): {times:?}");

    // It is a sandbox like any other: listed with its labels, protected, with its deadline, and deleted with its pod.
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let page = raw.list(&Query { labels, ..Query::default() }).await?;
    ensure!(page.sandboxes.len() == 6 && page.sandboxes.iter().all(|one| one.phase == Phase::Running), "{page:?}");
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default().labels("podbay.dev/sandbox=pb-1")).await?.items.remove(0);
    let labels = pod.metadata.labels.unwrap_or_default();
    ensure!(labels["podbay.dev/state"] == "claimed" && labels.contains_key("podbay.dev/net"), "{labels:?}");
    let owners = pod.metadata.owner_references.unwrap_or_default();
    ensure!(owners.len() == 1 && owners[0].name == "pb-1", "{owners:?}");
    let deadline = pod.spec.and_then(|spec| spec.active_deadline_seconds).context("no deadline")?;
    ensure!((600..700).contains(&deadline), "{deadline} s");
    let name = pod.metadata.name.context("no name")?;
    let start = Instant::now();
    ensure!(raw.delete("pb-1").await?);
    while pods.get_opt(&name).await?.is_some() {
        ensure!(start.elapsed() < Duration::from_secs(10), "the pod stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("delete to pod gone: {:?}", start.elapsed());

    // The pool's own Lease is no sandbox, whoever calls it one.
    for error in [
        raw.get_or_create(&wanted("pb-pool-default")).await.err().context("made")?.to_string(),
        raw.reconnect("pb-pool-default").await.err().context("found")?.to_string(),
        raw.delete("pb-pool-default").await.err().context("deleted")?.to_string(),
    ] {
        ensure!(error.contains("isn't a Podbay sandbox"), "{error}");
    }

    // By its size the pool is also emptied.
    until_available(&raw, 2).await?;
    drop(raw);
    let none = provider(&namespace, Config { setup_script: Some("echo ready > file".into()), ..config(rig::BUSYBOX) })?;
    none.refill().await?;
    let left = none.list(&Query { phase: Some(Phase::Warm), ..Query::default() }).await?;
    ensure!(left.sandboxes.is_empty(), "{left:?}");
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    ensure!(leases.get_opt("pb-pool-default").await?.is_none(), "the pool's Lease stays");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_pool_and_newer_ones_replace_what_is_out_of_date() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let clients: Vec<Raw> = (0..4).map(|_| provider(&namespace, pooled(3))).collect::<Result<_>>()?;
    let all = try_join_all(clients.iter().map(|raw| raw.refill())).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let count = pods.list(&ListParams::default()).await?.items.len();
    ensure!(count == 3 && all.iter().all(|status| status.available == 3), "{count} pods, {all:?}");
    let used = clients[0].get_or_create(&wanted("pb-used")).await?;
    used.sandbox.run("echo kept > file").await?;
    until_available(&clients[1], 3).await?;

    // A release with another configuration comes: what waits is replaced, what is used stays.
    let newer = provider(&namespace, Config { env: [("NEW".into(), "1".into())].into(), ..pooled(3) })?;
    let made = newer.get_or_create(&wanted("pb-new")).await?;
    ensure!(made.sandbox.run("echo $NEW").await?.text() == "1\n", "it got a pod that is out of date");
    until_available(&newer, 3).await?;
    until_available(&clients[0], 0).await?;
    // The older clients don't take the pool back, and go on without it.
    let cold = clients[0].get_or_create(&wanted("pb-cold")).await?;
    ensure!(cold.sandbox.run("echo $NEW").await?.text() == "\n");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = newer.pool_status().await?;
    ensure!(status.available == 3, "{status:?}");
    ensure!(used.sandbox.run("cat file").await?.text() == "kept\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_filled_says_why_and_leaves_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let script = Some("echo no luck; exit 3".to_owned());
    let raw = provider(&namespace, Config { setup_script: script, ..pooled(1) })?;
    let error = raw.refill().await.err().context("it was filled")?.to_string();
    ensure!(error.contains("exit code 3") && error.contains("no luck"), "{error}");
    let status = raw.pool_status().await?;
    ensure!(status.available == 0 && status.total == 0, "{status:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_next_finishes_what_a_killed_client_began() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, pooled(1))?;
    raw.refill().await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default().labels("podbay.dev/state=warm")).await?.items.remove(0).metadata;
    let (pod, uid) = (pod.name.context("no name")?, pod.uid.context("no UID")?);
    // Three clients have named the same pod in their Leases, and were killed before any of them could claim it.
    let hour = k8s_openapi::jiff::Timestamp::now() - Duration::from_secs(3600);
    for name in ["pb-a", "pb-b", "pb-c"] {
        let lease = json!({
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "podbay", "podbay.dev/sandbox": name},
                "annotations": {"podbay.dev/idle-ttl-seconds": "7200"},
            },
            "spec": {"holderIdentity": format!("{pod}/{uid}"), "acquireTime": MicroTime(hour)},
        });
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    }
    let first = raw.get_or_create(&wanted("pb-a")).await?;
    ensure!(first.created && first.sandbox.run("echo a > owner").await?.success());
    let owner = pods.get(&pod).await?.metadata.owner_references.unwrap_or_default();
    ensure!(owner.len() == 1 && owner[0].name == "pb-a", "{owner:?}");
    let second = raw.get_or_create(&wanted("pb-b")).await?;
    ensure!(second.created && second.sandbox.run("cat owner").await?.code() == Some(1), "two have one pod");
    // For the third nobody comes: it is neither found nor kept, and the pod stays with its owner.
    let error = raw.reconnect("pb-c").await.err().context("found")?.to_string();
    ensure!(error.contains("another sandbox has it"), "{error}");
    // Asking for it was a use, and whoever uses it may be about to claim a pod.
    let cleaned = raw.cleanup(None).await?;
    ensure!(cleaned.deleted.is_empty() && cleaned.kept == 3, "{cleaned:?}");
    let patch = json!({"spec": {"renewTime": MicroTime(hour)}});
    leases.patch("pb-c", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let cleaned = raw.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-c"] && cleaned.kept == 2, "{cleaned:?}");
    ensure!(first.sandbox.run("cat owner").await?.text() == "a\n");
    Ok(())
}
