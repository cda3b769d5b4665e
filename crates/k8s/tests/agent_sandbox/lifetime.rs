//! Lifetimes: the controller ends what nobody uses, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podbay_client::provider::{Phase, Provider, Wanted};
use podbay_k8s::agent_sandbox::Timing;
use serde_json::json;
use tokio::time::Instant;

use crate::fixture::{ALL, Fixture, eventually, template, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_idle_ends_and_what_is_busy_stays() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 3).await?;
    // Renewed when a sixteenth of it is over: a busy machine may be late by almost all of it.
    let timing = Timing { heartbeat: Duration::from_millis(500), renewal: 16 };
    let provider = fixture.provider(template("debian"))?.with_timing(timing);
    let idle_ttl = Duration::from_secs(20);
    let lasting = |name: &str| Wanted { idle_ttl: Some(idle_ttl), ..wanted(name) };
    let idle = provider.get_or_create(&lasting("pb-idle")).await?;
    let busy = provider.get_or_create(&lasting("pb-busy")).await?;
    let command = busy.sandbox.start("sleep 600").await?;
    // What nobody renews has ended by then.
    let first_end = Instant::now() + idle_ttl;
    // A whole lifetime ends whatever happens. On a busy machine seconds of it pass before the sandbox is there.
    let ttl = Some(Duration::from_secs(15));
    let short = provider.get_or_create(&Wanted { ttl, ..wanted("pb-short") }).await?;
    let ended = short.sandbox.run("sleep 600").await;
    ensure!(ended.is_err() || !ended?.success());
    eventually("the idle sandbox is gone", || async {
        Ok(provider.list(&Default::default()).await?.sandboxes.iter().all(|one| one.id != "pb-idle"))
    })
    .await?;
    ensure!(matches!(provider.reconnect("pb-idle").await, Err(podbay_client::Error::SandboxNotFound(_))));
    drop(idle);
    tokio::time::sleep_until(first_end + Duration::from_secs(2)).await;
    let commands = busy.sandbox.commands(true).await.context("the sandbox is gone")?;
    ensure!(commands.iter().any(|one| one.id == command.id), "the command is gone");
    ensure!(provider.delete("pb-busy").await?);
    drop(busy);
    fixture.only_pools_are_left(3).await
}

/// A name whose sandbox is about to end, or has just ended, gives a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_has_ended_makes_room_for_its_successor() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let provider = fixture.provider(template("debian"))?;
    // On a busy machine a few seconds pass before the first answer.
    let ttl = Duration::from_secs(10);
    let first = provider.get_or_create(&Wanted { ttl: Some(ttl), ..wanted("pb-thread") }).await?;
    let before = first.sandbox.hello().await?.instance;
    tokio::time::sleep(ttl).await;
    eventually("another sandbox answers", || async {
        let next =
            provider.get_or_create(&Wanted { ttl: Some(Duration::from_secs(600)), ..wanted("pb-thread") }).await?;
        Ok(next.sandbox.hello().await.is_ok_and(|welcome| welcome.instance != before))
    })
    .await?;
    ensure!(provider.delete("pb-thread").await?);
    Ok(())
}

/// The reaper removes what nobody has used for long, after asking podbayd, and nothing that is in use.
#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_removes_idle_sandboxes_and_leaves_busy_ones() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 2).await?;
    let provider = fixture.provider(template("debian"))?;
    provider.get_or_create(&wanted("pb-idle")).await?.sandbox.run("true").await?;
    let busy = provider.get_or_create(&wanted("pb-busy")).await?;
    let command = busy.sandbox.start("sleep 60").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cleaned = provider.cleanup(Some(Duration::from_secs(2))).await?;
    ensure!(cleaned.deleted == ["pb-idle"] && cleaned.kept == 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    ensure!(provider.list(&Default::default()).await?.sandboxes[0].phase == Phase::Running);
    busy.sandbox.kill(&command.id).await?;
    ensure!(provider.delete("pb-busy").await?);
    Ok(())
}
