//! Mode agent-sandbox on the rig: Podbay's claims compared with the controller's own time to Ready, and operations through
//! exec and at the pod's address compared with the stock runtime's HTTP API. Everything is measured in the cluster's network.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

#[path = "../../tests/agent_sandbox/fixture.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod fixture;
#[path = "../../../client/benches/measure/mod.rs"]
mod measure;
mod operations;
#[path = "../stock_http/mod.rs"]
mod stock_http;
mod transfers;

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams, WatchEvent, WatchParams};
use podbay_client::Sandbox;
use podbay_client::provider::{Launch, Provider, Wanted};
use podbay_k8s::agent_sandbox::{AgentSandbox, Config, Runtime};
use podbay_k8s::channel::Connection;
use podbay_k8s::install::{Install, Template};
use podbay_k8s::keys::PrivateKey;
use podbay_k8s::{Access, Cluster, raw};
use serde_json::json;

use fixture::{ALL, Fixture, eventually};
use measure::{Samples, Table};

const ROUNDS: usize = 20;

/// The namespace, in the process that runs in the cluster's network.
const INSIDE: &str = "PODBAY_BENCH_INSIDE";

/// The template of an image without podbayd, that of an image with it, and that of a pool with nothing in it.
const PLAIN: &str = "plain";
const RUNTIME: &str = "runtime";
const COLD: &str = "cold";
/// The stock runtime's.
const STOCK: &str = "stock";

/// Each pod's limit, the same for all. Container layers of the test cluster are in memory and count, so files may need it.
const MEMORY: &str = "4Gi";

fn key() -> PrivateKey {
    PrivateKey::from_seed([7; 32])
}

#[tokio::main]
async fn main() {
    if let Ok(namespace) = std::env::var(INSIDE) {
        return measure(&Inside::new(&namespace).await).await;
    }
    let fixture =
        Fixture::new(ALL).await.unwrap().expect("this needs a cluster: use `cargo xtask bench agent-sandbox`");
    let arch = std::env::consts::ARCH;
    let image =
        rig::Runtime::Debian.image(podbay_embed::daemon(arch).unwrap(), podbay_embed::digest(arch).unwrap()).unwrap();
    fixture.cluster.add_images(&[image]).unwrap();
    for (name, image, replicas) in
        [(PLAIN, rig::DEBIAN, 2), (RUNTIME, rig::PODBAY_RUNTIME, 2), (COLD, rig::PODBAY_RUNTIME, 0)]
    {
        let pod = raw::Config {
            image: image.into(),
            image_pull_policy: "Never".into(),
            memory_request: "16Mi".into(),
            memory_limit: MEMORY.into(),
            cpu_limit: "2".into(),
            ..raw::Config::default()
        };
        let podbayd_in_image = image == rig::PODBAY_RUNTIME;
        let public_keys = vec![key().public()];
        let template = Template {
            name: name.into(),
            replicas,
            pod,
            allow_env: false,
            public_keys,
            admit_router: true,
            router_namespace: "agent-sandbox-system".into(),
            podbayd_in_image,
            runtime_api: false,
        };
        let install = Install {
            namespace: fixture.namespace.name().into(),
            template: Some(template),
            ..Install::new(ALL.needs())
        };
        fixture.cluster.apply(&install.manifests().unwrap()).unwrap();
    }
    fixture.cluster.apply(&stock_template(fixture.namespace.name())).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut inside = fixture.cluster.inside(own.to_str().unwrap()).unwrap();
    let measured = inside.env(INSIDE, fixture.namespace.name()).status().unwrap();
    assert!(measured.success());
}

/// Upstream's template and pool of its runtime, as the namespace's Pod Security admits it.
fn stock_template(namespace: &str) -> String {
    let pod = "terminationGracePeriodSeconds: 1";
    let container = "imagePullPolicy: Never";
    include_str!("../../../../rig/manifests/warm-pool.yaml")
        .replace("namespace: default", &format!("namespace: {namespace}"))
        .replace(
            pod,
            &format!(
                "{pod}\n      securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}"
            ),
        )
        .replace(
            container,
            &format!(
                "{container}\n          securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}"
            ),
        )
}

/// What there is in the cluster's network.
pub struct Inside {
    client: kube::Client,
    namespace: String,
    key_file: tempfile::NamedTempFile,
}

impl Inside {
    async fn new(namespace: &str) -> Self {
        let key_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key_file.path(), key().secret_text()).unwrap();
        Self { client: kube::Client::try_default().await.unwrap(), namespace: namespace.into(), key_file }
    }

    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("extensions.agents.x-k8s.io", "v1beta1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn cluster(&self) -> Cluster {
        let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
        let access = Access { kubeconfig, namespace: Some(self.namespace.clone()), ..Access::default() };
        Cluster::connect(&access).await.unwrap()
    }

    /// Pods without claims, of the image with podbayd in it, at their addresses.
    pub async fn raw(&self) -> raw::Raw {
        let config = raw::Config {
            image: rig::PODBAY_RUNTIME.into(),
            image_pull_policy: "Never".into(),
            memory_request: "16Mi".into(),
            memory_limit: MEMORY.into(),
            cpu_limit: "2".into(),
            connection: Connection::InCluster,
            private_key_file: self.key_file.path().to_str().map(str::to_owned),
            ..raw::Config::default()
        };
        raw::Raw::new(self.cluster().await, config).unwrap()
    }

    /// The address of the router's Service.
    async fn router_url(&self) -> String {
        let services: Api<Service> = Api::namespaced(self.client.clone(), "agent-sandbox-system");
        let address = services.get("sandbox-router-svc").await.unwrap().spec.unwrap().cluster_ip.unwrap();
        format!("http://{address}:8080")
    }

    /// A sandbox for a client that asks the API server for nothing.
    pub async fn by_router_alone(&self, claim: &str) -> Sandbox {
        let bound = self.objects("SandboxClaim").get(claim).await.unwrap();
        let sandbox = bound.data["status"]["sandbox"]["name"].as_str().unwrap();
        let config = Config {
            connection: Connection::Direct,
            router_url: Some(self.router_url().await),
            router_only: true,
            private_key_file: self.key_file.path().to_str().map(str::to_owned),
            ..Config::default()
        };
        let cluster = Cluster::without_api(&self.namespace);
        AgentSandbox::new(&cluster, config).unwrap().reconnect(sandbox).await.unwrap().sandbox
    }

    /// Claims of upstream's template, where podbayd is reached over the stock runtime's API.
    pub async fn by_stock_runtime(&self) -> AgentSandbox {
        let config = Config {
            template_name: Some("python".into()),
            connection: Connection::Direct,
            router_url: Some(self.router_url().await),
            runtime: Runtime::Stock,
            ..Config::default()
        };
        AgentSandbox::new(&self.cluster().await, config).unwrap()
    }

    /// A provider as users make it.
    pub async fn provider(&self, template: &str, connection: Connection) -> AgentSandbox {
        let config = Config {
            template_name: Some(template.into()),
            connection,
            router_url: if connection == Connection::Direct { Some(self.router_url().await) } else { None },
            private_key_file: self.key_file.path().to_str().map(str::to_owned),
            ..Config::default()
        };
        AgentSandbox::new(&self.cluster().await, config).unwrap()
    }
}

async fn measure(inside: &Inside) {
    let table = Table::times("Creating a sandbox");
    let figures = |heading: &str| Table::figures(heading);
    let mut factors = Vec::new();
    let mut rows = |what: &str, most: &str, ready: &Samples, ours: &Samples| {
        table.row(&format!("baseline: the same claim created directly, {what}, create to Ready"), ready);
        table.row(&format!("**podbay: claim to the result of `true`, {what}**"), ours);
        let factor = ours.p50().as_secs_f64() / ready.p50().as_secs_f64();
        factors.push((format!("{what}{most}"), format!("{factor:.2}")));
    };
    let (ready, ours) = creation(inside, RUNTIME, 2, Connection::InCluster).await;
    rows("warm, podbayd in the image, at the pod's address", " (at most 1.2)", &ready, &ours);
    let (ready, ours) = creation(inside, PLAIN, 2, Connection::Exec).await;
    rows("warm, any image, through exec", "", &ready, &ours);
    let (ready, ours) = creation(inside, COLD, 0, Connection::InCluster).await;
    rows("cold, podbayd in the image, at the pod's address", "", &ready, &ours);
    for connection in [Connection::InCluster, Connection::Exec] {
        let provider = inside.provider(RUNTIME, connection).await;
        let made = provider.get_or_create(&Wanted::default()).await.unwrap();
        let reconnected = Samples::of(20, |_| async {
            provider.reconnect(&made.id).await.unwrap().sandbox.hello().await.unwrap();
        });
        let by = if connection == Connection::Exec { "through exec" } else { "at the pod's address" };
        table.row(&format!("podbay: reconnect by id {by}, to podbayd's first answer"), &reconnected.await);
        provider.delete(&made.id).await.unwrap();
    }
    let compared = figures("Compared with the controller's own time to Ready (p50)");
    for (what, factor) in factors {
        compared.figure(&what, factor);
    }
    operations::measure(inside).await;
}

/// The controller's own time from a claim to Ready, and Podbay's to the first result, one after the other.
async fn creation(inside: &Inside, pool: &str, waiting: i64, connection: Connection) -> (Samples, Samples) {
    let provider = inside.provider(pool, connection).await;
    // The first finds nothing prepared.
    let first = provider.get_or_create(&Wanted::default()).await.unwrap();
    provider.delete(&first.id).await.unwrap();
    let (mut ready, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        full(inside, pool, waiting).await;
        ready.push(direct(inside, pool, &format!("direct-{pool}-{round}")).await);
        full(inside, pool, waiting).await;
        let begun = Instant::now();
        let made = provider.get_or_create(&Wanted::default()).await.unwrap();
        assert!(made.sandbox.run("true").await.unwrap().success());
        ours.push(begun.elapsed());
        assert_eq!(made.launch, Some(if waiting > 0 { Launch::Warm } else { Launch::Cold }));
        provider.delete(&made.id).await.unwrap();
    }
    (ready.into(), ours.into())
}

/// Waits until the pool is full: what is measured is a claim, not a queue for it.
async fn full(inside: &Inside, pool: &str, waiting: i64) {
    let pools = inside.objects("SandboxWarmPool");
    eventually("the pool is full", || async {
        let pool = serde_json::to_value(pools.get(pool).await?)?;
        Ok(waiting == 0 || pool["status"]["readyReplicas"] == waiting)
    })
    .await
    .unwrap();
    // The controller's other work for the sandbox before shouldn't be measured with this one.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Creates a claim like Podbay's and watches until it is Ready. What a claim contains costs the controller time too.
async fn direct(inside: &Inside, pool: &str, name: &str) -> Duration {
    let claims = inside.objects("SandboxClaim");
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {
            "name": name,
            "labels": {
                "agents.x-k8s.io/created-by": "podbay", "app.kubernetes.io/managed-by": "bench", "podbay.dev/sandbox": name,
            },
            "annotations": {
                "agents.x-k8s.io/client-first-requested-at": k8s_openapi::jiff::Timestamp::now().to_string(),
                "podbay.dev/creator": name, "podbay.dev/last-used": k8s_openapi::jiff::Timestamp::now().to_string(),
            },
        },
        "spec": {"warmPoolRef": {"name": pool}, "lifecycle": {"shutdownPolicy": "Delete"}},
    });
    let begun = Instant::now();
    let made = claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(claims.watch(&only, &made.metadata.resource_version.unwrap()).await.unwrap());
    loop {
        let WatchEvent::Modified(claim) = events.try_next().await.unwrap().unwrap() else { continue };
        let conditions = claim.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True") {
            break;
        }
    }
    let time = begun.elapsed();
    claims.delete(name, &DeleteParams::background()).await.unwrap();
    time
}
