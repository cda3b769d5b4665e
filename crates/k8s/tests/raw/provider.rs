//! The provider: makes, finds, lists and deletes sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use podbay_client::files::{Read, Write};
use podbay_client::provider::{Phase, Provider, Query, Wanted};
use podbay_k8s::Cluster;
use podbay_k8s::raw::{Config, Raw};
use serde_json::json;

use crate::pods::rules;

pub(crate) fn config(image: &str) -> Config {
    Config {
        image: image.into(),
        image_pull_policy: "Never".into(),
        cpu_request: "10m".into(),
        memory_request: "16Mi".into(),
        startup_timeout: 60,
        ..Config::default()
    }
}

pub(crate) fn provider(namespace: &rig::Namespace, config: Config) -> Result<Raw> {
    Ok(Raw::new(Cluster::with_client(namespace.client(), namespace.name()), config)?)
}

pub(crate) fn wanted(id: &str) -> Wanted {
    Wanted { id: Some(id.into()), ..Wanted::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_found_listed_and_deleted() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let raw = provider(&namespace, config(rig::DEBIAN))?;

    let start = Instant::now();
    let labels = BTreeMap::from([("user".to_owned(), "anna@example.org".to_owned())]);
    let ttl = Some(Duration::from_secs(3600));
    let made = raw.get_or_create(&Wanted { labels: labels.clone(), ttl, ..wanted("pb-one") }).await?;
    let running = start.elapsed();
    let output = made
        .sandbox
        .run("id -u; pwd; touch /blobs/x /large_tool_results/x /conversation_history/x && echo yes")
        .await?;
    println!("create to running {running:?}, to the first result {:?}", start.elapsed());
    ensure!(made.created && output.text() == "1000\n/workspace\nyes\n", "{:?}", output.text());
    made.sandbox.write(&Write::new("/workspace/a"), "kept\n").await?;

    // Another process with the same id gets the same one.
    let other = provider(&namespace, config(rig::DEBIAN))?;
    let found = other.get_or_create(&wanted("pb-one")).await?;
    ensure!(!found.created);
    let (_, content) = found.sandbox.read(&Read::new("a")).await?;
    ensure!(content.starts_with(b"kept"), "{content:?}");
    let again = other.reconnect(&format!("{}/pb-one", namespace.name())).await?;
    ensure!(again.sandbox.hello().await?.instance == made.sandbox.hello().await?.instance);

    // Its pod is protected, and belongs to its Lease.
    let pod = pods.list(&ListParams::default()).await?.items.pop().context("no pod")?;
    let spec = pod.spec.context("no spec")?;
    ensure!(spec.automount_service_account_token == Some(false) && spec.active_deadline_seconds == Some(3600));
    ensure!(spec.restart_policy.as_deref() == Some("OnFailure") && spec.termination_grace_period_seconds == Some(2));
    let net = pod.metadata.labels.as_ref().and_then(|labels| labels.get("podbay.dev/net")).context("no rules")?;
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), namespace.name());
    policies.get(&format!("pb-net-{net}")).await?;
    let offline = found.sandbox.run("curl -sm 2 https://10.96.0.1/ >/dev/null; echo $?").await?;
    ensure!(["7\n", "28\n"].contains(&&*offline.text()), "the API server answered: {}", offline.text());

    let listed = raw.list(&Query { labels, ..Query::default() }).await?.sandboxes;
    ensure!(listed.len() == 1 && listed[0].id == "pb-one" && listed[0].phase == Phase::Running, "{listed:?}");
    ensure!(listed[0].labels["user"] == "anna@example.org" && listed[0].expires_ms.is_some(), "{listed:?}");
    ensure!(raw.stats(Duration::from_secs(600)).await?.running == 1);

    let start = Instant::now();
    ensure!(raw.delete("pb-one").await?);
    while !pods.list(&ListParams::default()).await?.items.is_empty() {
        ensure!(start.elapsed() < Duration::from_secs(10), "the pod is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("delete to pod gone {:?}", start.elapsed());
    ensure!(!raw.delete("pb-one").await?, "deleted twice");
    let error = raw.reconnect("pb-one").await.err().context("it is there")?;
    ensure!(matches!(error, podbay_client::Error::SandboxNotFound(_)), "{error}");
    // What was open says so at once, and isn't tried for half a minute.
    let start = Instant::now();
    let error = found.sandbox.run("true").await.unwrap_err().to_string();
    ensure!(
        error.contains("is gone") && start.elapsed() < Duration::from_secs(5),
        "{error} after {:?}",
        start.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_that_want_one_sandbox_all_get_the_same() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let providers: Vec<Raw> = (0..10).map(|_| provider(&namespace, config(rig::BUSYBOX))).collect::<Result<_>>()?;
    let wanted = wanted("pb-race");
    let all = try_join_all(providers.iter().map(|raw| raw.get_or_create(&wanted))).await?;
    ensure!(all.iter().filter(|one| one.created).count() == 1, "not one creator");
    let welcomes = try_join_all(all.iter().map(|one| one.sandbox.hello())).await?;
    let instances: BTreeSet<_> = welcomes.iter().map(|welcome| &welcome.instance).collect();
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let count = pods.list(&ListParams::default()).await?.items.len();
    ensure!(instances.len() == 1 && count == 1, "{} daemons in {count} pods", instances.len());

    // Its pod is deleted behind its back: the next caller completes the Lease, and only one does.
    let name = pods.list(&ListParams::default()).await?.items[0].metadata.name.clone().context("no name")?;
    pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    let error = providers[0].reconnect("pb-race").await.err().context("it is there")?.to_string();
    ensure!(error.contains("gone"), "{error}");
    let all = try_join_all(providers.iter().map(|raw| raw.get_or_create(&wanted))).await?;
    ensure!(all.iter().filter(|one| one.created).count() == 1, "not one creator the second time");
    let live = pods.list(&ListParams::default()).await?.items;
    let live: Vec<_> = live.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    ensure!(live.len() == 1 && live[0].metadata.name.as_ref() != Some(&name), "{} pods", live.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_fails_at_once_and_leaves_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let no_node = Config { node_selector: [("no".into(), "such".into())].into(), ..config(rig::BUSYBOX) };
    let patient = Config { wait_for_node: true, startup_timeout: 10, ..no_node.clone() };
    let crash = Config { command: Some(vec!["sh".into(), "-c".into(), "exit 7".into()]), ..config(rig::BUSYBOX) };
    let ends = Config { command: Some(vec!["true".into()]), ..config(rig::BUSYBOX) };
    let program = Config { command: Some(vec!["/no/such".into()]), ..config(rig::BUSYBOX) };
    let slow = Config {
        volumes: vec![serde_json::from_value(json!({"name": "s", "secret": {"secretName": "missing"}}))?],
        volume_mounts: vec![serde_json::from_value(json!({"name": "s", "mountPath": "/s"}))?],
        startup_timeout: 3,
        ..config(rig::BUSYBOX)
    };
    let bad_quantity = Config { memory_limit: "lots".into(), ..config(rig::BUSYBOX) };
    for (name, config, words) in [
        ("image", config("localhost/none:1"), ["ErrImageNeverPull", "none:1"]),
        ("node", no_node, ["it can't be scheduled on any node", "FailedScheduling"]),
        ("patient", patient, ["wasn't running after 10 s", "no node yet"]),
        ("crash", crash, ["can't start", "code 7"]),
        ("ends", ends, ["can't start", "code 0"]),
        ("program", program, ["can't start", "/no/such"]),
        ("slow", slow, ["wasn't running after 3 s", "startup_timeout"]),
        ("quantity", bad_quantity, ["refused to create the sandbox's pod", "quantities"]),
    ] {
        let raw = provider(&namespace, config)?;
        let start = Instant::now();
        let error = raw.get_or_create(&wanted(&format!("pb-{name}"))).await.err().context("it started")?.to_string();
        println!("{name}: after {:?}: {error}", start.elapsed());
        ensure!(words.iter().all(|word| error.contains(word)), "{name}: {error}");
        ensure!(start.elapsed() < Duration::from_secs(25), "{name} took {:?}", start.elapsed());
    }
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    ensure!(leases.list(&ListParams::default()).await?.items.is_empty(), "a Lease was left behind");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_what_is_over_is_removed() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let names: Vec<String> = (0..5).map(|n| format!("pb-{n}")).collect();
    try_join_all(names.iter().map(|name| {
        let raw = raw.clone();
        async move {
            let idle_ttl = (name == "pb-3").then_some(Duration::from_secs(1));
            raw.get_or_create(&Wanted { idle_ttl, ..wanted(name) }).await
        }
    }))
    .await?;
    let (mut seen, mut query) = (Vec::new(), Query { limit: Some(2), ..Query::default() });
    loop {
        let page = raw.list(&query).await?;
        ensure!(page.sandboxes.len() <= 2);
        seen.extend(page.sandboxes.into_iter().map(|listed| listed.id));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    ensure!(seen == names, "{seen:?}");

    // A Lease of someone else's is neither listed, nor reached, nor deleted.
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let foreign: Lease =
        serde_json::from_value(json!({"metadata": {"name": "theirs"}, "spec": {"holderIdentity": "x"}}))?;
    leases.create(&PostParams::default(), &foreign).await?;
    for error in [
        raw.get_or_create(&wanted("theirs")).await.err().context("made")?.to_string(),
        raw.reconnect("theirs").await.err().context("found")?.to_string(),
        raw.delete("theirs").await.err().context("deleted")?.to_string(),
    ] {
        ensure!(error.contains("isn't a Podbay sandbox"), "{error}");
    }
    ensure!(leases.get_opt("theirs").await?.is_some());

    // One idled too long, one's pod has ended.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let ended = raw.reconnect("pb-1").await?;
    let over = podbay_client::Lifetime { ttl_ms: Some(1), idle_ttl_ms: None };
    let _ = ended.sandbox.set_lifetime(&over).await;
    let start = Instant::now();
    while raw.list(&Query { phase: Some(Phase::Terminated), ..Query::default() }).await?.sandboxes.len() < 2 {
        ensure!(start.elapsed() < Duration::from_secs(20), "the pods didn't end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut cleaned = raw.cleanup(None).await?;
    cleaned.deleted.sort();
    ensure!(cleaned.deleted == ["pb-1", "pb-3"] && cleaned.kept == 3 && cleaned.failed.is_empty(), "{cleaned:?}");
    ensure!(raw.cleanup(Some(Duration::ZERO)).await?.deleted.len() == 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_keeps_its_workspace() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let made = raw.get_or_create(&wanted("pb-killed")).await?;
    made.sandbox.write(&Write::new("kept"), "yes").await?;
    let before = made.sandbox.hello().await?.instance;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default()).await?.items[0].metadata.name.clone().context("no name")?;
    rig::faults::kill_container(&cluster, namespace.name(), &pod, podbay_k8s::raw::CONTAINER)?;
    let start = Instant::now();
    // The same handle finds the new podbayd by itself, and podbayd isn't sent again.
    let (_, content) = made.sandbox.read(&Read::new("kept")).await?;
    println!("killed to the next answer: {:?}", start.elapsed());
    ensure!(&content[..] == b"yes" && made.sandbox.hello().await?.instance != before);
    ensure!(!raw.get_or_create(&wanted("pb-killed")).await?.created, "it was replaced");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_may_not_is_told_what_it_lacks() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    for (resource, words) in
        [("networkpolicies", "networkpolicies"), ("leases", "leases"), ("pods", "pods"), ("pods/exec", "pods/exec")]
    {
        let mut rules = rules();
        rules.retain(|rule| rule.resources.as_ref().is_none_or(|resources| resources[0] != resource));
        let namespace = cluster.namespace(rules).await?;
        let raw = provider(&namespace, config(rig::BUSYBOX))?;
        let result = async { raw.get_or_create(&wanted("pb-1")).await?.sandbox.hello().await }.await;
        let error = result.err().context("it worked")?.to_string();
        ensure!(error.contains("may not") && error.contains(words), "{resource}: {error}");
    }
    Ok(())
}
