//! The script that every new sandbox runs.

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::Provider;
use podbay_k8s::raw::Config;

use crate::pods::rules;
use crate::provider::{config, provider, wanted};

#[tokio::test(flavor = "multi_thread")]
async fn the_setup_script_has_run_once_for_everybody_who_gets_the_sandbox() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let script = Some("sleep 1; echo done >> log".to_owned());
    let config = Config { setup_script: script, ..config(rig::BUSYBOX) };
    let providers: Vec<_> = (0..4).map(|_| provider(&namespace, config.clone())).collect::<Result<_>>()?;
    let wanted = wanted("pb-setup");
    let all = try_join_all(providers.iter().map(|raw| async {
        let got = raw.get_or_create(&wanted).await?;
        got.sandbox.run("cat log").await.map(|output| output.text().into_owned())
    }))
    .await?;
    ensure!(all.iter().all(|text| text == "done\n"), "{all:?}");
    let later = provider(&namespace, config)?.get_or_create(&wanted).await?;
    ensure!(later.sandbox.run("cat log").await?.text() == "done\n", "it ran again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_script_that_fails_fails_the_sandbox_and_leaves_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let script = Some("echo fetching; echo 'no such \u{1b}[31mpackage' >&2; exit 9".to_owned());
    let raw = provider(&namespace, Config { setup_script: script, ..config(rig::BUSYBOX) })?;
    let error = raw.get_or_create(&wanted("pb-bad")).await.err().context("it was made")?.to_string();
    ensure!(error.contains("exit code 9") && error.contains("fetching") && error.contains("no such"), "{error}");
    ensure!(!error.contains('\u{1b}'), "it steers the terminal: {error:?}");
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    ensure!(leases.list(&ListParams::default()).await?.items.is_empty(), "a Lease was left behind");
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let left = pods.list(&ListParams::default()).await?.items;
    ensure!(left.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "a pod was left behind");
    Ok(())
}
