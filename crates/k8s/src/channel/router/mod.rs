//! Upstream's router, for clients that can't reach pods themselves: one WebSocket carries the same bytes as a connection to the
//! pod's own address.
//!
//! The router ends every other request after three minutes, so there is no second protocol: where something in between refuses
//! WebSockets, an error says so.

mod connections;
mod destination;
pub(crate) mod runtime_http;
mod scoped_token;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use podbay_client::ByteStream;
use podbay_proto::session::{TCP_PATH, TOKEN};
use podbay_proto::{Error as ProtoError, ErrorCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use self::connections::Connections;
use self::destination::{Destination, Tls};
use self::scoped_token::ScopedKey;
use super::AddressFailure;
use super::websocket::{self, Handshake};
use super::websocket_bytes::WebSocketBytes;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::pod::container::Container;

/// Where upstream's manifests put the router.
pub(crate) const ROUTER_NAMESPACE: &str = "agent-sandbox-system";

/// The API group of Gateways.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// How long the router may take to connect to a pod. It tries for seven seconds itself.
const LIMIT: Duration = Duration::from_secs(15);

/// How long a router that admits no more connections may take to have room again.
const ROOM: Duration = Duration::from_secs(3);

/// The pause before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The largest answer of a router that is read.
const LARGEST_ANSWER: usize = 16 << 10;

/// Headers that the router itself reads, and those of the upgrade: nobody may set them.
const RESERVED: &str = "x-sandbox-";

/// How the router is reached and what it wants to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouterConfig<'a> {
    pub(crate) url: Option<&'a str>,
    pub(crate) gateway: Option<&'a str>,
    pub(crate) gateway_namespace: &'a str,
    pub(crate) gateway_listener: Option<&'a str>,
    pub(crate) server_name: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) headers: Option<&'a BTreeMap<String, String>>,
    pub(crate) token_file: Option<&'a str>,
    pub(crate) scoped_key_file: Option<&'a str>,
    pub(crate) ca_file: Option<&'a str>,
    pub(crate) client_cert_file: Option<&'a str>,
    pub(crate) client_key_file: Option<&'a str>,
    /// The port of the runtime that pods have besides podbayd.
    pub(crate) runtime_port: u16,
}

/// Which way leads to the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its URL.
    Direct,
    /// The address of a Gateway.
    Gateway,
    /// A port-forward through the API server.
    Tunnel,
}

impl Way {
    /// Its name in settings.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Gateway => "gateway",
            Self::Tunnel => "tunnel",
        }
    }
}

impl RouterConfig<'_> {
    /// Checks what can be checked without the cluster and without reading files.
    pub(crate) fn check(&self, way: Way) -> Result<()> {
        let missing = |what: &str| Err(Error::Config(format!("cluster.connection needs {what}")));
        match way {
            Way::Direct if self.url.is_none() => return missing("agent_sandbox.router_url"),
            Way::Gateway if self.gateway.is_none() => return missing("agent_sandbox.gateway_name"),
            _ => {}
        }
        if self.client_cert_file.is_some() != self.client_key_file.is_some() {
            return Err(Error::Config(
                "set both agent_sandbox.router_client_cert_file and agent_sandbox.router_client_key_file, or neither"
                    .into(),
            ));
        }
        if self.token_file.is_some() && self.scoped_key_file.is_some() {
            return Err(Error::Config(
                "agent_sandbox.router_token_file and agent_sandbox.router_scoped_key_file exclude each other: a router \
                 accepts one kind of token"
                    .into(),
            ));
        }
        self.header_map().map(drop)?;
        self.url.map_or(Ok(()), |url| destination::parse(url).map(drop))
    }

    fn header_map(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.into_iter().flatten() {
            let bad = |why: &str| Error::Config(format!("agent_sandbox.router_headers has {name:?}: {why}"));
            let lower = name.to_ascii_lowercase();
            let upgrade = ["connection", "upgrade", "host", "content-length", "transfer-encoding", TOKEN];
            if lower.starts_with(RESERVED) || lower.starts_with("sec-websocket-") || upgrade.contains(&lower.as_str()) {
                return Err(bad("Podbay sets this header itself"));
            }
            let name = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| bad("this isn't the name of a header"))?;
            let value = HeaderValue::from_str(value).map_err(|_| bad("its value can't be sent"))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// Leads to pods through upstream's router.
pub(crate) struct Router {
    destination: Destination,
    tls: Tls,
    headers: HeaderMap,
    token_file: Option<String>,
    scoped_key: Option<ScopedKey>,
    cluster: Cluster,
    connections: Connections,
    pub(crate) runtime_port: u16,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl Router {
    /// Reads keys and certificates. Nothing is connected yet.
    ///
    /// # Errors
    /// When a file can't be read, or the configuration isn't valid.
    pub(crate) fn new(cluster: &Cluster, way: Way, config: &RouterConfig<'_>) -> Result<Self> {
        config.check(way)?;
        let destination = Destination::new(way, config)?;
        Ok(Self {
            tls: Tls::new(&destination, config)?,
            destination,
            headers: config.header_map()?,
            token_file: config.token_file.map(str::to_owned),
            scoped_key: config.scoped_key_file.map(ScopedKey::read).transpose()?,
            cluster: cluster.clone(),
            connections: Connections::default(),
            runtime_port: config.runtime_port,
        })
    }

    /// Opens a stream to the podbayd in a pod.
    pub(crate) async fn connect(
        &self,
        container: &Container,
        ip: IpAddr,
        port: u16,
        token: &str,
    ) -> Result<Box<dyn ByteStream>, AddressFailure> {
        let place = format!("{} through {}", std::net::SocketAddr::new(ip, port), self.destination);
        self.open(&place, || with_token(self.route_headers(container, ip, port)?, token)).await
    }

    /// Opens a stream to the podbayd of a Sandbox, whose pod the router has to find.
    pub(crate) async fn connect_by_name(
        &self,
        namespace: &str,
        sandbox: &str,
        port: u16,
        token: &str,
    ) -> Result<Box<dyn ByteStream>, AddressFailure> {
        let place = format!("port {port} of the Sandbox {namespace}/{sandbox} through {}", self.destination);
        self.open(&place, || with_token(self.name_headers(namespace, sandbox, port)?, token)).await
    }

    /// Opens a stream to wherever the headers lead. They are made anew for each attempt: tokens expire.
    async fn open(
        &self,
        place: &str,
        headers: impl Fn() -> Result<HeaderMap, String>,
    ) -> Result<Box<dyn ByteStream>, AddressFailure> {
        let router = |error: String| AddressFailure::Router(place.to_owned(), error);
        let ask = || async {
            let (stream, host, prefix) =
                self.destination.open(&self.cluster.client, &self.tls).await.map_err(router)?;
            upgrade(stream, place, &host, &prefix, headers().map_err(router)?).await
        };
        let ask = || async {
            let limit = self.destination.limit();
            let late = |_| Err(AddressFailure::Silent(place.to_owned(), limit.as_secs()));
            timeout(limit, ask()).await.unwrap_or_else(late)
        };
        let begun = Instant::now();
        let mut made_room = false;
        loop {
            match ask().await {
                Ok(stream) => return Ok(Box::new(self.connections.track(stream))),
                // It serves this client, so it may have no room for more.
                Err(AddressFailure::Forbidden(..)) if self.connections.are_open() && begun.elapsed() < ROOM => {
                    made_room = made_room || self.connections.close_least_recently_used();
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Asks the router how it is. Returns where it is; what leads to it may answer in its place.
    ///
    /// # Errors
    /// When it doesn't answer as a router does.
    pub(crate) async fn greet(&self) -> Result<String, String> {
        let ask = async {
            let (mut stream, host, prefix) = self.destination.open(&self.cluster.client, &self.tls).await?;
            let request = format!("GET {prefix}/healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
            stream.flush().await.map_err(|error| error.to_string())?;
            Answer::read(&mut stream).await
        };
        let late = |_| Err(format!("no answer in {} s", LIMIT.as_secs()));
        let place = &self.destination;
        match timeout(self.destination.limit(), ask).await.unwrap_or_else(late) {
            Ok(answer) if answer.status == 200 => Ok(place.to_string()),
            Ok(answer) => Err(format!("{place} answers /healthz with {}; check that it is the router", answer.status)),
            Err(why) => Err(format!("{place}: {why}")),
        }
    }

    /// What the router itself wants to see, for a pod.
    fn route_headers(&self, container: &Container, ip: IpAddr, port: u16) -> Result<HeaderMap, String> {
        let mut headers = self.name_headers(&container.namespace, &container.pod, port)?;
        // A router that checks scoped tokens refuses to be told an address.
        if self.scoped_key.is_none() {
            insert(&mut headers, "x-sandbox-pod-ip", &ip.to_string())?;
        }
        Ok(headers)
    }

    /// The same for a Sandbox, which has the name of its pod.
    fn name_headers(&self, namespace: &str, sandbox: &str, port: u16) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        insert(&mut headers, "x-sandbox-id", sandbox)?;
        insert(&mut headers, "x-sandbox-namespace", namespace)?;
        insert(&mut headers, "x-sandbox-port", &port.to_string())?;
        if let Some(key) = &self.scoped_key {
            let now = self.cluster.clock.now().as_second();
            insert(&mut headers, "authorization", &format!("Bearer {}", key.sign(namespace, sandbox, now)))?;
        }
        if let Some(path) = &self.token_file {
            // Read again each time: tokens of service accounts are rotated.
            let token = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            insert(&mut headers, "authorization", &format!("Bearer {}", token.trim()))?;
        }
        Ok(headers)
    }
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<(), String> {
    let value = HeaderValue::from_str(value).map_err(|_| format!("the header {name} can't be sent"))?;
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}

/// Adds what podbayd wants to see.
fn with_token(mut headers: HeaderMap, token: &str) -> Result<HeaderMap, String> {
    insert(&mut headers, TOKEN, token)?;
    Ok(headers)
}

/// Asks for a WebSocket, and returns the bytes that it carries.
async fn upgrade<S>(
    mut stream: S,
    place: &str,
    host: &str,
    prefix: &str,
    mut headers: HeaderMap,
) -> Result<Box<dyn ByteStream>, AddressFailure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let broken = |error: &dyn std::fmt::Display| AddressFailure::Router(place.to_owned(), error.to_string());
    let handshake = Handshake::start_without_protocol(&mut headers).map_err(|error| broken(&error))?;
    let mut request = format!("GET {prefix}{TCP_PATH} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    for (name, value) in &headers {
        request.extend_from_slice(name.as_str().as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(|error| broken(&error))?;
    stream.flush().await.map_err(|error| broken(&error))?;
    let answer = Answer::read(&mut stream).await.map_err(|error| broken(&error))?;
    if answer.status != 101 {
        return Err(answer.failure(place, &mut stream).await);
    }
    handshake.finish(&answer.headers).map_err(|error| broken(&error))?;
    if !answer.rest.is_empty() {
        return Err(AddressFailure::NotPodbayd(place.to_owned(), "it sent data before it got a request".into()));
    }
    Ok(Box::new(WebSocketBytes::new(websocket::over(stream).await)))
}

/// The head of an answer, and what has arrived after it.
struct Answer {
    status: u16,
    headers: HeaderMap,
    rest: Vec<u8>,
}

impl Answer {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(512);
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if bytes.len() > LARGEST_ANSWER {
                return Err("the answer isn't HTTP".into());
            }
            match stream.read_buf(&mut bytes).await {
                Ok(0) => return Err("the connection was closed without an answer".into()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        };
        let rest = bytes.split_off(end + 4);
        let head = String::from_utf8_lossy(&bytes);
        let mut lines = head.trim_end().split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        let status = status.ok_or_else(|| "the answer isn't HTTP".to_owned())?;
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value.trim())) {
                headers.append(name, value);
            }
        }
        Ok(Self { status, headers, rest })
    }

    /// What an answer means that isn't an upgrade.
    async fn failure(mut self, place: &str, stream: &mut (impl AsyncRead + Unpin)) -> AddressFailure {
        let length = self.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let wanted = usize::min(length.unwrap_or(0), LARGEST_ANSWER);
        while self.rest.len() < wanted && matches!(stream.read_buf(&mut self.rest).await, Ok(1..)) {}
        let place = place.to_owned();
        // podbayd's own refusal, which the router passes on.
        if let Ok(error) = serde_json::from_slice::<ProtoError>(&self.rest)
            && error.code == ErrorCode::Unauthorized
        {
            return AddressFailure::Refused(place, error.message);
        }
        let json: serde_json::Value = serde_json::from_slice(&self.rest).unwrap_or_default();
        let detail = json["detail"]
            .as_str()
            .map_or_else(|| String::from_utf8_lossy(&self.rest).chars().take(300).collect::<String>(), str::to_owned);
        let detail = if detail.trim().is_empty() { String::new() } else { format!(": {}", detail.trim()) };
        match self.status {
            401 => AddressFailure::Router(
                place,
                format!(
                    "it refuses this client (401{detail}): check agent_sandbox.router_token_file or \
                     agent_sandbox.router_scoped_key_file"
                ),
            ),
            403 => AddressFailure::Forbidden(place, detail),
            // The router couldn't connect to the pod.
            502 | 504 => AddressFailure::NotListening(place),
            300..=399 => AddressFailure::Router(
                place,
                format!("it redirects elsewhere ({}), which isn't followed: set the final URL", self.status),
            ),
            status => AddressFailure::Router(
                place,
                format!(
                    "it refused the WebSocket upgrade (status {status}{detail}): configure the load balancer or proxy \
                     in between to allow upgrades, or set cluster.connection to exec, in-cluster or tunnel"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod on_the_wire;

#[cfg(test)]
mod tests {
    use super::*;

    async fn against(answer: &'static str) -> AddressFailure {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let server = tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                far.read_buf(&mut request).await.unwrap();
            }
            far.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-sandbox-id"), HeaderValue::from_static("a"))]);
        let failure = upgrade(near, "the router", "router:8080", "/prefix", headers).await.err().unwrap();
        let request = server.await.unwrap();
        assert!(request.starts_with("GET /prefix/podbay/v1 HTTP/1.1\r\nHost: router:8080\r\n"), "{request}");
        assert!(request.contains("x-sandbox-id: a\r\n") && request.contains("upgrade: websocket\r\n"), "{request}");
        failure
    }

    #[tokio::test]
    async fn every_answer_says_what_to_do() {
        let body = r#"{"code":"unauthorized","message":"the token has expired"}"#;
        let refused: &'static str =
            format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{body}", body.len()).leak();
        assert!(matches!(against(refused).await, AddressFailure::Refused(_, why) if why == "the token has expired"));
        assert!(matches!(against("HTTP/1.1 502 Bad Gateway\r\n\r\n").await, AddressFailure::NotListening(_)));
        for (answer, words) in [
            ("HTTP/1.1 401 X\r\nContent-Length: 29\r\n\r\n{\"detail\": \"Invalid token.\"}\n", "Invalid token."),
            ("HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", "redirects"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "refused the WebSocket upgrade (status 200: hi)"),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "isn't WebSocket"),
            ("SSH-2.0-x\r\n\r\n", "isn't HTTP"),
            ("", "closed without an answer"),
        ] {
            let failure = against(answer).await.to_string();
            assert!(failure.contains(words), "{failure}");
        }
    }

    #[test]
    fn headers_of_the_protocol_cannot_be_set() {
        for name in ["X-Sandbox-Pod-IP", "Host", "sec-websocket-key", "X-Podbay-Token", "bad name"] {
            let headers = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            let config = RouterConfig { headers: Some(&headers), ..RouterConfig::default() };
            assert!(config.check(Way::Tunnel).is_err(), "{name}");
        }
        let headers = BTreeMap::from([("X-Team".to_owned(), "blue".to_owned())]);
        RouterConfig { headers: Some(&headers), ..RouterConfig::default() }.check(Way::Tunnel).unwrap();
        assert!(RouterConfig::default().check(Way::Direct).is_err());
        let both = RouterConfig { token_file: Some("a"), scoped_key_file: Some("b"), ..RouterConfig::default() };
        assert!(both.check(Way::Tunnel).is_err());
    }
}
