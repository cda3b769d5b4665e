//! From settings to providers.

use std::sync::Arc;

use podbay_client::provider::Provider;
use podbay_client::quantity::{format_size, format_time, parse_quantity};
use podbay_k8s::doctor::{Doctor, Trial};
use podbay_k8s::{Access, Cluster, agent_sandbox, raw};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::setting::SETTINGS;
use super::{Config, ConfigError, bad, lookup};

/// Settings of all modes, and the fields of the configuration of a mode on a cluster that they fill.
pub(super) const SHARED_WITH_CLUSTER: [(&str, &str); 8] = [
    ("env", "env"),
    ("labels", "default_labels"),
    ("ttl", "ttl"),
    ("idle_ttl", "idle_ttl"),
    ("cluster.command_filter", "command_filter"),
    ("cluster.connection", "connection"),
    ("cluster.private_key_file", "private_key_file"),
    ("cluster.port", "port"),
];

/// The same for local mode, apart from times, which it counts in milliseconds.
#[cfg(target_os = "linux")]
const SHARED_WITH_LOCAL: [(&str, &str); 2] = [("env", "env"), ("labels", "labels")];

/// A pod's requests with their limits.
const REQUESTS: [(&str, &str); 3] = [
    ("raw.cpu_request", "raw.cpu_limit"),
    ("raw.memory_request", "raw.memory_limit"),
    ("raw.ephemeral_storage_request", "raw.ephemeral_storage_limit"),
];

impl Config {
    /// The provider that `mode` names, with these settings.
    ///
    /// # Errors
    /// When a setting is invalid, or something that the provider needs is missing.
    pub(crate) async fn provider(&self) -> podbay_client::Result<Arc<dyn Provider>> {
        (self.mode_row().provider)(self).await
    }

    /// The provider of sandboxes on this machine, which needs Linux.
    #[cfg(target_os = "linux")]
    pub(super) fn on_this_machine(&self) -> podbay_client::Result<Arc<dyn Provider>> {
        Ok(Arc::new(self.local_provider()?))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn on_this_machine(&self) -> podbay_client::Result<Arc<dyn Provider>> {
        let mode = self.mode();
        let message = format!("mode {mode} needs Linux; use mode raw, which runs sandboxes on a cluster");
        Err(podbay_client::Error::Provider(message.into()))
    }

    /// The provider of plain pods, with these settings. Nothing is sent to the cluster yet.
    ///
    /// # Errors
    /// When a setting is invalid, or there are no credentials for a cluster.
    pub(super) async fn raw_provider(&self) -> podbay_client::Result<raw::Raw> {
        let config = self.raw().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        Ok(raw::Raw::new(self.cluster().await?, config)?)
    }

    /// The provider of claims, with these settings. Nothing is sent to the cluster yet.
    ///
    /// # Errors
    /// When a setting is invalid, or there are no credentials for a cluster.
    pub(super) async fn agent_sandbox_provider(&self) -> podbay_client::Result<agent_sandbox::AgentSandbox> {
        let (cluster, config) = self.agent_sandbox_cluster().await?;
        Ok(agent_sandbox::AgentSandbox::new(&cluster, config)?)
    }

    pub(super) async fn raw_doctor(&self) -> podbay_client::Result<Doctor> {
        let config = self.raw().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        Ok(Doctor::raw(self.cluster().await?, config)?)
    }

    pub(super) async fn agent_sandbox_doctor(&self, trial: Trial) -> podbay_client::Result<Doctor> {
        let (cluster, config) = self.agent_sandbox_cluster().await?;
        Ok(Doctor::agent_sandbox_with(cluster, config, trial)?)
    }

    /// The configuration of agent-sandbox mode, and its cluster. Where the router's URL is all that there is, or all that is to be
    /// used, it is a cluster whose API can't be asked.
    ///
    /// # Errors
    /// When a setting is invalid, or there are no credentials for a cluster and no router's URL.
    pub async fn agent_sandbox_cluster(&self) -> podbay_client::Result<(Cluster, agent_sandbox::Config)> {
        let config = self.agent_sandbox().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        let access = self.access();
        let router_only = config.router_only || config.can_do_without_api() && access.is_absent();
        match router_only {
            true => {
                let namespace = access.namespace.unwrap_or_else(|| "default".to_owned());
                Ok((Cluster::without_api(namespace), agent_sandbox::Config { router_only, ..config }))
            }
            false => Ok((Cluster::connect(&access).await?, config)),
        }
    }

    /// The configuration of agent-sandbox mode.
    ///
    /// # Errors
    /// When a setting doesn't have the shape that Kubernetes wants.
    pub fn agent_sandbox(&self) -> Result<agent_sandbox::Config, ConfigError> {
        self.check_project_labels()?;
        self.filled("agent_sandbox", &SHARED_WITH_CLUSTER, |_| {})
    }

    /// The cluster, and the namespace in it.
    ///
    /// # Errors
    /// When settings contradict each other, or there are no credentials.
    pub async fn cluster(&self) -> podbay_client::Result<Cluster> {
        Ok(Cluster::connect(&self.access()).await?)
    }

    /// Which API server to talk to, and as whom. An empty text is as good as none: it lifts what a weaker source says.
    pub(super) fn access(&self) -> Access {
        let text = |key: &str| self.text(key).filter(|text| !text.is_empty()).map(str::to_owned);
        Access {
            kubeconfig: text("cluster.kubeconfig").map(Into::into),
            context: text("cluster.context"),
            namespace: text("cluster.namespace"),
            api_url: text("cluster.api_url"),
            token: text("cluster.token"),
            token_file: text("cluster.token_file").map(Into::into),
            ca_file: text("cluster.ca_file").map(Into::into),
        }
    }

    /// The configuration of raw mode.
    ///
    /// # Errors
    /// When a setting doesn't have the shape that Kubernetes wants.
    pub fn raw(&self) -> Result<raw::Config, ConfigError> {
        self.check_project_labels()?;
        self.filled("raw", &SHARED_WITH_CLUSTER, |config| {
            // A pod can't request more than its limit, and the default would where only the limit was lowered.
            for (request, limit) in REQUESTS {
                let (request_field, limit_field) =
                    (request.trim_start_matches("raw."), limit.trim_start_matches("raw."));
                let amount = |field: &str| config[field].as_str().and_then(|text| parse_quantity(text).ok());
                if !self.is_set(request) && amount(request_field) > amount(limit_field) {
                    config[request_field] = config[limit_field].clone();
                }
            }
        })
    }

    /// A provider's configuration with what is set: each setting of the section in the field of its name, at the top or one
    /// level below, and those that are shared in the fields that are named here. `adjust` sees it at last.
    ///
    /// # Errors
    /// When a setting doesn't have the shape of its field.
    pub(super) fn filled<T: Default + Serialize + DeserializeOwned>(
        &self,
        section: &str,
        shared: &[(&str, &str)],
        adjust: impl FnOnce(&mut Json),
    ) -> Result<T, ConfigError> {
        let mut config = serde_json::to_value(T::default()).unwrap_or_default();
        self.fill::<T>(&mut config, section, shared)?;
        adjust(&mut config);
        serde_json::from_value(config).map_err(|error| bad("settings", section)(error.to_string()))
    }

    fn fill<T: DeserializeOwned>(
        &self,
        config: &mut Json,
        section: &str,
        shared: &[(&str, &str)],
    ) -> Result<(), ConfigError> {
        let prefix = format!("{section}.");
        let own = SETTINGS.iter().filter_map(|setting| Some((setting, setting.key.strip_prefix(&prefix)?)));
        let shared = shared.iter().filter_map(|(key, field)| Some((lookup::find(key)?, *field)));
        for (setting, field) in own.chain(shared) {
            let (Some(value), Some(given)) = (self.effective(setting), self.held(setting.key)) else { continue };
            let Some(place) = place(config, field) else {
                return Err(bad(&given.from, setting.key)("this build has no such option".into()));
            };
            *place = value.to_json(setting.kind);
            // After each one, so that the one that doesn't fit can be named.
            serde_json::from_value::<T>(config.clone()).map_err(|error| {
                let api = if section == "local" { "local mode" } else { "the Kubernetes API" };
                bad(&given.from, setting.key)(format!("this isn't what {api} expects: {error}"))
            })?;
        }
        Ok(())
    }

    /// The local provider, with these settings.
    ///
    /// # Errors
    /// When its home directory can't be used, or a setting is invalid.
    #[cfg(target_os = "linux")]
    pub(super) fn local_provider(&self) -> podbay_client::Result<podbay_local::Local> {
        let options = self.local().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        let home = match self.text("home") {
            Some(path) => podbay_local::Home::at(path)?,
            None => podbay_local::Home::of_user()?,
        };
        Ok(podbay_local::Local::at(home).with(options))
    }

    /// The options of local mode.
    ///
    /// # Errors
    /// When a setting is invalid.
    #[cfg(target_os = "linux")]
    pub fn local(&self) -> Result<podbay_local::Options, ConfigError> {
        let options: podbay_local::Options = self.filled("local", &SHARED_WITH_LOCAL, |_| {})?;
        Ok(podbay_local::Options { ttl: self.ttl(), idle_ttl: self.idle_ttl(), ..options })
    }

    /// The limits that apply because nothing sets them: the key, and the value as text.
    pub fn default_limits(&self) -> Vec<(&'static str, String)> {
        let mode = self.mode_row();
        let idle_ttl = (mode.idle_ttl)().filter(|_| !self.is_set("idle_ttl")).map(std::time::Duration::from_secs);
        let own = if mode.on_cluster { Vec::new() } else { self.default_local_limits() };
        idle_ttl.map(|time| ("idle_ttl", format_time(time))).into_iter().chain(own).collect()
    }

    #[cfg(target_os = "linux")]
    fn default_local_limits(&self) -> Vec<(&'static str, String)> {
        let default = podbay_local::default_limits();
        let memory = default.memory.filter(|_| podbay_local::can_limit_memory());
        let shown = |limit: Option<String>| limit.unwrap_or_else(|| "unlimited".to_owned());
        let count = |limit: Option<u64>| shown(limit.map(|limit| limit.to_string()));
        let limits = [
            ("local.memory", shown(memory.map(format_size))),
            ("local.cpu", shown(None)),
            ("local.processes", count(default.processes)),
            ("local.descriptors", count(default.descriptors)),
        ];
        limits.into_iter().filter(|(key, _)| !self.is_set(key)).collect()
    }

    /// There is no local mode here.
    #[cfg(not(target_os = "linux"))]
    fn default_local_limits(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The field of a configuration, at the top or one level below.
fn place<'a>(config: &'a mut Json, field: &str) -> Option<&'a mut Json> {
    let below = config.as_object()?.iter().find_map(|(group, value)| value.get(field).map(|_| group.clone()));
    match config.get(field).is_some() {
        true => config.get_mut(field),
        false => config.get_mut(below?)?.get_mut(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_mode_on_a_cluster_is_a_setting() {
        let configs = [
            ("raw.", serde_json::to_value(raw::Config::default()).unwrap()),
            ("agent_sandbox.", serde_json::to_value(agent_sandbox::Config::default()).unwrap()),
        ];
        for (section, config) in configs {
            let mut fields: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
            fields.retain(|field| !SHARED_WITH_CLUSTER.iter().any(|(_, shared)| shared == field));
            let mut settings: Vec<_> =
                SETTINGS.iter().filter_map(|setting| setting.key.strip_prefix(section)).collect();
            fields.sort_unstable();
            settings.sort_unstable();
            assert_eq!(settings, fields, "{section}");
        }
    }

    #[test]
    fn settings_become_the_options_of_raw_mode() {
        let mut config = Config::default();
        let file = r#"
            ttl = "1h"
            env = { A = "1" }
            labels = { team = "red" }
            [raw]
            image = "busybox"
            startup_timeout = "1500ms"
            run_as_user = "none"
            run_as_group = 7
            block_network = true
            command = ["sleep", "9"]
            node_selector = { disk = "ssd" }
            tolerations = [{ key = "gpu", operator = "Exists" }]
            [raw.pod_template_overrides.spec]
            hostname = "box"
        "#;
        config.read_toml(file, "podbay.toml").unwrap();
        config.read_environment([("PODBAY_RAW_EGRESS".into(), r#"[{"ports": [{"port": 53}]}]"#.into())]).unwrap();
        let raw = config.raw().unwrap();
        assert_eq!((raw.image.as_str(), raw.ttl, raw.startup_timeout), ("busybox", Some(3600), 2));
        assert_eq!((raw.run_as_user, raw.run_as_group, raw.fs_group), (None, Some(7), Some(1000)));
        assert_eq!((raw.env["A"].as_str(), raw.default_labels["team"].as_str()), ("1", "red"));
        assert_eq!((raw.node_selector["disk"].as_str(), raw.command.unwrap().len()), ("ssd", 2));
        assert_eq!((raw.tolerations[0].key.as_deref(), raw.egress.len()), (Some("gpu"), 1));
        assert_eq!(raw.pod_template_overrides["spec"]["hostname"], "box");
    }

    /// With the limit `1e8`, the cluster refused the request of 256Mi.
    #[test]
    fn a_request_is_lowered_to_its_limit_however_that_is_written() {
        let requests = |key: &str, text: &str| {
            let mut config = Config::default();
            config.set(key, text).unwrap();
            let raw = config.raw().unwrap();
            [raw.cpu_request, raw.memory_request, raw.ephemeral_storage_request]
        };
        for storage in ["1e8", "100M", "1Ki"] {
            assert_eq!(requests("raw.ephemeral_storage_limit", storage), ["100m", "256Mi", storage]);
        }
        assert_eq!(requests("raw.memory_limit", "1E8"), ["100m", "1E8", "256Mi"]);
        assert_eq!(requests("raw.cpu_limit", "50m"), ["50m", "256Mi", "256Mi"]);
        assert_eq!(requests("raw.ephemeral_storage_limit", "1G"), ["100m", "256Mi", "256Mi"]);
    }

    /// `podbay config` didn't show that an unused sandbox on a cluster ends after a day.
    #[test]
    fn sandboxes_on_a_cluster_end_after_a_day_without_use_unless_that_is_lifted() {
        let config = |idle_ttl: Option<&str>| {
            let mut config = Config::default();
            config.set("mode", "raw").unwrap();
            idle_ttl.into_iter().for_each(|text| config.set("idle_ttl", text).unwrap());
            config
        };
        assert_eq!(config(None).default_limits(), [("idle_ttl", "1d".to_owned())]);
        for (set, seconds, shown) in [("none", None, "none"), ("2h", Some(7200), "2h")] {
            let config = config(Some(set));
            assert_eq!((config.raw().unwrap().idle_ttl, config.default_limits()), (seconds, vec![]));
            let entry = config.entries().find(|entry| entry.key == "idle_ttl").unwrap();
            assert_eq!(entry.value, shown);
        }
        assert_eq!(config(None).raw().unwrap().idle_ttl, Some(24 * 3600));
        assert!(Config::default().default_limits().iter().all(|(key, _)| *key != "idle_ttl"));
    }

    #[test]
    fn what_kubernetes_would_not_understand_is_named() {
        let mut config = Config::default();
        config.set("raw.tolerations", r#"[{"key": 7}]"#).unwrap();
        let error = config.raw().unwrap_err().to_string();
        assert!(error.contains("raw.tolerations") && error.contains("Kubernetes"), "{error}");
        let error = config.set("raw.egress", "everything").unwrap_err().to_string();
        assert!(error.contains("JSON"), "{error}");
        let error = config.set("raw.imgae", "x").unwrap_err().to_string();
        assert!(error.contains("raw.image"), "{error}");
    }
}
