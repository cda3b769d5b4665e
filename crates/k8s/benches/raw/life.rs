//! From nothing to a first result, and back to nothing.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use podbay_client::Sandbox;
use podbay_client::provider::Provider;
use podbay_k8s::raw::{Config, Raw};

use crate::measure::{Samples, Table};
use crate::rivals::Rivals;
use crate::{Bench, config, made};

const ROUNDS: usize = 10;

pub async fn measure(bench: &Bench) {
    let raw = bench.raw(config(rig::DEBIAN)).await;
    // The first pod of a node finds nothing prepared.
    let first = made(&raw).await;
    raw.delete(&first.id).await.unwrap();

    let table = Table::times("Creating and deleting a sandbox");
    let (mut ready, mut cold, mut gone, mut plain, mut session) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    let pods: Api<Pod> = Api::namespaced(bench.namespace.client(), bench.namespace.name());
    for round in 0..ROUNDS {
        // One after the other, so that what disturbs one disturbs both.
        let begun = Instant::now();
        let provided = made(&raw).await;
        assert!(provided.sandbox.run("true").await.unwrap().success());
        cold.push(begun.elapsed());
        let rivals = Rivals::of(bench, &provided.id).await;
        let same = copy_of(&rivals.pods.get(&rivals.pod).await.unwrap(), &format!("plain-{round}"));

        let deleted = watched(&pods, &rivals.pod, |event| matches!(event, WatchEvent::Deleted(_)));
        let begun = Instant::now();
        let (deleted, removed) = tokio::join!(deleted, raw.delete(&provided.id));
        assert!(removed.unwrap());
        gone.push(deleted.duration_since(begun));

        let begun = Instant::now();
        let name = same.metadata.name.clone().unwrap();
        pods.create(&PostParams::default(), &same).await.unwrap();
        ready.push(watched(&pods, &name, is_ready).await.duration_since(begun));
        let begun = Instant::now();
        Sandbox::new(rivals.channel_to(&name).await).hello().await.unwrap();
        session.push(begun.elapsed());
        let deleted = watched(&pods, &name, |event| matches!(event, WatchEvent::Deleted(_)));
        let begun = Instant::now();
        let grace = DeleteParams::default();
        let (deleted, removed) = tokio::join!(deleted, pods.delete(&name, &grace));
        removed.unwrap();
        plain.push(deleted.duration_since(begun));
    }
    let (ready, cold) = (Samples::from(ready), Samples::from(cold));
    table.row("baseline: the same pod created directly, create to Ready", &ready);
    table.row("first session in that pod: exec, upload and start of podbayd, first answer", &Samples::from(session));
    table.row("**podbay: create to the result of `true`, no pool**", &cold);
    warm(bench, &table).await;
    table.row("baseline: the same pod deleted directly, delete to gone", &Samples::from(plain));
    table.row("**podbay: delete to pod gone**", &Samples::from(gone));
    let factor = cold.p50().as_secs_f64() / ready.p50().as_secs_f64();
    Table::figures("Creating without a pool, compared (p50)")
        .figure("podbay / the pod's own time to Ready", format!("{factor:.2}"));
    reconnect(&raw).await;
}

/// From a pool that is full each time: what is measured is a pod that waits, not a queue for it.
async fn warm(bench: &Bench, table: &Table) {
    let pooled = || Config { warm_pool_size: 2, ..config(rig::DEBIAN) };
    let raw = bench.raw(pooled()).await;
    let (mut held, mut fresh) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUNDS {
        raw.refill().await.unwrap();
        // One client has been there for a while and holds a session to the next pod; another has just begun.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let another = bench.raw(pooled()).await;
        let (client, times) = if round % 2 == 0 { (&raw, &mut held) } else { (&another, &mut fresh) };
        let begun = Instant::now();
        let provided = made(client).await;
        assert!(provided.sandbox.run("true").await.unwrap().success());
        // The very first has no session yet.
        if round > 1 {
            times.push(begun.elapsed());
        }
        raw.delete(&provided.id).await.unwrap();
    }
    table.row(
        "**podbay: create to the result of `true`, warm pool, session to the next pod already open**",
        &Samples::from(held),
    );
    table.row("podbay: create to the result of `true`, warm pool, new client", &Samples::from(fresh));
}

async fn reconnect(raw: &Raw) {
    let provided = made(raw).await;
    let table = Table::times("Reconnecting to a running podbayd");
    let found = |_| async {
        let found = raw.reconnect(&provided.id).await.unwrap();
        found.sandbox.hello().await.unwrap();
    };
    table.row("**podbay: find by id, open a session, first answer**", &Samples::of(30, found).await);
    let mut opening = Vec::new();
    for _ in 0..30 {
        let found = raw.reconnect(&provided.id).await.unwrap();
        let begun = Instant::now();
        found.sandbox.hello().await.unwrap();
        opening.push(begun.elapsed());
    }
    table.row("of which: opening the session and the first answer", &Samples::from(opening));
    raw.delete(&provided.id).await.unwrap();
}

/// The same pod without its owner: whatever it costs to start, it costs both.
fn copy_of(pod: &Pod, name: &str) -> Pod {
    let mut copy = Pod { metadata: Default::default(), spec: pod.spec.clone(), status: None };
    copy.metadata.name = Some(name.to_owned());
    copy.metadata.labels = pod.metadata.labels.clone();
    // Not a sandbox for whoever lists them.
    copy.metadata.labels.iter_mut().for_each(|labels| drop(labels.remove("podbay.dev/sandbox")));
    if let Some(spec) = &mut copy.spec {
        spec.node_name = None;
    }
    copy
}

fn is_ready(event: &WatchEvent<Pod>) -> bool {
    let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { return false };
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn watched(pods: &Api<Pod>, name: &str, wanted: impl Fn(&WatchEvent<Pod>) -> bool) -> Instant {
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(120);
    let mut events = Box::pin(pods.watch(&only, "0").await.unwrap());
    while let Some(event) = events.try_next().await.unwrap() {
        if wanted(&event) {
            return Instant::now();
        }
    }
    panic!("{name}: nothing in two minutes");
}
