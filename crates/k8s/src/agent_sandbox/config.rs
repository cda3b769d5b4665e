//! The configuration of agent-sandbox mode.

use std::collections::BTreeMap;

use podbay_proto::session::PORT;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metadata;
use crate::channel::router::{ROUTER_NAMESPACE, RouterConfig, Way};
use crate::channel::stock_runtime::RUNTIME_PORT;
use crate::channel::{AddressConfig, Connection};
use crate::error::{Error, Result};
use crate::lifetime::DEFAULT_IDLE_TTL;
use crate::names;

/// What does the work in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// podbayd, which is installed if it isn't there.
    #[default]
    Podbayd,
    /// podbayd, reached over the API of upstream's stock runtime, through the router: slower, and without authentication.
    Stock,
}

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
    /// How many seconds it may be idle: a day by default, forever if none.
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
    /// How podbayd is reached.
    pub connection: Connection,
    /// The file with the private key that signs tokens for podbayd.
    pub private_key_file: Option<String>,
    /// The port that podbayd listens on.
    pub port: u16,
    /// How podbayd is reached through the router: on a port of its own, or over upstream's runtime.
    pub runtime: Runtime,
    /// The port of upstream's Python runtime.
    pub runtime_port: u16,
    /// The router's URL, for the connection `direct`.
    pub router_url: Option<String>,
    /// Whether the Kubernetes API is never asked: the router finds Sandboxes by their names, and only those that exist can be
    /// used. Only for the connection `direct`.
    pub router_only: bool,
    /// The names of claims' Sandboxes, for clients that may not read the claims: Sandboxes from a warm pool have names of their
    /// own.
    pub sandbox_names: BTreeMap<String, String>,
    /// The Gateway in front of the router, for the connection `gateway`.
    pub gateway_name: Option<String>,
    /// The Gateway's namespace.
    pub gateway_namespace: String,
    /// The Gateway's listener to use.
    pub gateway_listener: Option<String>,
    /// The namespace of the router's Service, for the connection `tunnel`.
    pub router_namespace: String,
    /// Headers of requests to the router.
    pub router_headers: BTreeMap<String, String>,
    /// A file with a bearer token for the router.
    pub router_token_file: Option<String>,
    /// A file with the key that signs scoped tokens for the router.
    pub router_scoped_key_file: Option<String>,
    /// The name in the router's certificate and in the header Host, if it isn't the one in its URL.
    pub router_server_name: Option<String>,
    /// A PEM file with the certificate authorities to trust for the router.
    pub router_ca_file: Option<String>,
    /// A PEM file with a client certificate for the router.
    pub router_client_cert_file: Option<String>,
    /// A PEM file with that certificate's key.
    pub router_client_key_file: Option<String>,
}

/// Without the values of environment variables: people put keys there, and this ends up in logs.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = self.clone();
        shown
            .env
            .values_mut()
            .chain(shown.claim_env.values_mut())
            .chain(shown.router_headers.values_mut())
            .for_each(|value| *value = "…".into());
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
            idle_ttl: Some(DEFAULT_IDLE_TTL),
            ttl_after_finished: None,
            startup_timeout: 180,
            resume: true,
            foreign_claims: false,
            command_filter: true,
            connection: Connection::Auto,
            private_key_file: None,
            port: PORT,
            runtime: Runtime::Podbayd,
            runtime_port: RUNTIME_PORT,
            router_url: None,
            router_only: false,
            sandbox_names: BTreeMap::new(),
            gateway_name: None,
            gateway_namespace: "default".into(),
            gateway_listener: None,
            router_namespace: ROUTER_NAMESPACE.into(),
            router_headers: BTreeMap::new(),
            router_token_file: None,
            router_scoped_key_file: None,
            router_server_name: None,
            router_ca_file: None,
            router_client_cert_file: None,
            router_client_key_file: None,
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
            return Err(Error::Config("agent_sandbox.startup_timeout is 0: claims need time to become ready".into()));
        }
        if !self.label_prefix.is_empty() {
            names::check_prefix(&self.label_prefix)?;
        }
        for name in self.env.keys().chain(self.claim_env.keys()) {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Error::Config(format!("{name:?} can't be the name of an environment variable")));
            }
            if name.starts_with("PODBAYD_") {
                return Err(Error::Config(format!("{name} is podbayd's own variable: only the template can set it")));
            }
        }
        if self.runtime_port == 0 {
            return Err(Error::Config(format!(
                "agent_sandbox.runtime_port is 0: use a port from 1 to 65535, such as {RUNTIME_PORT}"
            )));
        }
        match self.stock_runtime()? {
            Some((way, router)) => router.check(way)?,
            None => self.addresses().check()?,
        }
        self.check_router_only()?;
        metadata::check_pod_labels(&self.pod_labels)?;
        metadata::check_pod_annotations(&self.pod_annotations)
    }

    fn check_router_only(&self) -> Result<()> {
        if self.router_only && self.runtime == Runtime::Stock {
            return Err(Error::Config(
                "agent_sandbox.router_only doesn't work with agent_sandbox.runtime = \"stock\": remove one of them"
                    .into(),
            ));
        }
        if self.router_only && self.addresses().connection != Connection::Direct {
            return Err(Error::Config(
                "agent_sandbox.router_only needs the router's URL and a key: set cluster.connection to direct, \
                 agent_sandbox.router_url and cluster.private_key_file"
                    .into(),
            ));
        }
        for (claim, sandbox) in &self.sandbox_names {
            names::check_label("claim", claim)?;
            names::check_label("Sandbox", sandbox)?;
        }
        Ok(())
    }

    /// Whether sandboxes that exist can be used without the Kubernetes API: nothing but the router's URL is needed.
    pub fn can_do_without_api(&self) -> bool {
        self.addresses().connection == Connection::Direct
    }

    /// How pods' addresses are used.
    pub(crate) fn addresses(&self) -> AddressConfig<'_> {
        let private_key_file = self.private_key_file.as_deref();
        let router = self.router();
        // Whoever names a router and has the key that it takes means it. Otherwise pods are reached as in raw mode.
        let has_key = private_key_file.is_some_and(|path| !path.is_empty());
        let connection = match self.connection {
            Connection::Auto if has_key && router.url.is_some() => Connection::Direct,
            Connection::Auto if has_key && router.gateway.is_some() => Connection::Gateway,
            chosen => chosen,
        };
        AddressConfig { connection, private_key_file, port: self.port, router: Some(router) }
    }

    /// The way to the router and its configuration, where the stock runtime's API leads to podbayd.
    ///
    /// # Errors
    /// When the connection doesn't lead through a router.
    pub(crate) fn stock_runtime(&self) -> Result<Option<(Way, RouterConfig<'_>)>> {
        if self.runtime == Runtime::Podbayd {
            return Ok(None);
        }
        let router = self.router();
        let way = match self.connection {
            Connection::Auto if router.url.is_some() => Some(Way::Direct),
            Connection::Auto if router.gateway.is_some() => Some(Way::Gateway),
            Connection::Auto => Some(Way::Tunnel),
            chosen => chosen.router(),
        };
        let way = way.ok_or_else(|| {
            Error::Config(
                "agent_sandbox.runtime = \"stock\" works only through the router: set cluster.connection to direct, \
                 gateway or tunnel, or remove agent_sandbox.runtime"
                    .into(),
            )
        })?;
        Ok(Some((way, router)))
    }

    /// Whether sandboxes are reached through a router.
    pub fn is_through_router(&self) -> bool {
        self.way_to_router().is_some()
    }

    /// The way to the router; none where sandboxes are reached without it, or by a connection that can't work.
    pub(crate) fn way_to_router(&self) -> Option<Way> {
        match self.runtime {
            Runtime::Podbayd => self.addresses().connection.router(),
            Runtime::Stock => self.stock_runtime().ok().flatten().map(|(way, _)| way),
        }
    }

    /// How the router is reached. An empty text is as good as none: it lifts what a weaker source says.
    fn router(&self) -> RouterConfig<'_> {
        fn set(text: &Option<String>) -> Option<&str> {
            text.as_deref().filter(|text| !text.is_empty())
        }
        RouterConfig {
            url: set(&self.router_url),
            gateway: set(&self.gateway_name),
            gateway_namespace: &self.gateway_namespace,
            gateway_listener: set(&self.gateway_listener),
            server_name: set(&self.router_server_name),
            namespace: &self.router_namespace,
            headers: Some(&self.router_headers),
            token_file: set(&self.router_token_file),
            scoped_key_file: set(&self.router_scoped_key_file),
            ca_file: set(&self.router_ca_file),
            client_cert_file: set(&self.router_client_cert_file),
            client_key_file: set(&self.router_client_key_file),
            runtime_port: self.runtime_port,
        }
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
            Config { runtime_port: 0, ..Config::default() },
            Config { label_prefix: "kubernetes.io/".into(), ..Config::default() },
            Config { claim_env: [("A=B".to_owned(), String::new())].into(), ..Config::default() },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }

    #[test]
    fn the_stock_runtime_needs_a_router_and_no_key() {
        let stock = |connection| Config { runtime: Runtime::Stock, connection, ..with_template() };
        let way = |config: &Config| config.stock_runtime().map(|found| found.map(|(way, _)| way));
        assert_eq!(way(&with_template()).unwrap(), None);
        assert_eq!(way(&stock(Connection::Auto)).unwrap(), Some(Way::Tunnel));
        assert_eq!(way(&stock(Connection::Tunnel)).unwrap(), Some(Way::Tunnel));
        let named = Config { router_url: Some("http://router".into()), ..stock(Connection::Auto) };
        assert_eq!(way(&named).unwrap(), Some(Way::Direct));
        assert!(named.check().is_ok() && stock(Connection::Tunnel).check().is_ok());
        assert!(stock(Connection::Direct).check().is_err(), "there is no URL");
        for connection in [Connection::Exec, Connection::InCluster] {
            let error = stock(connection).check().unwrap_err().to_string();
            assert!(error.contains("cluster.connection"), "{error}");
        }
    }

    #[test]
    fn no_value_of_an_environment_variable_is_shown() {
        let secret = BTreeMap::from([("KEY".to_owned(), "hunter2".to_owned())]);
        let shown = format!("{:?}", Config { env: secret.clone(), claim_env: secret, ..with_template() });
        assert!(shown.contains("KEY") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_router_that_is_named_is_used_if_there_is_a_key_for_it() {
        let url = || Some("http://router".to_owned());
        let key = || Some("key".to_owned());
        let named = Config { router_url: url(), gateway_name: Some("g".into()), ..with_template() };
        let with_key = Config { private_key_file: key(), ..named.clone() };
        assert_eq!(named.addresses().connection, Connection::Auto);
        assert_eq!(with_key.addresses().connection, Connection::Direct);
        let gateway = Config { router_url: None, ..with_key.clone() };
        assert_eq!(gateway.addresses().connection, Connection::Gateway);
        let chosen = Config { connection: Connection::Exec, ..with_key };
        assert_eq!(chosen.addresses().connection, Connection::Exec);
    }

    #[test]
    fn the_router_alone_will_do_only_where_its_url_is_known() {
        let only = Config { router_only: true, ..Config::default() };
        let direct =
            Config { router_url: Some("http://router".into()), private_key_file: Some("key".into()), ..only.clone() };
        assert!(direct.check().is_ok() && direct.can_do_without_api());
        let others = [
            only.clone(),
            Config { private_key_file: None, ..direct.clone() },
            Config { router_url: None, gateway_name: Some("g".into()), ..direct.clone() },
            Config { connection: Connection::Tunnel, ..direct.clone() },
            Config { connection: Connection::Exec, ..direct.clone() },
            Config { runtime: Runtime::Stock, ..direct.clone() },
            Config { sandbox_names: [("claim".to_owned(), "No Name".to_owned())].into(), ..direct.clone() },
        ];
        for config in others {
            assert!(config.check().is_err(), "{config:?}");
        }
    }
}
