//! Stands in for the API server and gives answers of its own.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::client::TestCluster;
use crate::pki::Pki;

/// A proxy that has the API server's own certificate, so clients trust it. It passes requests on, upgrades (exec,
/// port-forward) included, unless it was told to answer by itself. Ends when dropped.
pub struct Impostor {
    port: u16,
    answers: Answers,
    subprotocol: Arc<Mutex<Option<HeaderValue>>>,
    _connections: JoinSet<()>,
}

type Answers = Arc<Mutex<Vec<Answer>>>;
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

impl Impostor {
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
        let answers = Answers::default();
        let mut connections = JoinSet::new();
        let shared = answers.clone();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, upstream, answers) = (acceptor.clone(), upstream.clone(), shared.clone());
                open.spawn(async move {
                    // An error here is the client's to see: its connection ends.
                    let _ = serve(client, acceptor, upstream, answers).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, answers, subprotocol, _connections: connections })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds an answer. The first that fits a request is given.
    pub fn answer(&self, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }

    /// Asks the API server for just this WebSocket subprotocol, whatever clients offer: as one that knows no other.
    pub fn insist_on(&self, subprotocol: &'static str) {
        let value = Some(HeaderValue::from_static(subprotocol));
        *self.subprotocol.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Lets the API server answer everything again.
    pub fn step_aside(&self) {
        *self.subprotocol.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The real API server.
#[derive(Clone)]
struct Upstream {
    tls: Arc<ClientConfig>,
    port: u16,
    subprotocol: Arc<Mutex<Option<HeaderValue>>>,
}

async fn serve(client: TcpStream, acceptor: TlsAcceptor, upstream: Upstream, answers: Answers) -> Result<()> {
    client.set_nodelay(true)?;
    let client = acceptor.accept(client).await?;
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = own_answer(&answers, &request);
        let upstream = upstream.clone();
        async move {
            match answer {
                Some(response) => Ok(response),
                None => upstream.pass_on(request).await,
            }
        }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service);
    connection.with_upgrades().await.map_err(|error| anyhow::anyhow!("{error}"))
}

fn own_answer<B>(answers: &Answers, request: &Request<B>) -> Option<Response<Body>> {
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = answers.iter_mut().find(|answer| answer.is_for(request))?;
    answer.left = answer.left.map(|left| left - 1);
    Some(answer.response())
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
