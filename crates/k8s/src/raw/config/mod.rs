//! How sandboxes in raw mode are made.

mod check;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Container, EnvVarSource, Toleration, Volume, VolumeMount};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Seconds of a day: how long a sandbox on a cluster may be idle unless someone says otherwise. What nobody ends would
/// stay, and cost, for ever.
pub const DAY: u64 = 24 * 3600;

/// How sandboxes in raw mode are made. What isn't set has the value of [`Config::default`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The image. It needs a shell, head, chmod, mkdir and mv.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// Names of secrets for pulling it.
    pub image_pull_secrets: Vec<String>,
    /// The architecture of the nodes to run on: `amd64` or `arm64`.
    pub image_arch: Option<String>,
    /// A shell script that every new sandbox runs once, before anybody gets it.
    pub setup_script: Option<String>,
    /// Where commands start: an empty volume.
    pub workdir: String,
    /// What the container runs; a shell that waits when there is none, or none that does more (`sleep infinity`). It should
    /// end on TERM, with code 0: that is how podbayd ends a sandbox whose time is up.
    pub command: Option<Vec<String>>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are in a Secret or ConfigMap of the namespace. Podbay never sees the values.
    pub env_from: BTreeMap<String, EnvVarSource>,
    /// Processor time that is set aside.
    pub cpu_request: String,
    /// The most processor time.
    pub cpu_limit: String,
    /// Memory that is set aside.
    pub memory_request: String,
    /// The most memory.
    pub memory_limit: String,
    /// Disk that is set aside. Without it the cluster would set the whole limit aside.
    pub ephemeral_storage_request: String,
    /// The most disk, volumes included.
    pub ephemeral_storage_limit: String,
    /// The pod's service account. Its token isn't mounted.
    pub service_account: Option<String>,
    /// Labels of the nodes to run on.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes to put up with.
    pub tolerations: Vec<Toleration>,
    /// Seconds that a pod stays on a node which the cluster has lost touch with. Then it is deleted, and with it all that
    /// the sandbox had.
    pub node_loss_tolerance: u64,
    /// Which nodes to prefer or shun.
    pub affinity: Option<Affinity>,
    /// gVisor, Kata and the like.
    pub runtime_class: Option<String>,
    /// Gives the pod a user namespace of its own (`hostUsers: false`): its root is nobody on the node.
    pub user_namespace: bool,
    /// More volumes.
    pub volumes: Vec<Volume>,
    /// Where they are in the container.
    pub volume_mounts: Vec<VolumeMount>,
    /// Containers that run first.
    pub init_containers: Vec<Container>,
    /// Merged into the pod: objects key by key, lists of named things name by name, other lists as a whole.
    pub pod_template_overrides: Value,
    /// Lets `pod_template_overrides`, `volumes` and `init_containers` weaken what protects the cluster.
    pub allow_weaker_security: bool,
    /// More annotations of the pod.
    pub extra_annotations: BTreeMap<String, String>,
    /// Labels of every sandbox.
    pub default_labels: BTreeMap<String, String>,
    /// What comes before the labels of users.
    pub label_prefix: String,
    /// The user's id; none where the cluster chooses it (OpenShift).
    pub run_as_user: Option<i64>,
    /// The group's id.
    pub run_as_group: Option<i64>,
    /// The group that owns the volumes.
    pub fs_group: Option<i64>,
    /// Whether the user root is refused.
    pub run_as_non_root: bool,
    /// Whether the image's own files can't be changed. `/tmp` is a volume then.
    pub read_only_root: bool,
    /// `RuntimeDefault`, or the path of a profile on the node.
    pub seccomp_profile: String,
    /// Whether commands have fewer system calls than the container: no io_uring, no vsock, no new namespaces.
    pub command_filter: bool,
    /// No network but what `egress` and `ingress` allow.
    pub block_network: bool,
    /// What may be reached from the sandbox.
    pub egress: Vec<NetworkPolicyEgressRule>,
    /// Addresses that `egress` leaves out unless it names them: those of the cluster's pods, Services and nodes. The
    /// addresses at which clouds serve their machines' credentials are always left out.
    pub cluster_ranges: Vec<String>,
    /// Who may reach the sandbox.
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// Seconds until a pod must be running.
    pub startup_timeout: u64,
    /// Whether to wait for a node rather than to fail: where nodes are added on demand.
    pub wait_for_node: bool,
    /// Seconds that a sandbox may live.
    pub ttl: Option<u64>,
    /// Seconds that it may be idle: a day unless set, for ever if none.
    pub idle_ttl: Option<u64>,
    /// Gives every sandbox a namespace of its own, which goes with it.
    pub namespace_per_sandbox: bool,
    /// Labels of these namespaces, such as those of Pod Security.
    pub namespace_labels: BTreeMap<String, String>,
    /// What all objects in such a namespace may use together, as in a ResourceQuota: `pods`, `limits.memory` and so on.
    pub namespace_quota: BTreeMap<String, String>,
    /// How many pods wait to become sandboxes.
    pub warm_pool_size: u32,
    /// The pool's name: clients that differ in anything that makes a pod need pools of different names.
    pub warm_pool_name: String,
}

/// Without the values of environment variables: people put keys there, and this ends up in logs.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = self.clone();
        shown.env.values_mut().for_each(|value| *value = "…".into());
        let mut fields = serde_json::to_value(&shown).map_err(|_| std::fmt::Error)?;
        hide_env(&mut fields);
        write!(f, "Config {fields}")
    }
}

/// Hides the values of every `env` list, wherever it is: in init containers and overrides too.
fn hide_env(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(variables)) = fields.get_mut("env") {
                let values = variables.iter_mut().filter_map(|variable| variable.get_mut("value"));
                values.for_each(|value| *value = "…".into());
            }
            fields.values_mut().for_each(hide_env);
        }
        Value::Array(items) => items.iter_mut().for_each(hide_env),
        _ => {}
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            image: "python:3.12-slim".into(),
            image_pull_policy: "IfNotPresent".into(),
            image_pull_secrets: Vec::new(),
            image_arch: None,
            setup_script: None,
            workdir: "/workspace".into(),
            command: None,
            env: BTreeMap::new(),
            env_from: BTreeMap::new(),
            cpu_request: "100m".into(),
            cpu_limit: "1000m".into(),
            memory_request: "256Mi".into(),
            memory_limit: "1Gi".into(),
            ephemeral_storage_request: "256Mi".into(),
            ephemeral_storage_limit: "5Gi".into(),
            service_account: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            node_loss_tolerance: 300,
            affinity: None,
            runtime_class: None,
            user_namespace: false,
            volumes: Vec::new(),
            volume_mounts: Vec::new(),
            init_containers: Vec::new(),
            pod_template_overrides: Value::Null,
            allow_weaker_security: false,
            extra_annotations: BTreeMap::new(),
            default_labels: BTreeMap::new(),
            label_prefix: "user.podbay.dev/".into(),
            run_as_user: Some(1000),
            run_as_group: Some(1000),
            fs_group: Some(1000),
            run_as_non_root: true,
            read_only_root: false,
            seccomp_profile: "RuntimeDefault".into(),
            command_filter: true,
            block_network: true,
            egress: Vec::new(),
            cluster_ranges: super::egress::PRIVATE.map(str::to_owned).into(),
            ingress: Vec::new(),
            startup_timeout: 120,
            wait_for_node: false,
            ttl: None,
            idle_ttl: Some(DAY),
            namespace_per_sandbox: false,
            namespace_labels: BTreeMap::new(),
            namespace_quota: BTreeMap::new(),
            warm_pool_size: 0,
            warm_pool_name: "default".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Only the values of `env` were hidden, and not those of init containers and overrides.
    #[test]
    fn no_value_of_an_environment_variable_is_shown() {
        let variables = json!([{"name": "KEY", "value": "secret"}]);
        let config = Config {
            env: [("KEY".into(), "secret".into())].into(),
            init_containers: serde_json::from_value(json!([{"name": "first", "env": variables}])).unwrap(),
            pod_template_overrides: json!({"spec": {"containers": [{"name": "sandbox", "env": variables}]}}),
            ..Config::default()
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("KEY") && !shown.contains("secret"), "{shown}");
    }
}
