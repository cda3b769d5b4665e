//! What a request passes before the protocol sees it: its token, its session, its size.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetMeta, ProtocolVersion, RequestId};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::activity::Entry;
use super::peer::{self, Stranger};
use super::tokens::Owner;
use super::{HttpOptions, LONGEST};
use crate::server::{Server, versions_with_sessions};

/// Where the protocol is spoken.
pub(super) const PATH: &str = "/mcp";

/// The header with a session's id.
const SESSION: &str = "mcp-session-id";

/// How long a client may take to send the body of a request.
const BODY: Duration = Duration::from_secs(60);

/// How long a new session waits for a slot. One that has just ended keeps its slot until its sandbox is deleted.
const SLOT_PATIENCE: Duration = Duration::from_secs(2);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Checks requests, and keeps track of sessions.
pub(super) struct AccessControl {
    service: StreamableHttpService<Server, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    options: HttpOptions,
    /// Whether each session has a sandbox of its own. Then nothing is done outside of a session.
    own_sandboxes: bool,
    sessions: Mutex<HashMap<String, Arc<Entry>>>,
    /// Room for sessions, and with them for their sandboxes.
    slots: Arc<Semaphore>,
}

impl AccessControl {
    pub(super) fn new(
        service: StreamableHttpService<Server, LocalSessionManager>,
        manager: Arc<LocalSessionManager>,
        options: HttpOptions,
        own_sandboxes: bool,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(options.sessions.min(Semaphore::MAX_PERMITS)));
        Self { service, manager, options, own_sandboxes, sessions: Mutex::default(), slots }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why whoever has connected can't use the server; nothing if they can, or if a token has to say so.
    pub(super) async fn stranger(&self, stream: &TcpStream) -> Option<Stranger> {
        if !self.options.tokens.is_empty() {
            return None;
        }
        let stranger = peer::check(stream).await.err()?;
        tracing::warn!(%stranger, "a connection was refused");
        Some(stranger)
    }

    /// Answers a stranger's request.
    pub(super) fn turn_away(stranger: &Stranger) -> Answer {
        *refused(StatusCode::FORBIDDEN, &stranger.to_string())
    }

    /// Answers a request.
    pub(super) async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        Ok(self.answer(request).await.unwrap_or_else(|refused| *refused))
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Result<Answer, Box<Answer>> {
        if request.uri().path() != PATH {
            return Err(refused(StatusCode::NOT_FOUND, &format!("not found: the MCP endpoint is {PATH}")));
        }
        let Some(owner) = self.options.tokens.owner(request.headers()) else {
            let mut answer = refused(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: send a token from the token file as 'Authorization: Bearer TOKEN'",
            );
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Err(answer);
        };
        let (mut parts, body) = request.into_parts();
        let id = match parts.headers.get(SESSION).map(|id| id.to_str()) {
            None => None,
            Some(Ok(id)) => Some(id.to_owned()),
            Some(Err(_)) => return Err(no_session()),
        };
        let entry = match &id {
            None => None,
            // Another's session looks like one that doesn't exist.
            Some(id) => {
                Some(self.sessions().get(id).filter(|entry| entry.belongs_to(owner)).cloned().ok_or_else(no_session)?)
            }
        };
        if let Some(entry) = entry {
            entry.touch();
            parts.extensions.insert(entry);
        }
        let body = tokio::time::timeout(BODY, Limited::new(body, LONGEST).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(refused(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the message is longer than 16 MiB: send less at once",
                ));
            }
            Ok(Err(_)) => return Err(refused(StatusCode::BAD_REQUEST, "the message is incomplete")),
            Err(_) => return Err(refused(StatusCode::REQUEST_TIMEOUT, "the message took too long to arrive")),
        };
        let mut opens = false;
        if parts.method == Method::POST {
            // By the same type as rmcp, so that both sides understand the same.
            let message: ClientJsonRpcMessage = serde_json::from_slice(&body).map_err(|_| {
                refused(StatusCode::BAD_REQUEST, "the body isn't a JSON-RPC message of the Model Context Protocol")
            })?;
            if self.own_sandboxes {
                within_session(&message, id.is_some())?;
            }
            opens = id.is_none() && is_initialize(&message);
        }
        let closes = id.filter(|_| parts.method == Method::DELETE);
        let request = Request::from_parts(parts, Full::new(body));
        if opens {
            return self.open(request, owner).await;
        }
        let Ok(answer) = self.service.clone().oneshot(request).await;
        if let Some(id) = closes.filter(|_| answer.status().is_success()) {
            self.sessions().remove(&id);
        }
        Ok(answer)
    }

    /// Opens a session, bound to its owner.
    async fn open(self: &Arc<Self>, mut request: Request<Full<Bytes>>, owner: Owner) -> Result<Answer, Box<Answer>> {
        self.forget_ended().await;
        let Ok(Ok(slot)) = tokio::time::timeout(SLOT_PATIENCE, self.slots.clone().acquire_owned()).await else {
            let mut answer = refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server has as many sessions as it allows: try again later, or end others",
            );
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("30"));
            return Err(answer);
        };
        let entry = Arc::new(Entry::new(owner, Arc::new(slot)));
        request.extensions_mut().insert(entry.clone());
        // In a task of its own: a client that hangs up meanwhile would leave a session behind that nobody knows and nobody ends.
        let access = self.clone();
        let opening = tokio::spawn(async move {
            let Ok(answer) = access.service.clone().oneshot(request).await;
            if let Some(id) = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
                access.sessions().insert(id.to_owned(), entry);
            }
            answer
        });
        opening.await.map_err(|error| {
            tracing::warn!(%error, "a session couldn't be opened");
            refused(StatusCode::INTERNAL_SERVER_ERROR, "the session couldn't be opened: try again")
        })
    }

    /// Forgets sessions that have ended by themselves.
    async fn forget_ended(&self) {
        // In this order: a session that is opened meanwhile is known to rmcp before it is known here.
        let known: Vec<String> = self.sessions().keys().cloned().collect();
        let live = self.manager.sessions.read().await;
        let mut sessions = self.sessions();
        for id in known.iter().filter(|id| !live.contains_key(id.as_str())) {
            sessions.remove(id);
        }
    }

    /// Ends sessions that nobody uses, forever.
    pub(super) async fn sweep(&self) {
        let pause = (self.options.idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(30));
        loop {
            tokio::time::sleep(pause).await;
            self.forget_ended().await;
            self.end(|entry| entry.idle() >= self.options.idle).await;
        }
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        self.end(|_| true).await;
    }

    async fn end(&self, which: impl Fn(&Arc<Entry>) -> bool) {
        let ids: Vec<String> = self.sessions().extract_if(|_, entry| which(entry)).map(|(id, _)| id).collect();
        for id in ids {
            if let Err(error) = self.manager.close_session(&id.as_str().into()).await {
                tracing::debug!(%error, "a session couldn't be ended");
            }
        }
    }
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

/// Refuses what rmcp would answer outside of a session: messages without one, and requests whose `_meta` makes them stand alone,
/// whatever session they name. Each would be served by itself, with a sandbox of its own.
fn within_session(message: &ClientJsonRpcMessage, has_session: bool) -> Result<(), Box<Answer>> {
    const NEEDED: &str = "each session has a sandbox of its own, so a session is needed: send initialize first, then each \
                          request with its Mcp-Session-Id and without a protocol version in _meta";
    let request = match message {
        ClientJsonRpcMessage::Request(request) => request,
        _ if has_session => return Ok(()),
        _ => return Err(refused(StatusCode::BAD_REQUEST, NEEDED)),
    };
    // The one opens a session, and the other only asks which versions are spoken.
    if matches!(request.request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)) {
        return Ok(());
    }
    let meta = request.request.get_meta();
    let stands_alone = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    match meta.protocol_version() {
        // Clients that prefer a version without sessions learn from this which ones there are.
        Some(version) if !versions_with_sessions().contains(&version) => {
            let error = ErrorData::unsupported_protocol_version(version, versions_with_sessions());
            Err(error_answer(StatusCode::BAD_REQUEST, Some(&request.id), &error))
        }
        _ if stands_alone || !has_session => {
            let error = ErrorData::invalid_request(NEEDED, None);
            Err(error_answer(StatusCode::BAD_REQUEST, Some(&request.id), &error))
        }
        _ => Ok(()),
    }
}

fn no_session() -> Box<Answer> {
    refused(StatusCode::NOT_FOUND, "there is no such session, or it has ended: initialize a new one")
}

/// A refusal in the protocol's form.
fn refused(status: StatusCode, message: &str) -> Box<Answer> {
    error_answer(status, None, &ErrorData::invalid_request(message.to_owned(), None))
}

fn error_answer(status: StatusCode, id: Option<&RequestId>, error: &ErrorData) -> Box<Answer> {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Box::new(answer)
}
