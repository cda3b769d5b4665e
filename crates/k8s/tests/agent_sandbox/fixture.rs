//! Namespaces with templates and pools to claim from.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use podbay_client::provider::Wanted;
use podbay_k8s::Cluster;
use podbay_k8s::agent_sandbox::{AgentSandbox, Config, Features};
use rig::{AddOn, Namespace, TestCluster};
use serde_json::{Value, json};

/// A cluster with the controller, and a namespace with an account that has the rights that `podbay install` grants.
pub(crate) struct Fixture {
    pub(crate) cluster: TestCluster,
    pub(crate) namespace: Namespace,
}

/// Everything that this mode can do through exec.
pub(crate) const ALL: Features = Features {
    templates: true,
    creates_pools: true,
    suspends: true,
    without_exec: false,
    tunnel: None,
    gateway: None,
    only_claims_names: false,
};

impl Fixture {
    /// Nothing where no cluster can run.
    pub(crate) async fn new(features: Features) -> Result<Option<Self>> {
        let Some(cluster) = rig::cluster_with(&[AddOn::AgentSandbox]).await? else { return Ok(None) };
        let namespace = cluster.namespace(features.needs().policy_rules()).await?;
        Ok(Some(Self { cluster, namespace }))
    }

    pub(crate) fn provider(&self, config: Config) -> Result<AgentSandbox> {
        let cluster = Cluster::with_client(self.namespace.client(), self.namespace.name());
        Ok(AgentSandbox::new(&cluster, config)?)
    }

    /// The objects of a kind, for somebody who may do everything.
    pub(crate) fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let group = if kind == "Sandbox" { "agents.x-k8s.io" } else { "extensions.agents.x-k8s.io" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta1", kind));
        Api::namespaced_with(self.cluster.admin(), self.namespace.name(), &resource)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.admin(), self.namespace.name())
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        self.objects(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// A template of an image that has nothing of Podbay's or the controller's in it.
    pub(crate) async fn template(&self, name: &str, image: &str, more: Value) -> Result<()> {
        let container = json!({
            "name": "main", "image": image, "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"],
        });
        let mut spec =
            json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.create("SandboxTemplate", name, spec).await
    }

    /// A pool, once it is full.
    pub(crate) async fn pool(&self, name: &str, template: &str, replicas: i64) -> Result<()> {
        self.create("SandboxWarmPool", name, json!({"replicas": replicas, "sandboxTemplateRef": {"name": template}}))
            .await?;
        let pools = self.objects("SandboxWarmPool");
        eventually("the pool is full", || async {
            let pool = serde_json::to_value(pools.get(name).await?)?;
            Ok(replicas == 0 || pool["status"]["readyReplicas"] == replicas)
        })
        .await
    }

    /// Waits until no claim is left, nor a Sandbox or a pod beyond those that wait in pools.
    pub(crate) async fn only_pools_are_left(&self, waiting: usize) -> Result<()> {
        let [claims, sandboxes] = ["SandboxClaim", "Sandbox"].map(|kind| self.objects(kind));
        let pods = self.pods();
        let gone = eventually("everything of the sandboxes is gone", || async {
            let all = ListParams::default();
            let claims = claims.list(&all).await?.items.len();
            let (sandboxes, pods) = (sandboxes.list(&all).await?.items.len(), pods.list(&all).await?.items.len());
            Ok(claims == 0 && sandboxes == waiting && pods == waiting)
        })
        .await;
        match gone {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.left().await?)),
        }
    }

    /// What there is, and whose.
    async fn left(&self) -> Result<String> {
        let mut left = Vec::new();
        for kind in ["SandboxClaim", "Sandbox"] {
            for object in self.objects(kind).list(&ListParams::default()).await?.items {
                let name = object.metadata.name.unwrap_or_default();
                let owners = object.metadata.owner_references.unwrap_or_default();
                let owners: Vec<String> =
                    owners.into_iter().map(|owner| format!("{} {} ({})", owner.kind, owner.name, owner.uid)).collect();
                let terminating = object.metadata.deletion_timestamp.map_or("", |_| ", terminating");
                left.push(format!("{kind} {name} of [{}]{terminating}", owners.join(", ")));
            }
        }
        Ok(format!("left: {}", left.join("; ")))
    }

    pub(crate) async fn claim(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.objects("SandboxClaim").get(name).await?)?)
    }
}

pub(crate) fn template(name: &str) -> Config {
    Config { template_name: Some(name.into()), startup_timeout: 60, ..Config::default() }
}

pub(crate) fn wanted(id: &str) -> Wanted {
    Wanted { id: Some(id.into()), ..Wanted::default() }
}

/// Waits until something holds.
pub(crate) async fn eventually<F>(what: &str, mut holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let start = Instant::now();
    while !holds().await.with_context(|| what.to_owned())? {
        // The controller starts anew after an outage, with longer and longer pauses.
        ensure!(start.elapsed() < Duration::from_secs(180), "not within three minutes: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
