//! Suspending and resuming.

use std::time::Duration;

use anyhow::{Result, ensure};
use podbay_client::provider::{Phase, Provider, Wanted};
use podbay_k8s::agent_sandbox::Config;
use serde_json::json;

use crate::fixture::{ALL, Fixture, template, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_sandbox_has_no_pod_and_is_resumed_when_it_is_wanted() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let provider = fixture.provider(template("debian"))?;
    let idle_ttl = Some(Duration::from_secs(20));
    let made = provider.get_or_create(&Wanted { idle_ttl, ..wanted("pb-pause") }).await?;
    let instance = made.sandbox.hello().await?.instance;
    // In the middle of a command: whoever waits for it learns that it is over.
    let (command, suspended) = tokio::join!(made.sandbox.run("sleep 100"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        provider.suspend("pb-pause").await
    });
    suspended?;
    ensure!(command.is_err() || command.is_ok_and(|output| !output.success()), "the command ended well");
    let listed = provider.list(&Default::default()).await?.sandboxes;
    ensure!(listed.len() == 1 && listed[0].phase == Phase::Suspended && listed[0].expires_ms.is_none(), "{listed:?}");
    ensure!(provider.cleanup(Some(Duration::ZERO)).await?.deleted.is_empty());
    let described = provider.describe("pb-pause").await?;
    ensure!(described.isolation.contains("suspended"), "{described:?}");

    let strict = fixture.provider(Config { resume: false, ..template("debian") })?;
    let error = strict.reconnect("pb-pause").await.unwrap_err();
    ensure!(error.to_string().contains("podbay resume pb-pause"), "{error}");

    let resumed = provider.get_or_create(&wanted("pb-pause")).await?;
    ensure!(!resumed.created && resumed.resumed && resumed.sandbox.hello().await?.instance != instance);
    ensure!(resumed.sandbox.run("echo back").await?.text() == "back\n");
    let listed = provider.list(&Default::default()).await?.sandboxes;
    ensure!(listed[0].phase == Phase::Running && listed[0].expires_ms.is_some(), "{listed:?}");
    provider.suspend("pb-pause").await?;
    provider.resume("pb-pause").await?;
    let again = provider.reconnect("pb-pause").await?;
    ensure!(!again.resumed && again.sandbox.run("echo again").await?.text() == "again\n");
    ensure!(provider.delete("pb-pause").await?);
    fixture.only_pools_are_left(1).await
}

/// The whole lifetime goes on while a sandbox is suspended.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_sandbox_keeps_its_whole_lifetime() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    let provider = fixture.provider(template("debian"))?;
    let limits =
        Wanted { ttl: Some(Duration::from_secs(600)), idle_ttl: Some(Duration::from_secs(60)), ..wanted("pb-x") };
    provider.get_or_create(&limits).await?;
    provider.suspend("pb-x").await?;
    let listed = provider.list(&Default::default()).await?.sandboxes;
    let left = listed[0].expires_ms.map(|end| end - listed[0].created_ms);
    ensure!(left.is_some_and(|left| (599_000..=601_000).contains(&left)), "{listed:?}");
    ensure!(provider.delete("pb-x").await?);
    fixture.only_pools_are_left(0).await
}
