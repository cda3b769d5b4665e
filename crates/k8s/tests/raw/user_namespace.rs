//! Pods with user namespaces of their own, on nodes that can't have them.

use anyhow::{Context, Result, ensure};
use podbay_k8s::Cluster;
use podbay_k8s::doctor::{CheckState, Depth, Doctor};
use podbay_k8s::raw::Config;

use crate::pods::rules;
use crate::provider::config;

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_that_nodes_have_no_user_namespaces_for_pods() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let config = Config { user_namespace: true, startup_timeout: 20, ..config(rig::BUSYBOX) };
    let doctor = Doctor::raw(Cluster::with_client(namespace.client(), namespace.name()), config)?;
    let report = doctor.examine(Depth::Full).await;
    let start = report.findings.iter().find(|finding| finding.check == "start").context("nothing was started")?;
    println!("{}: {:?}", start.detail, start.fix);
    ensure!(!report.usable && start.state == CheckState::Failed, "{start:?}");
    ensure!(start.fix.as_ref().is_some_and(|fix| fix.contains("raw.user_namespace")), "{start:?}");
    Ok(())
}
