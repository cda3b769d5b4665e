//! Refuses configurations that can't work, before anything is made.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Config;
use crate::channel::AddressConfig;
use crate::error::{Error, Result};
use crate::keys::PublicKey;
use crate::names;
use crate::raw::egress;
use crate::raw::manifest::{CONTAINER, OWN_VOLUMES, VOLUMES};

/// The label of a node that tells its architecture.
const ARCH: &str = "kubernetes.io/arch";

/// The most pods that wait: each takes its share of a node.
const LARGEST_POOL: u32 = 1_000;

/// A year. Above it the sums of times and the API server's own limits end.
const LONGEST: u64 = 366 * 24 * 3600;

impl Config {
    /// Refuses what can't work, before anything is made.
    ///
    /// # Errors
    /// The first thing that can't.
    pub fn check(&self) -> Result<()> {
        self.check_container()?;
        self.check_times()?;
        self.check_labels()?;
        self.check_namespaces()?;
        self.addresses().check()?;
        self.check_pool()
    }

    /// The public keys of the configured private keys: pods let in whoever has one of the private ones.
    ///
    /// # Errors
    /// When `private_key_file` can't be read.
    pub fn public_keys(&self) -> Result<Vec<PublicKey>> {
        self.addresses().public_keys()
    }

    /// How pods' addresses are used.
    pub(crate) fn addresses(&self) -> AddressConfig<'_> {
        let private_key_file = self.private_key_file.as_deref();
        AddressConfig { connection: self.connection, private_key_file, port: self.port, router: None }
    }

    fn check_container(&self) -> Result<()> {
        if self.image.trim().is_empty() {
            return refuse("image is empty: name one, such as python:3.12-slim");
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
        let workdir = self.workdir.trim_end_matches('/');
        if workdir == "/tmp" && self.read_only_root || VOLUMES.iter().any(|(_, path)| *path == workdir) {
            return refuse(format!("workdir is {workdir}, where Podbay mounts something else: use another"));
        }
        if self.command.as_ref().is_some_and(Vec::is_empty) {
            return refuse("command is an empty list: omit it, or name a program");
        }
        if self.setup_script.as_ref().is_some_and(|script| script.trim().is_empty()) {
            return refuse("setup_script is empty: omit it, or set a script");
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return refuse(format!("env has the name {name:?}, which no environment variable can have"));
        }
        self.check_env_from()?;
        if self.run_as_non_root && self.run_as_user == Some(0) {
            return refuse("run_as_user is 0 and run_as_non_root is set: choose one");
        }
        if self.egress.len() + self.ingress.len() > 0 && !self.block_network {
            return refuse("egress and ingress rules need block_network: without it everything is allowed");
        }
        egress::rules(self)?;
        if !matches!(self.pod_template_overrides, Value::Null | Value::Object(_)) {
            return refuse("pod_template_overrides must be an object with the fields of a pod");
        }
        if self.init_containers.iter().any(|container| container.name == CONTAINER) {
            return refuse(format!("an init container is named {CONTAINER:?}, like the sandbox's own: rename it"));
        }
        self.check_volumes()?;
        self.check_arch()
    }

    fn check_env_from(&self) -> Result<()> {
        for (name, source) in &self.env_from {
            if name.is_empty() || name.contains(['=', '\0']) {
                return refuse(format!("env_from has the name {name:?}, which no environment variable can have"));
            }
            if self.env.contains_key(name) {
                return refuse(format!("{name} is in env and in env_from: choose one"));
            }
            let named = usize::from(source.secret_key_ref.is_some()) + usize::from(source.config_map_key_ref.is_some());
            let other =
                source.field_ref.is_some() || source.resource_field_ref.is_some() || source.file_key_ref.is_some();
            if named != 1 || other {
                return refuse(format!(
                    "env_from has {name} from no Secret or ConfigMap: use {{ secretKeyRef = {{ name = \"…\", key = \"…\" }} }} \
                     or configMapKeyRef"
                ));
            }
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<()> {
        let mut names: BTreeSet<&str> = OWN_VOLUMES.into();
        for volume in &self.volumes {
            if !names.insert(&volume.name) {
                return refuse(format!("two volumes are called {:?}: rename the one in volumes", volume.name));
            }
        }
        match self.volume_mounts.iter().find(|mount| !names.contains(mount.name.as_str())) {
            Some(mount) => {
                refuse(format!("volume_mounts names the volume {:?}, which isn't in volumes: add it there", mount.name))
            }
            None => Ok(()),
        }
    }

    fn check_arch(&self) -> Result<()> {
        let Some(arch) = self.arch()? else { return Ok(()) };
        if podbay_embed::daemon(rust_arch(arch)).is_none() {
            return Err(Error::Architecture { arch: arch.into() });
        }
        match self.node_selector.get(ARCH) {
            Some(other) if other != arch => {
                refuse(format!("image_arch is {arch} and node_selector says {ARCH}={other}: choose one"))
            }
            _ => Ok(()),
        }
    }

    /// The architecture as nodes' labels have it.
    fn arch(&self) -> Result<Option<&'static str>> {
        match self.image_arch.as_deref() {
            None => Ok(None),
            Some("amd64" | "x86_64") => Ok(Some("amd64")),
            Some("arm64" | "aarch64") => Ok(Some("arm64")),
            Some(other) => refuse(format!("image_arch is {other:?}: use amd64 or arm64")),
        }
    }

    /// The labels of the nodes to run on, including the architecture's.
    pub(crate) fn nodes(&self) -> Result<std::collections::BTreeMap<String, String>> {
        let mut nodes = self.node_selector.clone();
        if let Some(arch) = self.arch()? {
            nodes.insert(ARCH.into(), arch.into());
        }
        Ok(nodes)
    }

    /// The strictest Pod Security level that the pods meet, as far as the settings show.
    pub(crate) fn pod_security(&self) -> Option<&'static str> {
        match (self.allow_weaker_security, self.run_as_non_root) {
            (true, _) => None,
            (false, true) => Some("restricted"),
            (false, false) => Some("baseline"),
        }
    }

    fn check_times(&self) -> Result<()> {
        let times = [("startup_timeout", Some(self.startup_timeout)), ("ttl", self.ttl), ("idle_ttl", self.idle_ttl)];
        match times.iter().find(|(_, time)| time.is_some_and(|time| !(1..=LONGEST).contains(&time))) {
            Some((name, _)) => refuse(format!("{name} must be between 1 and {LONGEST} seconds (a year)")),
            None if self.node_loss_tolerance > LONGEST => {
                refuse(format!("node_loss_tolerance must be at most {LONGEST} seconds (a year)"))
            }
            None => Ok(()),
        }
    }

    fn check_labels(&self) -> Result<()> {
        names::check_prefix(&self.label_prefix)?;
        for key in self.default_labels.keys() {
            names::prefixed(&self.label_prefix, key)?;
        }
        Ok(())
    }

    fn check_namespaces(&self) -> Result<()> {
        let extras = !self.namespace_labels.is_empty() || !self.namespace_quota.is_empty();
        if !self.namespace_per_sandbox {
            return match extras {
                true => refuse("namespace_labels and namespace_quota need namespace_per_sandbox"),
                false => Ok(()),
            };
        }
        if let Some(key) = self.namespace_labels.keys().find(|key| names::is_reserved(key)) {
            return refuse(format!("namespace_labels has {key}, which is Podbay's own"));
        }
        if self.warm_pool_size > 0 {
            return refuse(
                "warm_pool_size and namespace_per_sandbox exclude each other: a pod can't move to another namespace",
            );
        }
        // These belong to a namespace, and a new one has none of them.
        let elsewhere = [
            ("image_pull_secrets", !self.image_pull_secrets.is_empty()),
            ("env_from", !self.env_from.is_empty()),
            ("service_account", self.service_account.as_ref().is_some_and(|account| account != "default")),
            (
                "a volume of a Secret, ConfigMap or PersistentVolumeClaim",
                self.volumes.iter().any(|volume| {
                    volume.secret.is_some() || volume.config_map.is_some() || volume.persistent_volume_claim.is_some()
                }),
            ),
        ];
        match elsewhere.iter().find(|(_, used)| *used) {
            Some((what, _)) => refuse(format!(
                "{what} can't be used with namespace_per_sandbox: a sandbox's own namespace is empty at first"
            )),
            None => Ok(()),
        }
    }

    fn check_pool(&self) -> Result<()> {
        if self.warm_pool_size > LARGEST_POOL {
            return refuse(format!("warm_pool_size is {}: at most {LARGEST_POOL}", self.warm_pool_size));
        }
        if !names::is_dns_label(&self.warm_pool_name) || self.warm_pool_name.len() > 40 {
            return refuse(format!(
                "warm_pool_name is {:?}: use 1 to 40 lower-case letters, digits or '-', with a letter or digit at \
                 both ends",
                self.warm_pool_name
            ));
        }
        Ok(())
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Config(message.into()))
}

/// Rust's name of an architecture.
fn rust_arch(arch: &str) -> &str {
    match arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
    use serde_json::json;

    fn refused(change: fn(&mut Config), word: &str) {
        let mut config = Config::default();
        change(&mut config);
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }

    #[test]
    fn the_defaults_work_and_nonsense_is_refused() {
        Config::default().check().unwrap();
        refused(|config| config.image_pull_policy = "never".into(), "IfNotPresent");
        refused(|config| config.workdir = "/a/../b".into(), "workdir");
        refused(|config| config.workdir = "/blobs/".into(), "workdir");
        refused(|config| config.run_as_user = Some(0), "run_as_non_root");
        refused(|config| config.ttl = Some(0), "ttl must be between 1");
        refused(|config| config.idle_ttl = Some(u64::MAX), "a year");
        refused(|config| config.setup_script = Some(" \n".into()), "setup_script");
        refused(
            |config| {
                config.volume_mounts = vec![serde_json::from_value(json!({"name": "x", "mountPath": "/x"})).unwrap()]
            },
            "isn't in volumes",
        );
        let secret = |config: &mut Config, source| {
            config.env_from = [("KEY".to_owned(), serde_json::from_value(source).unwrap())].into();
        };
        let fine = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        let mut config = Config::default();
        secret(&mut config, fine.clone());
        config.check().unwrap();
        config.env.insert("KEY".into(), "x".into());
        assert!(config.check().unwrap_err().to_string().contains("choose one"));
        for source in [json!({}), json!({"fieldRef": {"fieldPath": "status.podIP"}})] {
            let mut config = Config::default();
            secret(&mut config, source);
            assert!(config.check().unwrap_err().to_string().contains("secretKeyRef"));
        }
        refused(|config| config.cluster_ranges = vec!["10.0.0.1".into()], "cluster_ranges");
        refused(
            |config| {
                config.block_network = false;
                config.egress.push(NetworkPolicyEgressRule::default());
            },
            "block_network",
        );
        let unknown = serde_json::from_str::<Config>(r#"{"imgae": "x"}"#).unwrap_err().to_string();
        assert!(unknown.contains("imgae") && unknown.contains("`image`"), "{unknown}");
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        refused(|config| config.namespace_labels = [("a".into(), "b".into())].into(), "namespace_per_sandbox");
        refused(|config| config.namespace_quota = [("pods".into(), "1".into())].into(), "namespace_per_sandbox");
        fn own(config: &mut Config) {
            config.namespace_per_sandbox = true;
        }
        refused(
            |config| {
                own(config);
                config.warm_pool_size = 1;
            },
            "exclude each other",
        );
        refused(
            |config| {
                own(config);
                config.image_pull_secrets = vec!["s".into()];
            },
            "image_pull_secrets",
        );
        refused(
            |config| {
                own(config);
                config.namespace_labels = [("podbay.dev/home".into(), "x".into())].into();
            },
            "Podbay's own",
        );
        refused(|config| config.warm_pool_size = 5_000, "at most");
        refused(|config| config.warm_pool_name = "A b".into(), "warm_pool_name");
        refused(|config| config.image_arch = Some("mips".into()), "amd64 or arm64");
        refused(
            |config| {
                config.image_arch = Some(if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }.into());
                config.node_selector = [(ARCH.into(), "riscv64".into())].into();
            },
            "choose one",
        );
    }

    /// A key in `env` was in whatever printed the configuration.
    #[test]
    fn values_of_environment_variables_are_not_printed() {
        let config = Config { env: [("KEY".into(), "s3cr3t".into())].into(), ..Config::default() };
        let shown = format!("{config:?} {config:#?}");
        assert!(shown.contains("KEY") && !shown.contains("s3cr3t"), "{shown}");
    }

    #[test]
    fn an_architecture_without_podbayd_is_refused() {
        for (name, arch) in [("amd64", "x86_64"), ("arm64", "aarch64")] {
            let checked = Config { image_arch: Some(name.into()), ..Config::default() }.check();
            assert_eq!(checked.is_ok(), podbay_embed::daemon(arch).is_some(), "{name}");
        }
    }

    #[test]
    fn the_label_prefix_is_a_domain_of_the_users() {
        for good in ["acme.example/", "a/", "user.podbay.dev/"] {
            Config { label_prefix: good.into(), ..Config::default() }.check().unwrap();
        }
        for bad in ["", "/", "acme", "Acme/", "a/b/", "-a/", "podbay.dev/", "kubernetes.io/", "x.k8s.io/"] {
            let error = Config { label_prefix: bad.into(), ..Config::default() }.check().unwrap_err().to_string();
            assert!(error.contains("label_prefix"), "{bad}: {error}");
        }
    }
}
