//! Where the router is, and connections to it.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use podbay_client::ByteStream;
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{GATEWAY_GROUP, LIMIT, RouterConfig, Way};
use crate::api::follow::{Judge, Outcome, Verdict, follow};
use crate::cluster::proxy;
use crate::error::{Error, Result};

/// The Service that upstream's manifests create, and its port.
const SERVICE: &str = "sandbox-router-svc";
const SERVICE_PORT: i32 = 8080;

/// How long a Gateway may take to get an address.
const NEW_GATEWAY: Duration = Duration::from_secs(60);

/// The way to the router.
#[derive(Debug)]
pub(super) enum Destination {
    Url(RouterUrl),
    Gateway { name: String, namespace: String, listener: Option<String>, server_name: Option<String> },
    Tunnel { namespace: String },
}

/// A router's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RouterUrl {
    tls: bool,
    host: String,
    port: u16,
    prefix: String,
    /// What the router calls itself, if not by that host.
    server_name: Option<String>,
}

impl RouterUrl {
    /// As it is written in the header Host.
    fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        let host = self.server_name.as_ref().unwrap_or(&self.host);
        if self.port == usual { host.clone() } else { format!("{host}:{}", self.port) }
    }

    fn uri(&self) -> Result<Uri, String> {
        let scheme = if self.tls { "https" } else { "http" };
        let uri = format!("{scheme}://{}:{}", self.host, self.port);
        uri.parse().map_err(|_| format!("{uri} isn't a URL"))
    }
}

/// Reads a URL.
pub(super) fn parse(text: &str) -> Result<RouterUrl> {
    // Messages end up in logs, where no password or token belongs.
    let without_query = text.split_once('?').map_or(text.to_owned(), |(url, _)| format!("{url}?..."));
    let shown = without_query.rsplit_once('@').map_or(without_query.clone(), |(_, host)| format!("...@{host}"));
    let bad = |why: &str| Error::Config(format!("agent_sandbox.router_url is {shown:?}: {why}"));
    let uri: Uri = text.parse().map_err(|_| bad("this isn't a URL"))?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad("it has to begin with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("it must not contain credentials: use agent_sandbox.router_token_file"));
    }
    if uri.query().is_some() {
        return Err(bad("it can't have a query"));
    }
    Ok(RouterUrl {
        tls,
        host: authority.host().to_owned(),
        port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        prefix: uri.path().trim_end_matches('/').to_owned(),
        server_name: None,
    })
}

impl Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                let scheme = if url.tls { "https" } else { "http" };
                write!(f, "the router at {scheme}://{}{} (connection direct)", url.authority(), url.prefix)
            }
            Self::Gateway { name, namespace, .. } => {
                write!(f, "the router behind the Gateway {namespace}/{name} (connection gateway)")
            }
            Self::Tunnel { namespace } => {
                write!(f, "a tunnel to the router {namespace}/{SERVICE} (connection tunnel)")
            }
        }
    }
}

impl Destination {
    pub(super) fn new(way: Way, config: &RouterConfig<'_>) -> Result<Self> {
        Ok(match way {
            Way::Direct => {
                let server_name = config.server_name.map(str::to_owned);
                Self::Url(RouterUrl { server_name, ..parse(config.url.unwrap_or_default())? })
            }
            Way::Gateway => Self::Gateway {
                name: config.gateway.unwrap_or_default().to_owned(),
                namespace: config.gateway_namespace.to_owned(),
                listener: config.gateway_listener.map(str::to_owned),
                server_name: config.server_name.map(str::to_owned),
            },
            Way::Tunnel => Self::Tunnel { namespace: config.namespace.to_owned() },
        })
    }

    /// How long opening a connection may take.
    pub(super) fn limit(&self) -> Duration {
        match self {
            Self::Gateway { .. } => LIMIT + NEW_GATEWAY,
            _ => LIMIT,
        }
    }

    /// A connection to the router, the value of the header Host, and what its paths begin with.
    pub(super) async fn open(
        &self,
        client: &kube::Client,
        tls: &Tls,
    ) -> Result<(Box<dyn ByteStream>, String, String), String> {
        match self {
            Self::Url(url) => Ok((connect(url, tls).await?, url.authority(), url.prefix.clone())),
            Self::Gateway { name, namespace, listener, server_name } => {
                let gateway = gateway_with_address(client, name, namespace).await?;
                let mut url = gateway_url(&gateway, listener.as_deref())?;
                url.server_name = server_name.clone().or(url.server_name);
                Ok((connect(&url, tls).await?, url.authority(), String::new()))
            }
            Self::Tunnel { namespace } => {
                let stream = tunnel(client, namespace).await?;
                Ok((stream, format!("{SERVICE}:{SERVICE_PORT}"), String::new()))
            }
        }
    }
}

async fn connect(url: &RouterUrl, tls: &Tls) -> Result<Box<dyn ByteStream>, String> {
    let stream = proxy::connect(&url.uri()?).await?;
    if !url.tls {
        return Ok(Box::new(stream));
    }
    // An IPv6 address has brackets in a URL.
    let host = url.server_name.as_ref().unwrap_or(&url.host).trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} isn't a valid TLS server name"))?;
    let secured = tls.connector().map_err(|error| error.to_string())?.connect(name, stream).await;
    Ok(Box::new(secured.map_err(|error| format!("TLS failed: {error}; see agent_sandbox.router_ca_file"))?))
}

/// A Gateway, once its status names an address: a new one gets it after some seconds.
async fn gateway_with_address(client: &kube::Client, name: &str, namespace: &str) -> Result<Value, String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GATEWAY_GROUP, "v1", "Gateway"));
    let gateways: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let gateway = gateways.get(name).await.map_err(|error| format!("can't get the Gateway: {error}"))?;
    let mut progress = String::new();
    match timeout(NEW_GATEWAY, follow(gateways, gateway, &HasAddress, &mut progress)).await {
        Ok(Ok(Outcome::Ready(gateway))) => Ok(gateway.data),
        Ok(Ok(Outcome::Failed(never))) => match never {},
        Ok(Ok(Outcome::Deleted)) => Err("the Gateway was deleted before it had an address".into()),
        Ok(Err(error)) => Err(format!("can't watch the Gateway: {error}")),
        Ok(Ok(Outcome::Doubted(_))) | Err(_) => Err(format!(
            "the Gateway has had no address for {} s: see 'kubectl describe gateway {name}'",
            NEW_GATEWAY.as_secs()
        )),
    }
}

/// Waits until a Gateway has an address.
struct HasAddress;

impl Judge<DynamicObject> for HasAddress {
    type Failure = Infallible;

    fn judge(&self, gateway: &DynamicObject) -> Verdict<Infallible> {
        match gateway.data["status"]["addresses"][0]["value"].is_string() {
            true => Verdict::Ready,
            false => Verdict::Waiting("it has no address".into()),
        }
    }
}

/// What a Gateway listens on: the listener of a name, or its first one for HTTPS, or for HTTP.
fn gateway_url(gateway: &Value, wanted: Option<&str>) -> Result<RouterUrl, String> {
    let host = gateway["status"]["addresses"][0]["value"].as_str().ok_or("the Gateway has no address")?;
    let listeners = gateway["spec"]["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listener = match wanted {
        Some(name) => listeners
            .iter()
            .find(|listener| listener["name"] == name)
            .ok_or_else(|| format!("the Gateway has no listener {name:?}: see agent_sandbox.gateway_listener"))?,
        None => ["HTTPS", "HTTP"]
            .into_iter()
            .find_map(|protocol| listeners.iter().find(|listener| listener["protocol"] == protocol))
            .ok_or("the Gateway has no listener for HTTP or HTTPS")?,
    };
    let tls = match listener["protocol"].as_str() {
        Some("HTTPS") => true,
        Some("HTTP") => false,
        other => return Err(format!("the Gateway's listener is for {}, not for HTTP or HTTPS", other.unwrap_or("?"))),
    };
    let port = listener["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    // A pattern names no host.
    let server_name = listener["hostname"].as_str().filter(|name| !name.starts_with('*')).map(str::to_owned);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(RouterUrl { tls, host, port: port.unwrap_or(if tls { 443 } else { 80 }), prefix: String::new(), server_name })
}

/// A port-forward to a router pod. The protocol carries one TCP connection, so each sandbox has its own.
async fn tunnel(client: &kube::Client, namespace: &str) -> Result<Box<dyn ByteStream>, String> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(SERVICE).await.map_err(|error| format!("can't get the router's Service: {error}"))?;
    let spec = service.spec.unwrap_or_default();
    let labels: Vec<String> =
        spec.selector.unwrap_or_default().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let port = spec.ports.unwrap_or_default().into_iter().find(|port| port.port == SERVICE_PORT);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let list = pods
        .list(&ListParams::default().labels(&labels.join(",")))
        .await
        .map_err(|error| format!("can't list the router's pods: {error}"))?;
    let ready = |pod: &&Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let pod = list.items.iter().find(ready).ok_or("no pod of the router is ready")?;
    let port = target_port(pod, port.and_then(|port| port.target_port));
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let mut forward = pods
        .portforward(name, &[port])
        .await
        .map_err(|error| format!("can't forward a port to the router: {error}"))?;
    let stream = forward.take_stream(port).ok_or("the port-forward has no stream")?;
    // It ends when the stream is dropped.
    tokio::spawn(async move {
        if let Err(error) = forward.join().await {
            tracing::debug!(%error, "a tunnel to the router ended");
        }
    });
    Ok(Box::new(stream))
}

/// The port of a pod that a Service's port leads to: a number, or the name of a container's port.
fn target_port(pod: &Pod, target: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>) -> u16 {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let number = match target {
        Some(IntOrString::Int(port)) => Some(port),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports.find(|port| port.name.as_deref() == Some(&name)).map(|port| port.container_port)
        }
        None => None,
    };
    u16::try_from(number.unwrap_or(SERVICE_PORT)).unwrap_or(SERVICE_PORT as u16)
}

/// Certificates for connections by https.
pub(super) struct Tls(Option<TlsConnector>);

impl Tls {
    /// Reads what the configuration names. Without a CA, the system's are trusted.
    ///
    /// # Errors
    /// When a file can't be read.
    pub(super) fn new(destination: &Destination, config: &RouterConfig<'_>) -> Result<Self> {
        // A tunnel goes through the API server's TLS, which may be all that this machine has certificates for.
        if !matches!(destination, Destination::Url(RouterUrl { tls: true, .. }) | Destination::Gateway { .. }) {
            return Ok(Self(None));
        }
        let bad = |setting: &str, path: &str, why: &dyn Display| {
            Error::Config(format!("agent_sandbox.router_{setting} {path}: {why}"))
        };
        let certificates = |setting: &'static str, path: &str| -> Result<Vec<CertificateDer<'static>>> {
            let all = CertificateDer::pem_file_iter(path).map_err(|error| bad(setting, path, &error))?;
            all.collect::<Result<_, _>>().map_err(|error| bad(setting, path, &error))
        };
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Config(format!("TLS can't be used: {error}")))?;
        let builder = match config.ca_file {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("ca_file", path)? {
                    roots.add(certificate).map_err(|error| bad("ca_file", path, &error))?;
                }
                builder.with_root_certificates(roots)
            }
            None => {
                use rustls_platform_verifier::BuilderVerifierExt;
                builder
                    .with_platform_verifier()
                    .map_err(|error| Error::Config(format!("the system's certificates can't be used: {error}")))?
            }
        };
        let config = match config.client_cert_file.zip(config.client_key_file) {
            Some((cert, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad("client_key_file", key, &error))?;
                builder
                    .with_client_auth_cert(certificates("client_cert_file", cert)?, secret)
                    .map_err(|error| bad("client_cert_file", cert, &error))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self(Some(TlsConnector::from(Arc::new(config)))))
    }

    fn connector(&self) -> Result<&TlsConnector, String> {
        self.0.as_ref().ok_or_else(|| "TLS isn't set up".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_a_port_and_a_prefix() {
        let url = parse("https://router.example/base/").unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.port, url.prefix.as_str()), (true, "router.example", 443, "/base"));
        assert_eq!(url.authority(), "router.example");
        let url = parse("http://10.0.0.7:8080").unwrap();
        assert_eq!((url.authority(), url.prefix.as_str()), ("10.0.0.7:8080".into(), ""));
        for bad in ["router:8080", "ftp://x", "http://u:p@x", "http://x?y", "", "/x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for bad in ["http://user:secret@x", "ftp://user:secret@x", "user:secret@x y", "http://x?token=secret@y"] {
            let error = parse(bad).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_gateways_listener_says_how_to_reach_it() {
        let gateway = |listeners: Value| serde_json::json!({"spec": {"listeners": listeners}, "status": {"addresses": [{"value": "10.0.0.9"}]}});
        let both = gateway(serde_json::json!([
            {"name": "plain", "protocol": "HTTP", "port": 8080},
            {"name": "secure", "protocol": "HTTPS", "port": 443, "hostname": "router.example"},
            {"name": "other", "protocol": "TCP", "port": 1},
        ]));
        let url = gateway_url(&both, None).unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.authority()), (true, "10.0.0.9", "router.example".into()));
        let url = gateway_url(&both, Some("plain")).unwrap();
        assert_eq!((url.tls, url.authority()), (false, "10.0.0.9:8080".into()));
        for (listener, words) in [("none", "no listener \"none\""), ("other", "for TCP")] {
            assert!(gateway_url(&both, Some(listener)).unwrap_err().contains(words), "{listener}");
        }
        assert!(gateway_url(&gateway(serde_json::json!([])), None).unwrap_err().contains("no listener"));
    }
}
