//! The client of a cluster: credentials, proxies, keep-alive, deadlines, and a bound on requests in flight.

mod access;
pub(crate) mod certificate_renewal;
pub(crate) mod clock;
pub(crate) mod deadline;
mod in_flight;
pub(crate) mod proxy;

use std::time::Duration;

use http::{Request, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::{Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::jiff::Timestamp;
use kube::client::{Body, ConfigExt};
use kube::config::Kubeconfig;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};

pub use self::access::Access;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use certificate_renewal::RenewingService;
use clock::Clock;
use deadline::{Deadlines, TimedBody};
use in_flight::InFlight;
use proxy::Proxy;

/// TCP keep-alive: the idle time before the first probe, the interval between probes, and how many may fail. A dead peer is
/// noticed within a minute; the kernel's defaults take two hours.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(20), Duration::from_secs(10), 3);

/// How long sent data may stay unacknowledged.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// The stack that sends requests to an API server.
pub(crate) type Service = BoxCloneService<Request<Body>, http::Response<TimedBody<Incoming>>, BoxError>;

/// A client of a cluster, and the namespace for sandboxes in it.
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
        let (config, proxy_url) = access.read().await?;
        let namespace = access.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let proxy = proxy::choose(proxy_url.as_deref(), &config.cluster_url, |name| std::env::var(name).ok())?;
        let clock = Clock::new();
        let learner = clock.clone();
        // An exec plugin may take its time, or prompt the user.
        let client = tokio::task::spawn_blocking(move || client(config, proxy, Deadlines::default(), &learner))
            .await
            .map_err(|error| unusable(&error))?
            .map_err(|error| unusable(&error))?;
        Ok(Self { client, namespace, clock })
    }

    /// Uses an existing client. It should set TCP_NODELAY, which kube's own doesn't.
    /// Has to be called within a runtime.
    pub fn with_client(client: kube::Client, namespace: impl Into<String>) -> Self {
        let (clock, default_namespace) = (Clock::new(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        let client = kube::Client::new(InFlight::default().layer(clock.layer(service)), default_namespace);
        Self { client, namespace: namespace.into(), clock }
    }

    /// A cluster whose API can't be asked for anything: every request fails at once. Its clock is this machine's.
    /// Has to be called within a runtime.
    pub fn without_api(namespace: impl Into<String>) -> Self {
        let refuse = |_: Request<Body>| async {
            Err::<http::Response<Body>, BoxError>("there is no access to the Kubernetes API".into())
        };
        let namespace = namespace.into();
        let client = kube::Client::new(tower::service_fn(refuse), namespace.clone());
        Self { client, namespace, clock: Clock::new() }
    }

    /// The API server's current time. Asks the server if it hasn't answered anything yet.
    ///
    /// # Errors
    /// When the server doesn't answer. This machine's clock is no substitute: other programs delete sandboxes because of
    /// the times written here.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        if !self.clock.is_known() {
            // A refusal carries a date too.
            let asked = with_retry(|| self.client.apiserver_version()).await;
            if !self.clock.is_known() {
                let why =
                    asked.err().map_or_else(|| "its answers have no Date header".into(), |error| error.to_string());
                return Err(Error::Cluster(format!("the API server's time is unknown: {why}")));
            }
        }
        Ok(self.clock.now())
    }

    /// The same client in another namespace.
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

/// The `proxy-url` of a context's cluster. kube's own configuration mixes it with the environment's.
fn proxy_url(file: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(file.current_context.as_deref())?;
    let context = file.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    let cluster = file.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// A client. The credentials of an exec plugin that expire are renewed before they do; kube sees to tokens, and
/// [`RenewingService`] to certificates.
fn client(
    mut config: kube::Config,
    proxy: Option<Proxy>,
    deadlines: Deadlines,
    clock: &Clock,
) -> Result<kube::Client, kube::Error> {
    config.proxy_url = None;
    let namespace = config.default_namespace.clone();
    let make = move || stack(&config, proxy.as_ref(), deadlines).map(|stack| (stack, expiry(&config)));
    let (first, expires) = make()?;
    // The clock measures how long answers take, so what waits for its turn isn't its business.
    let bound = InFlight::default();
    Ok(match expires {
        Some(_) => kube::Client::new(bound.layer(clock.layer(RenewingService::new(first, expires, make))), namespace),
        None => kube::Client::new(bound.layer(clock.layer(first)), namespace),
    })
}

/// When the certificate of an exec plugin expires; nothing where there is none.
fn expiry(config: &kube::Config) -> Option<Timestamp> {
    let credentials = &config.auth_info;
    credentials.exec.as_ref()?;
    let has_certificate = config.rustls_client_config().is_ok_and(|tls| tls.client_auth_cert_resolver.has_certs());
    // Only kube's own client tells. Nothing is sent by it.
    has_certificate.then(|| kube::Client::try_from(config.clone()).ok()?.valid_until().to_owned())?
}

/// What a request goes through. kube's own stack leaves TCP_NODELAY off, so that every request with a body would take 44 ms
/// instead of one, and waits for answers forever.
fn stack(config: &kube::Config, proxy: Option<&Proxy>, deadlines: Deadlines) -> Result<Service, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let (idle, interval, retries) = KEEP_ALIVE;
    connector.set_keepalive(Some(idle));
    connector.set_keepalive_interval(Some(interval));
    connector.set_keepalive_retries(Some(retries));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    match proxy {
        None => over(connector, config, deadlines),
        Some(Proxy::Tunnel { uri, auth: None }) => over(Tunnel::new(uri.clone(), connector), config, deadlines),
        Some(Proxy::Tunnel { uri, auth: Some(auth) }) => {
            over(Tunnel::new(uri.clone(), connector).with_auth(auth.clone()), config, deadlines)
        }
        Some(Proxy::Socks { uri, auth: None }) => over(SocksV5::new(uri.clone(), connector), config, deadlines),
        Some(Proxy::Socks { uri, auth: Some((user, password)) }) => {
            let socks = SocksV5::new(uri.clone(), connector).with_auth(user.clone(), password.clone());
            over(socks, config, deadlines)
        }
    }
}

/// The layers above a way to the API server.
fn over<C>(connector: C, config: &kube::Config, deadlines: Deadlines) -> Result<Service, kube::Error>
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response:
        hyper_util::client::legacy::connect::Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    Ok(ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(deadlines)
        .service(http)
        .map_err(BoxError::from)
        .boxed_clone())
}

#[cfg(test)]
mod tests;
