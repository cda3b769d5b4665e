//! The configuration of agent-sandbox mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metadata;
use crate::error::{Error, Result};
use crate::names;

/// The seconds of a day: how long a sandbox may be idle by default, as in raw mode.
const DAY: u64 = crate::raw::DAY;

/// The configuration of agent-sandbox mode. Unset fields have the values of [`Config::default`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The SandboxWarmPool to claim from. It wins over `template_name`.
    pub warm_pool_name: Option<String>,
    /// The SandboxTemplate. Sandboxes are claimed from a warm pool with that template.
    pub template_name: Option<String>,
    /// The container to work in: the pod's default container if not set.
    pub container: Option<String>,
    /// The directory that commands start in: `/workspace` where the container has it, else the container's own, if not set.
    pub workdir: Option<String>,
    /// Environment variables of every command. Podbay sets them in the sandbox, so it can still come from a warm pool.
    pub env: BTreeMap<String, String>,
    /// Environment variables of the pod. A claim with these never gets a warm sandbox.
    pub claim_env: BTreeMap<String, String>,
    /// Additional PersistentVolumeClaims. A claim with these never gets a warm sandbox.
    pub volume_claim_templates: Vec<Value>,
    /// Labels of the pod. The controller allows only some domains.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub pod_annotations: BTreeMap<String, String>,
    /// The labels of every sandbox.
    pub default_labels: BTreeMap<String, String>,
    /// The prefix of users' labels; empty for none.
    pub label_prefix: String,
    /// How many seconds a sandbox may live.
    pub ttl: Option<u64>,
    /// How many seconds it may be idle: a day by default, for ever if none.
    pub idle_ttl: Option<u64>,
    /// How many seconds a claim stays after its pod has ended.
    pub ttl_after_finished: Option<u64>,
    /// How many seconds a claim may take to get ready.
    pub startup_timeout: u64,
    /// Whether a suspended sandbox is resumed when somebody asks for it.
    pub resume: bool,
    /// Whether claims that other programs created can be used. They are never renewed, suspended or deleted.
    pub foreign_claims: bool,
    /// Whether a seccomp filter denies commands more system calls than the container: io_uring, vsock, new namespaces.
    pub command_filter: bool,
}

/// Without the values of environment variables: people put keys there, and this ends up in logs.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = self.clone();
        shown.env.values_mut().chain(shown.claim_env.values_mut()).for_each(|value| *value = "…".into());
        write!(f, "Config {}", serde_json::to_value(&shown).map_err(|_| std::fmt::Error)?)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            warm_pool_name: None,
            template_name: None,
            container: None,
            workdir: None,
            env: BTreeMap::new(),
            claim_env: BTreeMap::new(),
            volume_claim_templates: Vec::new(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            default_labels: BTreeMap::new(),
            label_prefix: "user.podbay.dev/".into(),
            ttl: None,
            idle_ttl: Some(DAY),
            ttl_after_finished: None,
            startup_timeout: 180,
            resume: true,
            foreign_claims: false,
            command_filter: true,
        }
    }
}

impl Config {
    /// Checks what can be checked without the cluster.
    pub(super) fn check(&self) -> Result<()> {
        let names =
            [("warm pool", &self.warm_pool_name), ("template", &self.template_name), ("container", &self.container)];
        for (what, name) in names {
            if let Some(name) = name {
                names::check_label(what, name)?;
            }
        }
        if let Some(workdir) = self.workdir.as_deref().filter(|workdir| !workdir.starts_with('/')) {
            return Err(Error::Config(format!("agent_sandbox.workdir is {workdir:?}: use an absolute path")));
        }
        if self.startup_timeout == 0 {
            return Err(Error::Config("agent_sandbox.startup_timeout is 0: give claims some time to get ready".into()));
        }
        if !self.label_prefix.is_empty() {
            names::check_prefix(&self.label_prefix)?;
        }
        for name in self.env.keys().chain(self.claim_env.keys()) {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Error::Config(format!("{name:?} can't be the name of an environment variable")));
            }
        }
        metadata::check_pod_labels(&self.pod_labels)?;
        metadata::check_pod_annotations(&self.pod_annotations)
    }

    /// Whether claims with this configuration never get a warm sandbox.
    pub fn is_always_cold(&self) -> bool {
        !self.claim_env.is_empty() || !self.volume_claim_templates.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_template() -> Config {
        Config { template_name: Some("python".into()), ..Config::default() }
    }

    #[test]
    fn what_cannot_work_is_refused_before_the_cluster_is_asked() {
        // Sandboxes that exist are found without a template.
        assert!(with_template().check().is_ok() && Config::default().check().is_ok());
        let bad = [
            Config { template_name: Some("No_Name".into()), ..Config::default() },
            Config { workdir: Some("relative".into()), ..Config::default() },
            Config { startup_timeout: 0, ..Config::default() },
            Config { label_prefix: "kubernetes.io/".into(), ..Config::default() },
            Config { claim_env: [("A=B".to_owned(), String::new())].into(), ..Config::default() },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }

    #[test]
    fn no_value_of_an_environment_variable_is_shown() {
        let secret = BTreeMap::from([("KEY".to_owned(), "hunter2".to_owned())]);
        let shown = format!("{:?}", Config { env: secret.clone(), claim_env: secret, ..with_template() });
        assert!(shown.contains("KEY") && !shown.contains("hunter2"), "{shown}");
    }
}
