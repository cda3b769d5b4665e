//! What is missing or broken: each its own error with the next step, and nothing left behind.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::Error;
use podbay_k8s::agent_sandbox::{Config, Features};
use serde_json::json;

use crate::fixture::{ALL, Fixture, template, wanted};

fn cause(error: &podbay_client::Error) -> Option<&Error> {
    match error {
        podbay_client::Error::Provider(source) => source.downcast_ref(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_templates_and_pools_are_named() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    let start = Instant::now();
    let error = fixture.provider(template("nope"))?.get_or_create(&Wanted::default()).await.unwrap_err();
    ensure!(matches!(cause(&error), Some(Error::TemplateNotFound { template, .. }) if template == "nope"), "{error}");
    let lists_them = format!("'kubectl get sandboxtemplates -n {}' lists them", fixture.namespace.name());
    for hint in [lists_them.as_str(), "'podbay install agent-sandbox' prints one"] {
        ensure!(error.to_string().contains(hint), "{error} lacks {hint:?}");
    }
    let config = Config { warm_pool_name: Some("no-pool".into()), ..template("nope") };
    let error = fixture.provider(config)?.get_or_create(&Wanted::default()).await.unwrap_err();
    ensure!(matches!(cause(&error), Some(Error::WarmPoolNotFound { pool, .. }) if pool == "no-pool"), "{error}");
    // The pool exists, and its template doesn't.
    fixture.pool("empty", "gone", 0).await?;
    let config = Config { warm_pool_name: Some("empty".into()), template_name: None, ..template("x") };
    let error = fixture.provider(config)?.get_or_create(&Wanted::default()).await.unwrap_err();
    ensure!(matches!(cause(&error), Some(Error::TemplateNotFound { template, .. }) if template == "gone"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    fixture.only_pools_are_left(0).await
}

/// Without the right to create pools, the error has what somebody else has to apply.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_may_not_create_pools_is_told_what_to_apply() -> Result<()> {
    let Some(fixture) = Fixture::new(Features { creates_pools: false, ..ALL }).await? else { return Ok(()) };
    fixture.template("lonely", rig::DEBIAN, json!({})).await?;
    let error = fixture.provider(template("lonely"))?.get_or_create(&Wanted::default()).await.unwrap_err();
    let Some(Error::NoPoolForTemplate { yaml, .. }) = cause(&error) else { anyhow::bail!("{error}") };
    fixture
        .cluster
        .apply(&yaml.replace("metadata: {", &format!("metadata: {{namespace: {}, ", fixture.namespace.name())))?;
    let provider = fixture.provider(template("lonely"))?;
    let made = provider.get_or_create(&Wanted::default()).await.context("after applying what the error says")?;
    ensure!(provider.delete(&made.id).await?);
    Ok(())
}

/// The claim itself only says that it isn't ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_start_fails_with_its_reason() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("broken", "localhost/no-such-image:1", json!({})).await?;
    let start = Instant::now();
    let error = fixture.provider(template("broken"))?.get_or_create(&wanted("pb-broken")).await.unwrap_err();
    ensure!(matches!(cause(&error), Some(Error::Startup { .. })), "{error}");
    ensure!(error.to_string().contains("ErrImageNeverPull"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    fixture.only_pools_are_left(0).await
}

/// A caller that gives up leaves no sandbox that nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_nobody_waits_for_is_removed() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 0).await?;
    let provider = fixture.provider(template("debian"))?;
    for millis in [5, 50, 200, 500] {
        let nothing = Wanted::default();
        let creating = provider.get_or_create(&nothing);
        drop(tokio::time::timeout(Duration::from_millis(millis), creating).await);
    }
    // The last removal happens two seconds later.
    tokio::time::sleep(Duration::from_secs(3)).await;
    fixture.only_pools_are_left(0).await
}

/// An evicted pod is replaced by the controller, with an empty one. What was open says so, and the next caller gets the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_lost_is_reported_and_its_successor_is_found() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    let provider = fixture.provider(template("debian"))?;
    let made = provider.get_or_create(&wanted("pb-evicted")).await?;
    made.sandbox.run("touch mine").await?;
    fixture.pods().delete("pb-evicted", &Default::default()).await?;
    let start = Instant::now();
    let error = loop {
        match made.sandbox.run("true").await {
            Err(error) => break error,
            Ok(_) => ensure!(start.elapsed() < Duration::from_secs(30), "the pod wasn't deleted"),
        }
    };
    ensure!(error.to_string().contains("pb-evicted") || error.to_string().contains("restarted"), "{error}");
    let start = Instant::now();
    let found = loop {
        match provider.get_or_create(&wanted("pb-evicted")).await {
            Ok(found) => break found,
            // Between the old pod's end and the controller's notice of it, the claim still names the old one.
            Err(error) => ensure!(start.elapsed() < Duration::from_secs(30), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    ensure!(!found.created && found.sandbox.run("ls mine 2>/dev/null || echo new").await?.text() == "new\n");
    ensure!(provider.delete("pb-evicted").await?);
    fixture.only_pools_are_left(0).await
}

/// A creator that can't use its sandbox once deleted it under those who could.
#[tokio::test(flavor = "multi_thread")]
async fn a_creator_that_fails_leaves_the_sandbox_to_whoever_has_attached() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 0).await?;
    let failing = fixture.provider(Config { container: Some("nope".into()), ..template("debian") })?;
    let working = fixture.provider(template("debian"))?;
    let both = wanted("pb-both");
    let (failed, attached) = tokio::join!(failing.get_or_create(&both), async {
        crate::fixture::eventually("the claim exists", || async { Ok(fixture.claim("pb-both").await.is_ok()) }).await?;
        anyhow::Ok(working.get_or_create(&both).await?)
    });
    ensure!(failed.is_err());
    let attached = attached?;
    ensure!(!attached.created && attached.sandbox.run("echo mine").await?.text() == "mine\n");
    ensure!(working.delete("pb-both").await?);
    // With nobody else there, nothing is left.
    ensure!(failing.get_or_create(&wanted("pb-alone")).await.is_err());
    fixture.only_pools_are_left(0).await
}
