//! Mode agent-sandbox on the rig: claims by Podbay beside the controller's own time to Ready, and operations over exec.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

#[path = "../../../client/benches/measure/mod.rs"]
mod measure;
#[path = "../../tests/agent_sandbox/place.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod place;

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use podbay_client::files::{Ls, Read, Write};
use podbay_client::provider::{Launch, Provider, Wanted};
use podbay_k8s::agent_sandbox::AgentSandbox;
use podbay_k8s::{Access, Cluster};
use serde_json::json;

use measure::{Samples, Table};
use place::{ALL, Place, eventually, template};

const ROUNDS: usize = 15;

#[tokio::main]
async fn main() {
    let place = Place::new(ALL).await.unwrap().expect("this needs a cluster: use `cargo xtask bench agent-sandbox`");
    place.template("debian", rig::DEBIAN, json!({})).await.unwrap();
    place.template("cold", rig::DEBIAN, json!({})).await.unwrap();
    place.pool("debian", "debian", 2).await.unwrap();
    place.pool("cold", "cold", 0).await.unwrap();
    let table = Table::times("Creating and deleting a sandbox");
    let (warm_ready, warm) = creation(&place, "debian", 2).await;
    table.row("baseline: a claim created directly, warm, create to Ready", &warm_ready);
    table.row("**podbay: claim to the result of `true`, warm**", &warm);
    let (cold_ready, cold) = creation(&place, "cold", 0).await;
    table.row("baseline: a claim created directly, cold, create to Ready", &cold_ready);
    table.row("**podbay: claim to the result of `true`, cold**", &cold);
    let provider = provider(&place, "debian").await;
    attaching(&provider, &table).await;
    let factor =
        |ours: &Samples, theirs: &Samples| format!("{:.2}", ours.p50().as_secs_f64() / theirs.p50().as_secs_f64());
    let figures = Table::figures("Compared with the controller's own time to Ready (p50)");
    figures.figure("warm (at most 1.2)", factor(&warm, &warm_ready));
    figures.figure("cold", factor(&cold, &cold_ready));
    operations(&provider).await;
}

/// A provider as users make it.
async fn provider(place: &Place, name: &str) -> AgentSandbox {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, place.namespace.access().kubeconfig()).unwrap();
    let access = Access { kubeconfig: Some(file), ..Access::default() };
    AgentSandbox::new(&Cluster::connect(&access).await.unwrap(), template(name)).unwrap()
}

/// The controller's own time from a claim to Ready, and Podbay's to the first result, one after the other.
async fn creation(place: &Place, pool: &str, waiting: i64) -> (Samples, Samples) {
    let provider = provider(place, pool).await;
    // The first finds nothing prepared.
    let first = provider.get_or_create(&Wanted::default()).await.unwrap();
    provider.delete(&first.id).await.unwrap();
    let (mut ready, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        full(place, pool, waiting).await;
        ready.push(direct(place, pool, &format!("direct-{pool}-{round}")).await);
        full(place, pool, waiting).await;
        let begun = Instant::now();
        let made = provider.get_or_create(&Wanted::default()).await.unwrap();
        assert!(made.sandbox.run("true").await.unwrap().success());
        ours.push(begun.elapsed());
        assert_eq!(made.launch, Some(if waiting > 0 { Launch::Warm } else { Launch::Cold }));
        provider.delete(&made.id).await.unwrap();
    }
    (ready.into(), ours.into())
}

/// Waits until the pool is full: what is measured is a claim, not a queue for it.
async fn full(place: &Place, pool: &str, waiting: i64) {
    let pools = place.objects("SandboxWarmPool");
    eventually("the pool is full", || async {
        let pool = serde_json::to_value(pools.get(pool).await?)?;
        Ok(waiting == 0 || pool["status"]["readyReplicas"] == waiting)
    })
    .await
    .unwrap();
    // The controller's other work for the sandbox before shouldn't be measured with this one.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Creates a claim and watches until it is Ready.
async fn direct(place: &Place, pool: &str, name: &str) -> Duration {
    let claims = place.objects("SandboxClaim");
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": pool}},
    });
    let begun = Instant::now();
    let made = claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(claims.watch(&only, &made.metadata.resource_version.unwrap()).await.unwrap());
    loop {
        let WatchEvent::Modified(claim) = events.try_next().await.unwrap().unwrap() else { continue };
        let conditions = claim.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True") {
            break;
        }
    }
    let time = begun.elapsed();
    claims.delete(name, &DeleteParams::background()).await.unwrap();
    time
}

async fn attaching(provider: &AgentSandbox, table: &Table) {
    let made = provider.get_or_create(&Wanted::default()).await.unwrap();
    let reconnected = Samples::of(20, |_| async {
        provider.reconnect(&made.id).await.unwrap().sandbox.hello().await.unwrap();
    });
    table.row("podbay: reconnect by id, to podbayd's first answer", &reconnected.await);
    provider.delete(&made.id).await.unwrap();
}

async fn operations(provider: &AgentSandbox) {
    let made = provider.get_or_create(&Wanted::default()).await.unwrap();
    let sandbox = &made.sandbox;
    let text = "line of text\n".repeat(300);
    sandbox.write(&Write::new("file"), text.clone()).await.unwrap();
    let table = Table::times("Operations over exec");
    let row = |what: &str, samples: &Samples| table.row(what, samples);
    row("`true`", &Samples::of(300, |_| async { assert!(sandbox.run("true").await.unwrap().success()) }).await);
    row("read 4 KB", &Samples::of(500, |_| async { drop(sandbox.read(&Read::new("file")).await.unwrap()) }).await);
    let writing = Samples::of(300, |_| async {
        sandbox.write(&Write::new("other"), text.clone()).await.unwrap();
    });
    row("write 4 KB", &writing.await);
    row("ls", &Samples::of(500, |_| async { drop(sandbox.ls(&Ls::new(".")).await.unwrap()) }).await);
    provider.delete(&made.id).await.unwrap();
}
