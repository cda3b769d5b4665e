//! Stands in for the API server and gives answers of its own.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::client::TestCluster;
use crate::pki::Pki;

/// A proxy that has the API server's own certificate, so clients trust it. It passes requests on, upgrades (exec,
/// port-forward) included, unless it was told to answer by itself. Ends when dropped.
pub struct ApiProxy {
    port: u16,
    script: Arc<Script>,
    subprotocol: Arc<Mutex<Option<HeaderValue>>>,
    _connections: JoinSet<()>,
}

/// What was asked of it, and what it does about that.
#[derive(Default)]
struct Script {
    answers: Mutex<Vec<Answer>>,
    holds: Mutex<Vec<Hold>>,
    /// By how much its clock differs from the API server's, in seconds.
    skew: AtomicI64,
    requests: Mutex<Vec<String>>,
}

/// A request that is to be held back.
struct Hold {
    method: Method,
    path: String,
    arrived: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

/// A request that is held back, once it is there. It goes on when this is dropped.
pub struct Held {
    arrived: Option<oneshot::Receiver<()>>,
    _release: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the request has arrived.
    pub async fn arrived(&mut self) -> Result<()> {
        match self.arrived.take() {
            Some(arrived) => arrived.await.context("the proxy is gone"),
            None => Ok(()),
        }
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

/// An answer to give instead of the API server's, and to which requests.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    method: Option<Method>,
    path: String,
    left: Option<u32>,
    retry_after: Option<u32>,
}

impl Answer {
    /// Answers every request with this status, until told otherwise.
    pub fn new(status: StatusCode) -> Self {
        Self { status, method: None, path: String::new(), left: None, retry_after: None }
    }

    /// Only requests with this method.
    #[must_use]
    pub fn to(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Only requests whose path and query contain this.
    #[must_use]
    pub fn on(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.left = Some(count);
        self
    }

    /// With a `Retry-After` header of so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    fn is_for<B>(&self, request: &Request<B>) -> bool {
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        self.left != Some(0)
            && self.method.as_ref().is_none_or(|method| method == request.method())
            && path.contains(&self.path)
    }

    /// The answer as the API server words it: a `Status` object with the reason that clients look at.
    fn response(&self) -> Response<Body> {
        let reason = match self.status.as_u16() {
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            _ => "Unknown",
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
            "message": format!("{reason}: as the test wanted"), "code": self.status.as_u16(),
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        let mut response = Response::new(full(status.to_string()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl ApiProxy {
    /// Starts one for this cluster. Use [`Access::through`](crate::Access::through) with its port.
    pub async fn start(cluster: &TestCluster) -> Result<Self> {
        let pki = Pki::at(cluster.directory().join("pki"));
        let certificates = CertificateDer::pem_file_iter(pki.file("apiserver.crt"))?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(pki.file("apiserver.key"))?;
        let server = ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(server));

        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let subprotocol = Arc::default();
        let tls = Arc::new(config.rustls_client_config()?);
        let upstream = Upstream { tls, port: cluster.port(), subprotocol: Arc::clone(&subprotocol) };

        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let script = Arc::<Script>::default();
        let mut connections = JoinSet::new();
        let shared = script.clone();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, upstream, script) = (acceptor.clone(), upstream.clone(), shared.clone());
                open.spawn(async move {
                    // An error here is the client's to see: its connection ends.
                    let _ = serve(client, acceptor, upstream, script).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, script, subprotocol, _connections: connections })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds an answer. The first that fits a request is given.
    pub fn answer(&self, answer: Answer) {
        locked(&self.script.answers).push(answer);
    }

    /// Holds the next request with this method whose path and query contain this, until what is given back is dropped.
    pub fn hold(&self, method: Method, path: impl Into<String>) -> Held {
        let ((arrived, arrives), (_release, release)) = (oneshot::channel(), oneshot::channel());
        locked(&self.script.holds).push(Hold { method, path: path.into(), arrived, release });
        Held { arrived: Some(arrives), _release }
    }

    /// Sets the clock by which answers are dated so many seconds forward, or back.
    pub fn set_clock(&self, seconds: i64) {
        self.script.skew.store(seconds, Ordering::Relaxed);
    }

    /// What was asked since this was last called: method, path and query, in order of arrival.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.script.requests))
    }

    /// Asks the API server for just this WebSocket subprotocol, whatever clients offer: as one that knows no other.
    pub fn insist_on(&self, subprotocol: &'static str) {
        let value = Some(HeaderValue::from_static(subprotocol));
        *self.subprotocol.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Lets the API server answer everything again.
    pub fn step_aside(&self) {
        *locked(&self.subprotocol) = None;
        locked(&self.script.answers).clear();
        locked(&self.script.holds).clear();
    }
}

/// The real API server.
#[derive(Clone)]
struct Upstream {
    tls: Arc<ClientConfig>,
    port: u16,
    subprotocol: Arc<Mutex<Option<HeaderValue>>>,
}

async fn serve(client: TcpStream, acceptor: TlsAcceptor, upstream: Upstream, script: Arc<Script>) -> Result<()> {
    client.set_nodelay(true)?;
    let client = acceptor.accept(client).await?;
    let service = service_fn(move |request: Request<Incoming>| {
        let (upstream, script) = (upstream.clone(), script.clone());
        async move {
            script.note(&request).await;
            let mut response = match script.own_answer(&request) {
                Some(response) => response,
                None => upstream.pass_on(request).await?,
            };
            script.date(&mut response)?;
            Ok::<_, anyhow::Error>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service);
    connection.with_upgrades().await.map_err(|error| anyhow::anyhow!("{error}"))
}

impl Script {
    /// Takes down a request, and holds it back if that is wanted.
    async fn note<B>(&self, request: &Request<B>) {
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        locked(&self.requests).push(format!("{} {path}", request.method()));
        let hold = {
            let mut holds = locked(&self.holds);
            let found = holds.iter().position(|hold| hold.method == request.method() && path.contains(&hold.path));
            found.map(|index| holds.remove(index))
        };
        if let Some(hold) = hold {
            let _ = hold.arrived.send(());
            // An error is what a sender that is dropped gives: the request goes on.
            let _ = hold.release.await;
        }
    }

    fn own_answer<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let mut answers = locked(&self.answers);
        let answer = answers.iter_mut().find(|answer| answer.is_for(request))?;
        answer.left = answer.left.map(|left| left - 1);
        Some(answer.response())
    }

    fn date(&self, response: &mut Response<Body>) -> Result<()> {
        let skew = self.skew.load(Ordering::Relaxed);
        if skew != 0 {
            let date = Timestamp::from_second(Timestamp::now().as_second() + skew)?;
            let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&date)?;
            response.headers_mut().insert(header::DATE, HeaderValue::from_str(&text)?);
        }
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    /// Sends one request to the API server over a connection of its own: slow, but nothing is shared between requests.
    async fn pass_on(&self, mut request: Request<Incoming>) -> Result<Response<Body>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.context("the API server can't be reached")?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());

        let insisted = self.subprotocol.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(value) = insisted
            && request.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL)
        {
            request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        let from_client = hyper::upgrade::on(&mut request);
        let mut response = sender.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let from_server = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(client), Ok(server)) = (from_client.await, from_server.await) {
                    // Either side may end it, in order or not.
                    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
                }
            });
        }
        Ok(response.map(BodyExt::boxed))
    }
}

fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed()
}
