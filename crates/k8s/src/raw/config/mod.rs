//! The configuration of raw mode.

mod check;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Container, EnvVarSource, Toleration, Volume, VolumeMount};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use podbay_proto::session::PORT;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::channel::Connection;
use crate::lifetime::DEFAULT_IDLE_TTL;

/// The configuration of raw mode. Unset fields have the values of [`Config::default`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The image. It needs a shell, head, chmod, mkdir and mv.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// The names of the Secrets for pulling it.
    pub image_pull_secrets: Vec<String>,
    /// The architecture of the nodes to run on: `amd64` or `arm64`.
    pub image_arch: Option<String>,
    /// A shell script that every new sandbox runs once, before anybody can use it.
    pub setup_script: Option<String>,
    /// The directory that commands start in: an empty volume.
    pub workdir: String,
    /// The container's command. By default, and in place of one that only waits such as `sleep infinity`, a shell that waits.
    /// It should end on TERM with code 0: that is how podbayd ends a sandbox whose time is up.
    pub command: Option<Vec<String>>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are in a Secret or ConfigMap of the namespace. Podbay never sees the values.
    pub env_from: BTreeMap<String, EnvVarSource>,
    /// The CPU request.
    pub cpu_request: String,
    /// The CPU limit.
    pub cpu_limit: String,
    /// The memory request.
    pub memory_request: String,
    /// The memory limit.
    pub memory_limit: String,
    /// The ephemeral storage request. Without it the cluster would reserve the whole limit.
    pub ephemeral_storage_request: String,
    /// The ephemeral storage limit, volumes included.
    pub ephemeral_storage_limit: String,
    /// The pod's service account. Its token isn't mounted.
    pub service_account: Option<String>,
    /// The labels of the nodes to run on.
    pub node_selector: BTreeMap<String, String>,
    /// The pod's tolerations.
    pub tolerations: Vec<Toleration>,
    /// How many seconds a pod stays when the cluster has lost contact with its node. Then it is deleted, with everything in
    /// the sandbox.
    pub node_loss_tolerance: u64,
    /// The pod's affinity.
    pub affinity: Option<Affinity>,
    /// The runtime class: gVisor, Kata and the like.
    pub runtime_class: Option<String>,
    /// Gives the pod a user namespace of its own (`hostUsers: false`): its root is an unprivileged user on the node.
    pub user_namespace: bool,
    /// Additional volumes.
    pub volumes: Vec<Volume>,
    /// Where they are mounted in the container.
    pub volume_mounts: Vec<VolumeMount>,
    /// Init containers.
    pub init_containers: Vec<Container>,
    /// Merged into the pod: objects key by key, lists of named items by name, other lists as a whole.
    pub pod_template_overrides: Value,
    /// Lets `pod_template_overrides`, `volumes` and `init_containers` weaken the pod's protection.
    pub allow_weaker_security: bool,
    /// Additional annotations of the pod.
    pub extra_annotations: BTreeMap<String, String>,
    /// The labels of every sandbox.
    pub default_labels: BTreeMap<String, String>,
    /// The prefix of users' labels.
    pub label_prefix: String,
    /// The user id; none where the cluster assigns it (OpenShift).
    pub run_as_user: Option<i64>,
    /// The group id.
    pub run_as_group: Option<i64>,
    /// The group that owns the volumes.
    pub fs_group: Option<i64>,
    /// Whether the cluster refuses to run the container as root.
    pub run_as_non_root: bool,
    /// Whether the root file system is read-only. `/tmp` is a volume then.
    pub read_only_root: bool,
    /// `RuntimeDefault`, or the path of a profile on the node.
    pub seccomp_profile: String,
    /// Whether a seccomp filter denies commands more system calls than the container: io_uring, vsock, new namespaces.
    pub command_filter: bool,
    /// How podbayd is reached.
    pub connection: Connection,
    /// The file with the private key that signs tokens for podbayd.
    pub private_key_file: Option<String>,
    /// The port that podbayd listens on.
    pub port: u16,
    /// Whether sandboxes have no network except what `egress` and `ingress` allow.
    pub block_network: bool,
    /// What a sandbox may reach.
    pub egress: Vec<NetworkPolicyEgressRule>,
    /// Addresses that `egress` excludes unless it names them: those of the cluster's pods, Services and nodes. The addresses
    /// where clouds serve their machines' credentials are always excluded.
    pub cluster_ranges: Vec<String>,
    /// Who may reach a sandbox.
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// How many seconds a pod has to start.
    pub startup_timeout: u64,
    /// Whether to wait for a node rather than fail: for clusters that add nodes on demand.
    pub wait_for_node: bool,
    /// How many seconds a sandbox may live.
    pub ttl: Option<u64>,
    /// How many seconds it may be idle: a day by default, forever if none.
    pub idle_ttl: Option<u64>,
    /// Gives every sandbox a namespace of its own, which is deleted with it.
    pub namespace_per_sandbox: bool,
    /// The labels of these namespaces, such as those of Pod Security.
    pub namespace_labels: BTreeMap<String, String>,
    /// The ResourceQuota of these namespaces: `pods`, `limits.memory` and so on.
    pub namespace_quota: BTreeMap<String, String>,
    /// How many warm pods the pool keeps.
    pub warm_pool_size: u32,
    /// The pool's name. Clients whose pods differ in anything need pools of different names.
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
            connection: Connection::Auto,
            private_key_file: None,
            port: PORT,
            block_network: true,
            egress: Vec::new(),
            cluster_ranges: super::egress::PRIVATE.map(str::to_owned).into(),
            ingress: Vec::new(),
            startup_timeout: 120,
            wait_for_node: false,
            ttl: None,
            idle_ttl: Some(DEFAULT_IDLE_TTL),
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
        let variables = json!([{"name": "KEY", "value": "hunter2"}]);
        let config = Config {
            env: [("KEY".into(), "hunter2".into())].into(),
            init_containers: serde_json::from_value(json!([{"name": "first", "env": variables}])).unwrap(),
            pod_template_overrides: json!({"spec": {"containers": [{"name": "sandbox", "env": variables}]}}),
            ..Config::default()
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("KEY") && !shown.contains("hunter2"), "{shown}");
    }
}
