//! Many claims at once, and what each costs the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt};
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::Cluster;
use podbay_k8s::agent_sandbox::AgentSandbox;
use serde_json::json;

use crate::fixture::{ALL, Fixture, template, wanted};

/// A client that counts its requests.
fn counting(client: kube::Client, namespace: &str) -> (Cluster, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let service = tower::service_fn(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        let client = client.clone();
        async move { client.send(request).await }
    });
    (Cluster::with_client(kube::Client::new(service, namespace), namespace), count)
}

/// Three hundred with `cargo xtask soak`.
#[tokio::test(flavor = "multi_thread")]
async fn many_claims_in_one_process_all_get_ready_and_go() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    let (all, at_once) = if std::env::var_os("PODBAY_SOAK").is_some() { (300, 50) } else { (24, 8) };
    fixture.template("busybox", rig::BUSYBOX, json!({})).await?;
    fixture.pool("busybox", "busybox", 5).await?;
    let provider = fixture.provider(template("busybox"))?;
    let work = futures_util::stream::iter(0..all).map(|number| {
        let provider = provider.clone();
        async move {
            let made = provider.get_or_create(&Wanted::default()).await?;
            let output = made.sandbox.run(format!("echo {number}").as_str()).await?;
            ensure!(output.text() == format!("{number}\n"), "{output:?}");
            ensure!(provider.delete(&made.id).await?);
            anyhow::Ok(())
        }
    });
    work.buffer_unordered(at_once).try_collect::<Vec<()>>().await?;
    fixture.only_pools_are_left(5).await
}

/// The numbers are in docs/agent-sandbox.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_api_server_no_more_than_the_page_says() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let (cluster, requests) = counting(fixture.namespace.client(), fixture.namespace.name());
    let provider = AgentSandbox::new(&cluster, template("debian"))?;
    provider.pool_status().await?;
    let mut last = requests.load(Ordering::Relaxed);
    let mut since = |what: &str, expected: std::ops::RangeInclusive<usize>| {
        let now = requests.load(Ordering::Relaxed);
        let made = now - std::mem::replace(&mut last, now);
        println!("{what}: {made} requests");
        ensure!(expected.contains(&made), "{what}: {made} requests");
        Ok(())
    };
    let made = provider.get_or_create(&wanted("pb-counted")).await?;
    made.sandbox.run("true").await?;
    since("create, with the first command", 5..=7)?;
    for _ in 0..10 {
        made.sandbox.run("true").await?;
    }
    since("ten commands", 0..=0)?;
    provider.get_or_create(&wanted("pb-counted")).await?.sandbox.hello().await?;
    since("attach", 6..=6)?;
    provider.reconnect("pb-counted").await?.sandbox.hello().await?;
    since("reconnect", 4..=5)?;
    provider.delete("pb-counted").await?;
    since("delete", 2..=2)
}
