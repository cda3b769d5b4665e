//! How to reach a cluster, and as whom.

use std::path::Path;

use anyhow::{Context, Result};
use hyper_util::client::legacy::{Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::ServiceBuilder;

use crate::pki;

/// A server, whom to trust and a token: all that a kubeconfig holds.
#[derive(Debug, Clone)]
pub struct Access {
    server: String,
    authority: String,
    token: String,
    namespace: String,
}

impl Access {
    pub(crate) fn new(server: String, authority: String, token: String, namespace: String) -> Self {
        Self { server, authority, token, namespace }
    }

    /// The same through another port of this machine, such as that of a [fault proxy](crate::faults).
    #[must_use]
    pub fn through(&self, port: u16) -> Self {
        Self { server: format!("https://127.0.0.1:{port}"), ..self.clone() }
    }

    /// A kubeconfig file's text.
    pub fn kubeconfig(&self) -> String {
        pki::kubeconfig(&self.server, &self.authority, &self.token, Some(&self.namespace))
    }

    /// A client that sends each request once: no retries that would hide a fault.
    pub async fn client(&self) -> Result<kube::Client> {
        client(Kubeconfig::from_yaml(&self.kubeconfig())?).await
    }
}

/// A client for a kubeconfig file.
pub(crate) async fn client_of(kubeconfig: &Path) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    client(file).await
}

/// kube's own client leaves TCP_NODELAY off, which costs up to 44 ms for a request with a body.
async fn client(kubeconfig: Kubeconfig) -> Result<kube::Client> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace))
}
