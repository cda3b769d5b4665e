//! The way to a cluster.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::{Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::jiff::Timestamp;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::timeout::TimeoutLayer;
use tower::{Layer, ServiceBuilder};

use crate::clock::Clock;
use crate::error::{Error, Result};

/// How long an answer may take to begin. What comes after that, such as a watch's events, may take for ever.
const ANSWER: Duration = Duration::from_secs(30);

/// How long the API server may take to say what time it is.
const DATE: Duration = Duration::from_secs(5);

/// Which cluster, and as whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// A kubeconfig file; without one, what `kubectl` would use, and in a pod its service account.
    pub kubeconfig: Option<PathBuf>,
    /// One of its contexts; without one, the current one.
    pub context: Option<String>,
    /// The namespace of the sandboxes; without one, the context's.
    pub namespace: Option<String>,
}

/// A cluster, reached as someone, and a namespace for sandboxes in it.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    pub(crate) clock: Clock,
}

impl Cluster {
    /// Reads the credentials. Nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// When there are none, or they can't be understood.
    pub async fn connect(access: &Access) -> Result<Self> {
        let unusable = |error: &dyn std::fmt::Display| Error::Cluster(error.to_string());
        let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&access.kubeconfig, &access.context) {
            (Some(file), _) => {
                let file = Kubeconfig::read_from(file).map_err(|error| unusable(&error))?;
                kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|error| unusable(&error))?
            }
            (None, Some(_)) => kube::Config::from_kubeconfig(&options).await.map_err(|error| unusable(&error))?,
            (None, None) => kube::Config::infer().await.map_err(|error| unusable(&error))?,
        };
        let namespace = access.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let clock = Clock::new();
        let client = client(config, &clock).map_err(|error| unusable(&error))?;
        Ok(Self { client, namespace, clock })
    }

    /// A client that is there already. It should set TCP_NODELAY, which kube's own doesn't.
    /// To be called within a runtime.
    pub fn with_client(client: kube::Client, namespace: impl Into<String>) -> Self {
        let (clock, default_namespace) = (Clock::new(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        let client = kube::Client::new(clock.layer(service), default_namespace);
        Self { client, namespace: namespace.into(), clock }
    }

    /// What time it is for the API server. Asks it, if it hasn't answered anything yet.
    pub(crate) async fn now(&self) -> Timestamp {
        if !self.clock.is_known() {
            // A refusal has a date too. Should it not answer at all, neither will it to what comes next, which then says so.
            drop(tokio::time::timeout(DATE, self.client.apiserver_version()).await);
        }
        self.clock.now()
    }

    /// The same cluster as the same account, in another namespace.
    pub(crate) fn inside(&self, namespace: &str) -> Self {
        Self { namespace: namespace.into(), ..self.clone() }
    }

    /// The namespace of the sandboxes.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// kube's own client leaves TCP_NODELAY off: every request with a body would take 44 ms instead of one. It also waits for an
/// answer for ever.
fn client(config: kube::Config, clock: &Clock) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(clock.clone())
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(TimeoutLayer::new(ANSWER))
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace))
}
