//! The operation suite on sandboxes that are plain pods, with an account that may do no more than is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suite;

use podbay::k8s::channel::Connection;
use podbay::k8s::raw::{Config, Features, Raw};
use podbay::k8s::{Access, Cluster};
use podbay::provider::{Provider, Wanted};

/// A sandbox of each kind passes the suite, and its pod goes with it.
async fn passes(add_ons: &[rig::AddOn], config: Config) {
    let Some(cluster) = rig::cluster_with(add_ons).await.unwrap() else { return };
    let namespace = cluster.namespace(rules()).await.unwrap();
    let config = Config { image_pull_policy: "Never".into(), memory_request: "16Mi".into(), ..config };
    let raw = Raw::new(Cluster::with_client(namespace.client(), namespace.name()), config).unwrap();
    let made = raw.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    assert!(raw.delete(&made.id).await.unwrap());
}

fn rules() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    Features { network_rules: true, ..Features::default() }.needs().policy_rules()
}

/// The runtime that most clusters have. What doesn't name it runs on what the test cluster has, which may be crun.
fn on_runc() -> Config {
    Config { runtime_class: Some(rig::RUNC.into()), ..Config::default() }
}

#[tokio::test]
async fn the_suite_in_debian() {
    passes(&[], Config { image: rig::DEBIAN.into(), ..on_runc() }).await;
}

#[tokio::test]
async fn the_suite_in_busybox() {
    passes(&[], Config { image: rig::BUSYBOX.into(), ..Config::default() }).await;
}

#[tokio::test]
async fn the_suite_without_root_on_a_read_only_root() {
    passes(&[], Config { image: rig::NONROOT.into(), read_only_root: true, ..on_runc() }).await;
}

#[tokio::test]
async fn the_suite_as_root() {
    let user = Config { run_as_user: None, run_as_group: None, fs_group: None, ..on_runc() };
    passes(&[], Config { image: rig::DEBIAN.into(), run_as_non_root: false, ..user }).await;
}

#[tokio::test]
async fn the_suite_in_gvisor() {
    let class = Some("gvisor".into());
    passes(&[rig::AddOn::Gvisor], Config { image: rig::DEBIAN.into(), runtime_class: class, ..Config::default() })
        .await;
}

/// Pods have no address outside of the cluster, so it runs itself again in the node's network.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_at_the_pods_address() {
    let Some(namespace) = rig::inside() else {
        let Some(cluster) = rig::cluster().await.unwrap() else { return };
        let namespace = cluster.namespace(rules()).await.unwrap();
        return namespace.run_test_inside("the_suite_at_the_pods_address").await.unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, podbay::k8s::keys::generate().secret_text()).unwrap();
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let access = Access { kubeconfig, namespace: Some(namespace), ..Access::default() };
    let config = Config {
        image: rig::DEBIAN.into(),
        image_pull_policy: "Never".into(),
        connection: Connection::InCluster,
        private_key_file: file.to_str().map(str::to_owned),
        ..Config::default()
    };
    let raw = Raw::new(Cluster::connect(&access).await.unwrap(), config).unwrap();
    let made = raw.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    assert!(raw.delete(&made.id).await.unwrap());
}
