//! How sandboxes in raw mode are made.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Container, Toleration, Volume, VolumeMount};
use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// How sandboxes in raw mode are made. What isn't set has the value of [`Config::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The image. It needs a shell, head, chmod, mkdir and mv.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// Names of secrets for pulling it.
    pub image_pull_secrets: Vec<String>,
    /// Where commands start: an empty volume.
    pub workdir: String,
    /// What the container runs; a shell that waits when there is none. It should end on TERM.
    pub command: Option<Vec<String>>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Processor time that is set aside.
    pub cpu_request: String,
    /// The most processor time.
    pub cpu_limit: String,
    /// Memory that is set aside.
    pub memory_request: String,
    /// The most memory.
    pub memory_limit: String,
    /// The most disk, volumes included.
    pub ephemeral_storage_limit: String,
    /// The pod's service account. Its token isn't mounted.
    pub service_account: Option<String>,
    /// Labels of the nodes to run on.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes to put up with.
    pub tolerations: Vec<Toleration>,
    /// Which nodes to prefer or shun.
    pub affinity: Option<Affinity>,
    /// gVisor, Kata and the like.
    pub runtime_class: Option<String>,
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
    /// No network but what `egress` and `ingress` allow.
    pub block_network: bool,
    /// What may be reached from the sandbox.
    pub egress: Vec<NetworkPolicyEgressRule>,
    /// Who may reach the sandbox.
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// Seconds until a pod must be running.
    pub startup_timeout: u64,
    /// Whether to wait for a node rather than to fail: where nodes are added on demand.
    pub wait_for_node: bool,
    /// Seconds that a sandbox may live.
    pub ttl: Option<u64>,
    /// Seconds that it may be idle.
    pub idle_ttl: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            image: "python:3.12-slim".into(),
            image_pull_policy: "IfNotPresent".into(),
            image_pull_secrets: Vec::new(),
            workdir: "/workspace".into(),
            command: None,
            env: BTreeMap::new(),
            cpu_request: "100m".into(),
            cpu_limit: "1000m".into(),
            memory_request: "256Mi".into(),
            memory_limit: "1Gi".into(),
            ephemeral_storage_limit: "5Gi".into(),
            service_account: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: None,
            runtime_class: None,
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
            block_network: true,
            egress: Vec::new(),
            ingress: Vec::new(),
            startup_timeout: 120,
            wait_for_node: false,
            ttl: None,
            idle_ttl: None,
        }
    }
}

impl Config {
    /// Refuses what can't work, before anything is made.
    ///
    /// # Errors
    /// The first thing that can't.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::Config(message));
        if self.image.trim().is_empty() {
            return refuse("image is empty: name one, such as python:3.12-slim".into());
        }
        if !matches!(self.image_pull_policy.as_str(), "Always" | "IfNotPresent" | "Never") {
            return refuse(format!(
                "image_pull_policy is {:?}: use Always, IfNotPresent or Never",
                self.image_pull_policy
            ));
        }
        if !self.workdir.starts_with('/') || self.workdir.len() < 2 || self.workdir.split('/').any(|part| part == "..")
        {
            return refuse(format!("workdir is {:?}: use an absolute path other than /", self.workdir));
        }
        if self.command.as_ref().is_some_and(Vec::is_empty) {
            return refuse("command is an empty list: leave it out, or name a program".into());
        }
        if self.run_as_non_root && self.run_as_user == Some(0) {
            return refuse("run_as_user is 0 and run_as_non_root is set: choose one".into());
        }
        let rules = self.egress.len() + self.ingress.len();
        if rules > 0 && !self.block_network {
            return refuse("egress and ingress rules need block_network: without it everything is allowed".into());
        }
        if !matches!(self.pod_template_overrides, Value::Null | Value::Object(_)) {
            return refuse("pod_template_overrides must be an object, shaped like a pod".into());
        }
        if self.startup_timeout == 0 || self.ttl == Some(0) || self.idle_ttl == Some(0) {
            return refuse("startup_timeout, ttl and idle_ttl are seconds, and at least 1".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work_and_nonsense_is_refused() {
        Config::default().check().unwrap();
        let bad = |change: fn(&mut Config), word: &str| {
            let mut config = Config::default();
            change(&mut config);
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        };
        bad(|config| config.image_pull_policy = "never".into(), "IfNotPresent");
        bad(|config| config.workdir = "/a/../b".into(), "workdir");
        bad(|config| config.run_as_user = Some(0), "run_as_non_root");
        bad(|config| config.ttl = Some(0), "at least 1");
        bad(
            |config| {
                config.block_network = false;
                config.egress.push(NetworkPolicyEgressRule::default());
            },
            "block_network",
        );
        let unknown = serde_json::from_str::<Config>(r#"{"imgae": "x"}"#).unwrap_err().to_string();
        assert!(unknown.contains("imgae") && unknown.contains("`image`"), "{unknown}");
    }
}
