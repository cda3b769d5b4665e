//! From settings to providers.

use std::sync::Arc;

use podbay_client::provider::Provider;
use podbay_k8s::{Access, Cluster, raw};
use serde_json::Value as Json;

use super::setting::{Kind, SETTINGS};
use super::value::Value;
use super::{Config, ConfigError, bad};

/// How the settings that hold for more than raw mode are called in its own configuration.
const SHARED: [(&str, &str); 5] = [
    ("env", "env"),
    ("labels", "default_labels"),
    ("ttl", "ttl"),
    ("idle_ttl", "idle_ttl"),
    ("cluster.command_filter", "command_filter"),
];

/// Settings of raw mode that say which cluster is meant, and not how a sandbox is made.
const ACCESS: [&str; 3] = ["kubeconfig", "context", "namespace"];

impl Config {
    /// The provider that `mode` names, with these settings.
    ///
    /// # Errors
    /// When a setting makes no sense, or what the provider needs isn't there.
    pub async fn provider(&self) -> podbay_client::Result<Arc<dyn Provider>> {
        match self.mode() {
            "raw" => Ok(Arc::new(self.raw_provider().await?)),
            #[cfg(target_os = "linux")]
            _ => Ok(Arc::new(self.local_provider()?)),
            #[cfg(not(target_os = "linux"))]
            mode => Err(podbay_client::Error::Provider(
                format!("mode {mode} needs Linux: use mode raw, which makes sandboxes on a cluster").into(),
            )),
        }
    }

    /// The provider of plain pods, with these settings. The cluster isn't asked yet.
    ///
    /// # Errors
    /// When a setting makes no sense, or there is no way to a cluster.
    pub async fn raw_provider(&self) -> podbay_client::Result<raw::Raw> {
        let config = self.raw().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        Ok(raw::Raw::new(self.cluster().await?, config)?)
    }

    /// The cluster, and the namespace in it.
    ///
    /// # Errors
    /// When there is no way to it.
    pub async fn cluster(&self) -> podbay_client::Result<Cluster> {
        let text = |key: &str| self.text(key).map(str::to_owned);
        let access = Access {
            kubeconfig: text("raw.kubeconfig").map(Into::into),
            context: text("raw.context"),
            namespace: text("raw.namespace"),
            ..Access::default()
        };
        Ok(Cluster::connect(&access).await?)
    }

    /// How sandboxes in raw mode shall be.
    ///
    /// # Errors
    /// When a setting isn't shaped as Kubernetes wants it.
    pub fn raw(&self) -> Result<raw::Config, ConfigError> {
        self.check_project_labels()?;
        let own = SETTINGS.iter().filter_map(|setting| Some((setting, setting.key.strip_prefix("raw.")?)));
        let own = own.filter(|(_, field)| !ACCESS.contains(field));
        let shared = SHARED.iter().filter_map(|(key, field)| Some((super::setting::find(key)?, *field)));
        let mut fields = serde_json::Map::new();
        for (setting, field) in own.chain(shared) {
            let (Some(value), Some(given)) = (self.effective(setting), self.held(setting.key)) else { continue };
            fields.insert(field.to_owned(), value.to_json(setting.kind));
            // One by one, so that the one which doesn't fit can be named.
            let alone = Json::Object([(field.to_owned(), fields[field].clone())].into_iter().collect());
            serde_json::from_value::<raw::Config>(alone)
                .map_err(|error| bad(&given.from, setting.key)(format!("not as Kubernetes wants it: {error}")))?;
        }
        serde_json::from_value(Json::Object(fields)).map_err(|error| bad("settings", "raw")(error.to_string()))
    }

    /// The local provider, with these settings.
    ///
    /// # Errors
    /// When its home can't be had, or a setting makes no sense.
    #[cfg(target_os = "linux")]
    pub fn local_provider(&self) -> podbay_client::Result<podbay_local::Local> {
        let options = self.local().map_err(|error| podbay_client::Error::Provider(Box::new(error)))?;
        let home = match self.text("home") {
            Some(path) => podbay_local::Home::at(path)?,
            None => podbay_local::Home::of_user()?,
        };
        Ok(podbay_local::Local::at(home).with(options))
    }

    /// The limits that hold because nothing sets them: the key, and the value as text.
    pub fn default_limits(&self) -> Vec<(&'static str, String)> {
        match self.mode() {
            "raw" if !self.is_set("idle_ttl") => {
                let day = Value::Number(raw::DAY * 1000).shown(Kind::Time);
                vec![("idle_ttl", day)]
            }
            "local" => self.default_local_limits(),
            _ => Vec::new(),
        }
    }

    #[cfg(target_os = "linux")]
    fn default_local_limits(&self) -> Vec<(&'static str, String)> {
        let default = podbay_local::default_limits();
        let memory = default.memory.filter(|_| podbay_local::can_limit_memory());
        let limits = [
            ("local.memory", memory),
            ("local.cpu", None),
            ("local.processes", default.processes),
            ("local.descriptors", default.descriptors),
        ];
        let unset = limits.into_iter().filter(|(key, _)| !self.is_set(key));
        let shown = |(key, limit): (&'static str, Option<u64>)| {
            let setting = super::setting::find(key)?;
            Some((key, limit.map_or("unlimited".to_owned(), |limit| Value::Number(limit).shown(setting.kind))))
        };
        unset.filter_map(shown).collect()
    }

    /// There is no local mode here.
    #[cfg(not(target_os = "linux"))]
    fn default_local_limits(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// How local sandboxes shall be.
    ///
    /// # Errors
    /// When a mount makes no sense.
    #[cfg(target_os = "linux")]
    pub fn local(&self) -> Result<podbay_local::Options, ConfigError> {
        use podbay_local::{Isolation, Limits, Network, Options, default_limits, parse_mount};
        let default = default_limits();
        // Set to none is no limit; not set is the default.
        let limit = |key: &str, default| if self.is_set(key) { self.number(key) } else { default };
        let origin = |key: &str| self.held(key).map_or_else(String::new, |given| given.from.clone());
        let mount = |text: String| {
            parse_mount(&text).map_err(|error| bad(&origin("local.mounts"), "local.mounts")(error.to_string()))
        };
        Ok(Options {
            workspace: self.text("local.workspace").map(Into::into),
            mounts: self.list("local.mounts").into_iter().map(mount).collect::<Result<_, _>>()?,
            network: match self.text("local.network") {
                Some("host") => Network::Host,
                Some("host-unfenced") => Network::HostUnfenced,
                _ => Network::None,
            },
            env: self.map("env"),
            limits: Limits {
                memory: limit("local.memory", default.memory),
                cpu: match self.get("local.cpu") {
                    Some(Value::Real(cpu)) => Some(*cpu),
                    _ => None,
                },
                processes: limit("local.processes", default.processes),
                disk: limit("local.disk", default.disk),
                descriptors: limit("local.descriptors", default.descriptors),
            },
            isolation: match self.text("local.isolation") {
                Some("landlock") => Isolation::Landlock,
                _ => Isolation::Namespaces,
            },
            labels: self.map("labels"),
            ttl: self.ttl(),
            idle_ttl: self.idle_ttl(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_raw_mode_is_a_setting() {
        let Json::Object(fields) = serde_json::to_value(raw::Config::default()).unwrap() else { panic!("not fields") };
        let mut fields: Vec<String> = fields.into_iter().map(|(field, _)| field).collect();
        fields.retain(|field| !SHARED.iter().any(|(_, shared)| shared == field));
        fields.extend(ACCESS.map(str::to_owned));
        let mut settings: Vec<_> = SETTINGS.iter().filter_map(|setting| setting.key.strip_prefix("raw.")).collect();
        fields.sort_unstable();
        settings.sort_unstable();
        assert_eq!(settings, fields);
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
        assert_eq!(config(None).raw().unwrap().idle_ttl, Some(raw::DAY));
        assert!(Config::default().default_limits().iter().all(|(key, _)| *key != "idle_ttl"));
    }

    #[test]
    fn what_kubernetes_would_not_understand_is_named() {
        let mut config = Config::default();
        config.set("raw.tolerations", r#"{"key": "gpu"}"#).unwrap();
        let error = config.raw().unwrap_err().to_string();
        assert!(error.contains("raw.tolerations") && error.contains("Kubernetes"), "{error}");
        let error = config.set("raw.egress", "everything").unwrap_err().to_string();
        assert!(error.contains("JSON"), "{error}");
        let error = config.set("raw.imgae", "x").unwrap_err().to_string();
        assert!(error.contains("raw.image"), "{error}");
    }
}
