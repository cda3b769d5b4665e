//! Objects that lie: an id reaches only what it names.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use podbay_client::provider::Provider;
use serde_json::json;

use crate::fixture::{ALL, Fixture, template, wanted};

/// Whoever could write a claim's status could once have led its user into another's sandbox: names were all that was checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_names_anothers_sandbox_does_not_lead_there() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 2).await?;
    let provider = fixture.provider(template("debian"))?;
    let mine = provider.get_or_create(&wanted("pb-mine")).await?.sandbox.hello().await?.instance;
    let theirs = provider.get_or_create(&wanted("pb-theirs")).await?.sandbox.hello().await?.instance;
    let sandbox_of = |claim: &serde_json::Value| claim["status"]["sandbox"]["name"].clone();
    let other = sandbox_of(&fixture.claim("pb-theirs").await?);
    let (mut refused, claims) = (0, fixture.objects("SandboxClaim"));
    for _ in 0..10 {
        let lie = json!({"status": {"sandbox": {"name": other}}});
        claims.patch_status("pb-mine", &PatchParams::default(), &Patch::Merge(&lie)).await?;
        match provider.reconnect("pb-mine").await {
            // The controller has corrected it.
            Ok(found) => ensure!(found.sandbox.hello().await?.instance == mine),
            Err(error) => {
                refused += 1;
                ensure!(error.to_string().contains("belongs to another claim"), "{error}");
            }
        }
    }
    println!("{refused} of 10 lies were seen before the controller corrected them");
    ensure!(provider.reconnect("pb-theirs").await?.sandbox.hello().await?.instance == theirs);
    for id in ["pb-mine", "pb-theirs"] {
        ensure!(provider.delete(id).await?);
    }
    Ok(())
}

/// A pod is named like its claim, so that a handle that was kept unused led to whoever has that name now.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_does_not_lead_to_a_later_sandbox_of_the_same_name() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    let provider = fixture.provider(template("debian"))?;
    provider.get_or_create(&wanted("pb-name")).await?;
    let kept = provider.reconnect("pb-name").await?.sandbox;
    ensure!(provider.delete("pb-name").await?);
    let later = provider.get_or_create(&wanted("pb-name")).await?;
    later.sandbox.run("echo secret > theirs").await?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let error = kept.run("cat theirs").await.err();
    let error = error.map(|error| error.to_string()).unwrap_or_else(|| "it was reached".into());
    ensure!(error.contains("another pod has its name"), "{error}");
    ensure!(provider.delete("pb-name").await?);
    Ok(())
}
