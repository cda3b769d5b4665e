//! The operation suite on sandboxes by claims, with upstream's own controller and an account that may do no more than is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suite;

use podbay::k8s::Cluster;
use podbay::k8s::agent_sandbox::{AgentSandbox, Config, Features};
use podbay::k8s::install::{Install, Template};
use podbay::k8s::raw;
use podbay::provider::{Provider, Wanted};
use rig::AddOn;

/// A sandbox of a template that `podbay install` prints passes the suite, with the account that it prints.
async fn passes(add_ons: &[AddOn], pod: raw::Config) {
    let Some(cluster) = rig::cluster_with(add_ons).await.unwrap() else { return };
    let needs = Features { templates: true, ..Features::default() }.needs();
    let namespace = cluster.namespace(needs.policy_rules()).await.unwrap();
    let pod = raw::Config { image_pull_policy: "Never".into(), memory_request: "16Mi".into(), ..pod };
    let template = Some(Template { name: "podbay".into(), replicas: 1, pod, allow_env: false });
    let install = Install { namespace: namespace.name().into(), template, ..Install::new(needs) };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    let config = Config { template_name: Some("podbay".into()), ..Config::default() };
    let claims = AgentSandbox::new(&Cluster::with_client(namespace.client(), namespace.name()), config).unwrap();
    let made = claims.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    assert!(claims.delete(&made.id).await.unwrap());
}

#[tokio::test]
async fn the_suite_in_debian() {
    passes(&[AddOn::AgentSandbox], raw::Config { image: rig::DEBIAN.into(), ..raw::Config::default() }).await;
}

#[tokio::test]
async fn the_suite_in_the_stock_runtimes_image() {
    passes(&[AddOn::AgentSandbox], raw::Config { image: rig::PYTHON_RUNTIME.into(), ..raw::Config::default() }).await;
}

#[tokio::test]
async fn the_suite_in_gvisor() {
    let class = Some("gvisor".into());
    let pod = raw::Config { image: rig::DEBIAN.into(), runtime_class: class, ..raw::Config::default() };
    passes(&[AddOn::AgentSandbox, AddOn::Gvisor], pod).await;
}
