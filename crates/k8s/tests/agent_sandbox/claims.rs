//! Claims: created, found, listed, described and deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use podbay_client::files::{Read, Write};
use podbay_client::provider::{Launch, Phase, PoolStatus, Provider, Query, Wanted};
use serde_json::json;

use crate::fixture::{ALL, Fixture, eventually, template, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_claim_becomes_a_sandbox_that_others_find() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let provider = fixture.provider(template("debian"))?;
    let status = provider.pool_status().await?;
    ensure!(status == PoolStatus { available: 1, active: 0, total: 1, target: 1 }, "{status:?}");

    let start = Instant::now();
    let labels = BTreeMap::from([("user".to_owned(), "anna@example.org".to_owned())]);
    let ttl = Some(Duration::from_secs(3600));
    let made = provider.get_or_create(&Wanted { labels: labels.clone(), ttl, ..wanted("pb-one") }).await?;
    let output = made.sandbox.run("echo $((2 + 2))").await?;
    println!("claim to first result: {:?}", start.elapsed());
    ensure!(made.created && made.launch == Some(Launch::Warm) && output.text() == "4\n", "{output:?}");
    made.sandbox.write(&Write::new("a"), "kept\n").await?;

    // Another process with the same id gets the same one; so does one that only knows the name.
    let other = fixture.provider(template("debian"))?;
    let found = other.get_or_create(&wanted("pb-one")).await?;
    ensure!(!found.created && found.sandbox.read(&Read::new("a")).await?.1.starts_with(b"kept"));
    let again = other.reconnect(&format!("{}/pb-one", fixture.namespace.name())).await?;
    ensure!(again.sandbox.hello().await?.instance == made.sandbox.hello().await?.instance);

    let claim = fixture.claim("pb-one").await?;
    ensure!(claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete", "{claim}");
    ensure!(claim["metadata"]["labels"]["agents.x-k8s.io/created-by"] == "podbay", "{claim}");
    let requested = &claim["metadata"]["annotations"]["agents.x-k8s.io/client-first-requested-at"];
    ensure!(requested.as_str().is_some_and(|time| time.ends_with('Z')), "{claim}");

    let listed = provider.list(&Query { labels, ..Query::default() }).await?.sandboxes;
    let [one] = listed.as_slice() else { anyhow::bail!("{listed:?}") };
    ensure!(one.id == "pb-one" && one.phase == Phase::Running && one.labels["user"] == "anna@example.org", "{one:?}");
    let lifetime = one.expires_ms.context("it never ends")? - one.created_ms;
    ensure!((3_590_000..=3_601_000).contains(&lifetime), "{lifetime}");
    let none = provider.list(&Query { phase: Some(Phase::Pending), ..Query::default() }).await?;
    ensure!(none.sandboxes.is_empty() && none.cursor.is_none());

    let described = provider.describe("pb-one").await?;
    let fact = |name: &str| described.facts.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
    ensure!(fact("launch") == Some("warm") && fact("warm pool") == Some("debian"), "{:?}", described.facts);
    ensure!(described.running == Some(0) && described.unknown.is_empty(), "{described:?}");

    eventually("the pool is full again", || async { Ok(provider.pool_status().await?.available == 1) }).await?;
    let status = provider.pool_status().await?;
    ensure!(status == PoolStatus { available: 1, active: 1, total: 2, target: 1 }, "{status:?}");
    let stats = provider.stats(Duration::from_secs(3600)).await?;
    ensure!((stats.total, stats.running, stats.warm, stats.idle) == (1, 1, 1, 0), "{stats:?}");

    ensure!(provider.delete("pb-one").await? && !provider.delete("pb-one").await?);
    ensure!(matches!(provider.reconnect("pb-one").await, Err(podbay_client::Error::SandboxNotFound(_))));
    fixture.only_pools_are_left(1).await
}

/// The template's own image, with upstream's runtime in it: it has a working directory of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_stock_runtimes_image_works_as_it_is() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.cluster.add_warm_pool(fixture.namespace.name(), 1)?;
    let provider = fixture.provider(podbay_k8s::agent_sandbox::Config {
        warm_pool_name: Some("python".into()),
        template_name: None,
        ..template("python")
    })?;
    let made = provider.get_or_create(&Wanted::default()).await?;
    let output = made.sandbox.run("python3 -c 'print(2 + 2)' && touch x && pwd").await?;
    ensure!(output.success() && output.text().starts_with("4\n/"), "{output:?}");
    ensure!(provider.delete(&made.id).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_want_the_same_sandbox_get_one() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 2).await?;
    let calls = (0..8).map(|_| async {
        let provider = fixture.provider(template("debian"))?;
        let made = provider.get_or_create(&wanted("pb-shared")).await?;
        anyhow::Ok((made.created, made.sandbox.hello().await?.instance))
    });
    let all = try_join_all(calls).await?;
    ensure!(all.iter().filter(|(created, _)| *created).count() == 1, "{all:?}");
    ensure!(all.iter().all(|(_, instance)| *instance == all[0].1), "{all:?}");
    ensure!(fixture.provider(template("debian"))?.delete("pb-shared").await?);
    fixture.only_pools_are_left(2).await
}

/// A cold Sandbox has its claim's name, and the controller refuses to give it to another claim while it exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_can_be_used_again_at_once() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    let provider = fixture.provider(template("debian"))?;
    let mut before = String::new();
    for round in 0..3 {
        let made = provider.get_or_create(&wanted("pb-again")).await.with_context(|| format!("round {round}"))?;
        ensure!(made.created && made.launch == Some(Launch::Cold), "{made:?}");
        let instance = made.sandbox.hello().await?.instance;
        ensure!(instance != before);
        before = instance;
        ensure!(provider.delete("pb-again").await?);
    }
    fixture.only_pools_are_left(0).await
}

/// A template without a pool gets one that keeps nothing ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_without_a_pool_can_be_used() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("busybox", rig::BUSYBOX, json!({})).await?;
    let provider = fixture.provider(template("busybox"))?;
    let made = provider.get_or_create(&Wanted::default()).await?;
    ensure!(made.launch == Some(Launch::Cold) && made.sandbox.run("echo hi").await?.text() == "hi\n");
    let pool = serde_json::to_value(fixture.objects("SandboxWarmPool").get("busybox").await?)?;
    ensure!(pool["spec"]["replicas"] == 0 && pool["spec"]["sandboxTemplateRef"]["name"] == "busybox", "{pool}");
    ensure!(provider.delete(&made.id).await?);
    fixture.only_pools_are_left(0).await
}

/// Claims of other programs are theirs, unless they are meant to be used; even then they stay when we are done.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_program_is_used_only_on_request_and_left_alone() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let theirs = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": "theirs"},
        "spec": {"warmPoolRef": {"name": "debian"}},
    });
    fixture.objects("SandboxClaim").create(&Default::default(), &serde_json::from_value(theirs)?).await?;
    let careful = fixture.provider(template("debian"))?;
    for refused in [careful.reconnect("theirs").await.err(), careful.get_or_create(&wanted("theirs")).await.err()] {
        let message = refused.context("another's claim was used")?.to_string();
        ensure!(message.contains("isn't a Podbay sandbox"), "{message}");
    }
    let provider =
        fixture.provider(podbay_k8s::agent_sandbox::Config { foreign_claims: true, ..template("debian") })?;
    let found = provider.reconnect("theirs").await?;
    ensure!(!found.created && found.sandbox.run("echo hi").await?.text() == "hi\n");
    ensure!(provider.delete("theirs").await.is_err(), "another's claim was deleted");
    let cleaned = provider.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.deleted.is_empty() && fixture.claim("theirs").await?["spec"]["lifecycle"].is_null(), "{cleaned:?}");
    Ok(())
}
