//! The operation suite on sandboxes that are plain pods, with an account that may do no more than is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suite;

use podbay::k8s::Cluster;
use podbay::k8s::raw::{Config, Features, Raw};
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

#[tokio::test]
async fn the_suite_in_debian() {
    passes(&[], Config { image: rig::DEBIAN.into(), ..Config::default() }).await;
}

#[tokio::test]
async fn the_suite_in_busybox() {
    passes(&[], Config { image: rig::BUSYBOX.into(), ..Config::default() }).await;
}

#[tokio::test]
async fn the_suite_without_root_on_a_read_only_root() {
    passes(&[], Config { image: rig::NONROOT.into(), read_only_root: true, ..Config::default() }).await;
}

#[tokio::test]
async fn the_suite_as_root() {
    let user = Config { run_as_user: None, run_as_group: None, fs_group: None, ..Config::default() };
    passes(&[], Config { image: rig::DEBIAN.into(), run_as_non_root: false, ..user }).await;
}

#[tokio::test]
async fn the_suite_in_gvisor() {
    let class = Some("gvisor".into());
    passes(&[rig::AddOn::Gvisor], Config { image: rig::DEBIAN.into(), runtime_class: class, ..Config::default() })
        .await;
}
