//! Objects that lie: an id reaches only what it names.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use podbay_client::provider::Provider;
use serde_json::json;

use crate::place::{ALL, Place, template, wanted};

/// Whoever could write a claim's status could once have led its user into another's sandbox: names were all that was checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_names_anothers_sandbox_does_not_lead_there() -> Result<()> {
    let Some(place) = Place::new(ALL).await? else { return Ok(()) };
    place.template("debian", rig::DEBIAN, json!({})).await?;
    place.pool("debian", "debian", 2).await?;
    let provider = place.provider(template("debian"))?;
    let mine = provider.get_or_create(&wanted("pb-mine")).await?.sandbox.hello().await?.instance;
    let theirs = provider.get_or_create(&wanted("pb-theirs")).await?.sandbox.hello().await?.instance;
    let sandbox_of = |claim: &serde_json::Value| claim["status"]["sandbox"]["name"].clone();
    let other = sandbox_of(&place.claim("pb-theirs").await?);
    let (mut refused, claims) = (0, place.objects("SandboxClaim"));
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
