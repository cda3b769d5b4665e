//! The stock HTTP runtime of agent-sandbox, asked at its pod's own address: no API server on the way.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::net::TcpStream;

use crate::Bench;
use crate::stock_http::StockConnection;

const NAME: &str = "stock";

pub const ADDRESS: &str = "PODBAY_BENCH_STOCK";

/// How many commands each of the sixteen runs.
pub const EACH: usize = 100;

/// A pod of it.
pub struct Stock {
    pods: Api<Pod>,
    address: String,
}

impl Stock {
    pub async fn start(bench: &Bench) -> Self {
        let cluster = rig::Cluster::clone(&bench.cluster);
        let add = move || cluster.add_images(&[rig::stock_runtime().unwrap()]).unwrap();
        tokio::task::spawn_blocking(add).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(bench.namespace.client(), bench.namespace.name());
        let limits = json!({"cpu": "2", "memory": "512Mi"});
        let pod = json!({
            "metadata": {"name": NAME},
            "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [{
                "name": "runtime", "image": rig::PYTHON_RUNTIME, "imagePullPolicy": "Never",
                "resources": {"limits": limits, "requests": {"cpu": "1m", "memory": "8Mi"}},
            }]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let Some(ip) = pods.get(NAME).await.unwrap().status.and_then(|status| status.pod_ip) else { continue };
            return Self { pods, address: format!("{ip}:8888") };
        }
    }

    /// How many times a second it runs `true`, asked by sixteen at once: a process of its own asks, in the cluster's network,
    /// for pods have no address outside.
    pub fn rate(&self, bench: &Bench) -> f64 {
        let own = std::env::current_exe().unwrap();
        let output = bench.cluster.inside(own.to_str().unwrap()).unwrap().env(ADDRESS, &self.address).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    pub async fn end(self) {
        self.pods.delete(NAME, &DeleteParams::default()).await.unwrap();
    }
}

/// In the process of its own.
pub async fn ask(address: &str) {
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The first commands of a pod wait for its processor quota; these don't count.
    join_all((0..16).map(|_| run_true(address, 20))).await;
    let begun = Instant::now();
    join_all((0..16).map(|_| run_true(address, EACH))).await;
    println!("{}", (16 * EACH) as f64 / begun.elapsed().as_secs_f64());
}

/// Runs `true` so many times, one after the other on one connection.
async fn run_true(address: &str, count: usize) {
    let mut stock = StockConnection::open(address).await;
    for _ in 0..count {
        stock.run_true().await;
    }
}
