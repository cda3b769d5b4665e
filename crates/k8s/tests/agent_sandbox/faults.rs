//! What others change while sandboxes are in use.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use podbay_client::files::{Read, Write};
use podbay_client::provider::{Launch, Provider};
use podbay_k8s::Error;
use podbay_k8s::agent_sandbox::Config;
use serde_json::json;

use crate::fixture::{ALL, Fixture, eventually, template, wanted};

/// A sandbox that is in use keeps what it has; the next one gets what is there now.
#[tokio::test(flavor = "multi_thread")]
async fn templates_change_and_pools_are_drained_while_sandboxes_are_used() -> Result<()> {
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({})).await?;
    fixture.pool("debian", "debian", 1).await?;
    let provider = fixture.provider(template("debian"))?;
    let used = provider.get_or_create(&wanted("pb-used")).await?;
    ensure!(used.launch == Some(Launch::Warm), "{:?}", used.launch);
    used.sandbox.write(&Write::new("kept"), "yes").await?;
    let running = {
        let sandbox = used.sandbox.clone();
        tokio::spawn(async move { sandbox.run("sleep 3; echo ran to its end").await })
    };

    let (pools, templates) = (fixture.objects("SandboxWarmPool"), fixture.objects("SandboxTemplate"));
    let change = PatchParams::default();
    pools.patch("debian", &change, &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
    let container = json!({
        "name": "main", "image": rig::DEBIAN, "imagePullPolicy": "Never", "env": [{"name": "VERSION", "value": "2"}],
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"],
    });
    let spec = json!({"podTemplate": {"spec": {"containers": [container]}}});
    templates.patch("debian", &change, &Patch::Merge(json!({ "spec": spec }))).await?;
    eventually("the pool is drained", || async {
        let sandboxes = fixture.objects("Sandbox").list(&Default::default()).await?.items.len();
        Ok(sandboxes == 1)
    })
    .await?;
    let next = provider.get_or_create(&wanted("pb-next")).await?;
    ensure!(next.launch == Some(Launch::Cold), "{:?}", next.launch);
    ensure!(next.sandbox.run("echo $VERSION").await?.text() == "2\n");
    ensure!(running.await??.text() == "ran to its end\n");

    // Without its pool and template, what exists can be used, found and deleted; nothing new can be made.
    pools.delete("debian", &DeleteParams::default()).await?;
    templates.delete("debian", &DeleteParams::default()).await?;
    let again = fixture.provider(template("debian"))?.reconnect("pb-used").await?;
    ensure!(again.sandbox.read(&Read::new("kept")).await?.1 == "yes");
    let config = Config { warm_pool_name: Some("debian".into()), ..template("debian") };
    let error = fixture.provider(config)?.get_or_create(&wanted("pb-none")).await.unwrap_err();
    let podbay_client::Error::Provider(cause) = &error else { anyhow::bail!("{error}") };
    ensure!(matches!(cause.downcast_ref(), Some(Error::WarmPoolNotFound { .. })), "{error}");
    for name in ["pb-used", "pb-next"] {
        ensure!(provider.delete(name).await?);
    }
    fixture.only_pools_are_left(0).await
}
