//! Raw mode on the rig, and beside each figure what there is without Podbay: one API exec per operation, `kubectl exec`,
//! `kubectl cp` and a bare WebSocket, all in one run.
//!
//! Names of parts as arguments (`operations`, `life`, `transfers`, `many`, `memory`) measure only these.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

mod life;
#[path = "../../../client/benches/measure/mod.rs"]
mod measure;
mod memory;
mod operations;
#[path = "../../tests/raw/pods.rs"]
#[allow(dead_code, reason = "only the account's rules are wanted here")]
mod pods;
mod rivals;
mod stock;
#[path = "../stock_http/mod.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod stock_http;
mod transfers;

use std::path::{Path, PathBuf};

use podbay_client::provider::{Provided, Provider, Wanted};
use podbay_k8s::raw::{Config, Raw};
use podbay_k8s::{Access, Cluster};

/// The cluster, a namespace with an account of least privilege, and a directory for what has to lie somewhere.
pub struct Bench {
    pub cluster: rig::TestCluster,
    pub namespace: rig::Namespace,
    pub dir: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Bench {
    async fn new() -> Self {
        let cluster = rig::cluster().await.unwrap().expect("this needs a cluster: use `cargo xtask bench raw`");
        let namespace = cluster.namespace(pods::rules()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, namespace.access().kubeconfig()).unwrap();
        Self { cluster, namespace, dir, kubeconfig }
    }

    /// A provider as users make it.
    pub async fn raw(&self, config: Config) -> Raw {
        raw(&self.kubeconfig, config).await
    }
}

pub async fn raw(kubeconfig: &Path, config: Config) -> Raw {
    let access = Access { kubeconfig: Some(kubeconfig.into()), ..Access::default() };
    Raw::new(Cluster::connect(&access).await.unwrap(), config).unwrap()
}

pub fn config(image: &str) -> Config {
    Config {
        image: image.into(),
        image_pull_policy: "Never".into(),
        cpu_request: "1m".into(),
        cpu_limit: "2".into(),
        memory_request: "8Mi".into(),
        ..Config::default()
    }
}

pub async fn made(raw: &Raw) -> Provided {
    raw.get_or_create(&Wanted::default()).await.unwrap()
}

#[tokio::main]
async fn main() {
    if let Ok(kubeconfig) = std::env::var(memory::KUBECONFIG) {
        return memory::hold(Path::new(&kubeconfig)).await;
    }
    if let Ok(address) = std::env::var(stock::ADDRESS) {
        return stock::ask(&address).await;
    }
    // Cargo adds an argument of its own.
    let parts: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let bench = Bench::new().await;
    if wanted("operations") {
        operations::measure(&bench).await;
    }
    if wanted("life") {
        life::measure(&bench).await;
    }
    if wanted("transfers") {
        transfers::measure(&bench).await;
    }
    if wanted("many") {
        transfers::measure_many(&bench).await;
    }
    if wanted("memory") {
        memory::measure(&bench).await;
    }
}
