//! podbayd at the pod's own address. Pods have no address outside of the cluster, so the test runs itself again in the
//! node's network.

use anyhow::{Result, ensure};
use podbay_client::files::{Download, Write};
use podbay_client::provider::Provider;
use podbay_k8s::agent_sandbox::{AgentSandbox, Config};
use podbay_k8s::channel::Connection;
use podbay_k8s::{Access, Cluster, keys};
use serde_json::json;

use crate::fixture::{ALL, Fixture, template, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn a_claims_pod_is_reached_at_its_own_address() -> Result<()> {
    if let Some(namespace) = rig::inside() {
        return in_the_nodes_network(&namespace).await;
    }
    let Some(fixture) = Fixture::new(ALL).await? else { return Ok(()) };
    fixture.template("debian", rig::DEBIAN, json!({"networkPolicyManagement": "Unmanaged"})).await?;
    fixture.pool("debian", "debian", 1).await?;
    fixture.namespace.run_test_inside("in_cluster::a_claims_pod_is_reached_at_its_own_address").await
}

async fn in_the_nodes_network(namespace: &str) -> Result<()> {
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let access = Access { kubeconfig, namespace: Some(namespace.into()), ..Access::default() };
    let cluster = Cluster::connect(&access).await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("key");
    std::fs::write(&file, keys::generate().secret_text())?;
    let private_key_file = file.to_str().map(str::to_owned);
    let config = Config { connection: Connection::InCluster, private_key_file, ..template("debian") };
    let provider = AgentSandbox::new(&cluster, config.clone())?;
    let made = provider.get_or_create(&wanted("pb-one")).await?;
    ensure!(made.sandbox.run("echo here").await?.text() == "here\n");
    made.sandbox.write(&Write::new("large"), vec![7; 5 << 20]).await?;
    // Another client needs no exec at all.
    let found = AgentSandbox::new(&cluster, config.clone())?.reconnect("pb-one").await?;
    ensure!(found.sandbox.download(&Download::new("large")).await?.len() == 5 << 20);
    ensure!(found.sandbox.hello().await?.instance == made.sandbox.hello().await?.instance);

    // The key is replaced while the sandbox is in use. podbayd knows only the old one.
    let old = std::fs::read_to_string(&file)?;
    let new = keys::generate().secret_text();
    std::fs::write(&file, &new)?;
    ensure!(made.sandbox.run("echo goes on").await?.text() == "goes on\n");
    let auto = Config { connection: Connection::Auto, ..config.clone() };
    let by_exec = AgentSandbox::new(&cluster, auto)?.reconnect("pb-one").await?;
    ensure!(by_exec.sandbox.hello().await?.instance == made.sandbox.hello().await?.instance);
    let error =
        AgentSandbox::new(&cluster, config.clone())?.reconnect("pb-one").await?.sandbox.run("true").await.unwrap_err();
    ensure!(error.to_string().contains("refuses this client"), "{error}");
    // With both, new sandboxes accept both, whichever comes first.
    std::fs::write(&file, format!("{old}\n{new}"))?;
    let next = AgentSandbox::new(&cluster, config.clone())?.get_or_create(&wanted("pb-next")).await?;
    ensure!(next.sandbox.run("true").await?.success());
    std::fs::write(&file, &new)?;
    let found = AgentSandbox::new(&cluster, config)?.reconnect("pb-next").await?;
    ensure!(found.sandbox.hello().await?.instance == next.sandbox.hello().await?.instance);
    for name in ["pb-one", "pb-next"] {
        ensure!(provider.delete(name).await?);
    }
    Ok(())
}
