//! What goes wrong on a cluster: nothing happens twice, nothing is lost, every wait ends, nothing is left behind.

mod answers;
mod client;
mod connection;
mod container;
mod resources;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use podbay_client::Sandbox;
use podbay_k8s::raw::{Config, Raw};
use podbay_k8s::{Access, Cluster};

use crate::provider::wanted;

/// A provider as a user makes it, from a kubeconfig, with the API server behind another port.
pub(crate) async fn through(namespace: &rig::Namespace, port: u16, config: Config) -> Result<Raw> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, namespace.access().through(port).kubeconfig())?;
    let access = Access { kubeconfig: Some(file), ..Access::default() };
    Ok(Raw::new(Cluster::connect(&access).await?, config)?)
}

/// The name of the namespace's only pod.
async fn only_pod(cluster: &rig::TestCluster, namespace: &rig::Namespace) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let mut list = pods.list(&ListParams::default()).await?.items;
    ensure!(list.len() == 1, "{} pods", list.len());
    list.remove(0).metadata.name.context("no name")
}

/// Waits until neither a pod nor a Lease is left.
async fn nothing_is_left(cluster: &rig::TestCluster, namespace: &rig::Namespace) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let start = Instant::now();
    loop {
        let left = pods.list(&ListParams::default()).await?.items.len();
        let leased = leases.list(&ListParams::default()).await?.items.len();
        if (left, leased) == (0, 0) {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(20), "left behind: {left} pods, {leased} Leases");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many processes in a sandbox were started with these words. Needs no tool but a shell.
async fn processes(sandbox: &Sandbox, words: &str) -> Result<usize> {
    let script = format!(
        "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null | grep -q '^[^ ]*{words}' && echo x; done"
    );
    Ok(sandbox.run(script.as_str()).await?.text().lines().count())
}

/// Waits until at most so many connections are held in a sandbox: those of clients that are gone must end.
async fn bridges_end(sandbox: &Sandbox, most: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let count = processes(sandbox, "podbayd connect").await?;
        ensure!(count > 0, "not even the one that asks is seen");
        if count <= most {
            return Ok(());
        }
        ensure!(start.elapsed() < Duration::from_secs(20), "{count} processes of connections are left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
