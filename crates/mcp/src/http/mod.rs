//! The server over streamable HTTP: many sessions, each bound to the token that opened it.
//!
//! Requests pass access control before they reach rmcp's service: it checks the token, binds each session to it, limits sessions,
//! connections and bodies, and ends sessions that nobody uses. Without tokens it serves the server's own user only.

mod access;
pub(crate) mod activity;
mod peer;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use podbay::{LazySandbox, Podbay};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::options::Options;
use crate::server::Server;
use crate::session::{Leftovers, Session, SessionSlot};
use access::AccessControl;
pub use tokens::{ListenError, Tokens};

/// How many connections are open at once. Further ones wait.
const CONNECTIONS: usize = 1024;

/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// How long the connection of somebody who may not use the server lasts.
const STRANGER: Duration = Duration::from_secs(2);

/// How long the end waits for sandboxes to be deleted.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// How long the events of a request that was cancelled are kept.
const COMPLETED: Duration = Duration::from_secs(1);

/// The longest body of a request.
const LONGEST: usize = 16 << 20;

/// How a server listens.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Who may use it. If empty, the server's own user and root, which [`check`](Self::check) allows on loopback only; where the
    /// system isn't Linux, every user of the machine.
    pub tokens: Tokens,
    /// The names by which clients may call it, besides those of the loopback device. On any other address every name is accepted.
    pub hosts: Vec<String>,
    /// The origins of web pages that may use it. All others are refused.
    pub origins: Vec<String>,
    /// How many sessions there are at once.
    pub sessions: usize,
    /// How long a session may be idle before it ends, with its sandbox.
    pub idle: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            sessions: Self::SESSIONS,
            idle: Self::IDLE,
        }
    }
}

impl HttpOptions {
    /// The default of [`sessions`](Self::sessions).
    pub const SESSIONS: usize = 64;

    /// The default of [`idle`](Self::idle).
    pub const IDLE: Duration = Duration::from_secs(3600);

    /// Whether the address can be listened on with these options.
    ///
    /// # Errors
    /// When others could reach it without a token.
    pub fn check(&self, address: &SocketAddr) -> Result<(), ListenError> {
        match self.tokens.is_empty() && !address.ip().to_canonical().is_loopback() {
            true => Err(ListenError::Needed(*address)),
            false => Ok(()),
        }
    }

    fn config(&self, address: &SocketAddr) -> StreamableHttpServerConfig {
        let config = StreamableHttpServerConfig::default()
            .with_allowed_origins(self.origins.clone())
            .enforce_origin_validation()
            .with_max_request_body_bytes(LONGEST);
        match address.ip().to_canonical().is_loopback() {
            // Against web pages whose name is made to lead here (DNS rebinding).
            true => {
                let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
                config.with_allowed_hosts(own.into_iter().chain(self.hosts.iter().cloned()))
            }
            false if self.hosts.is_empty() => config.disable_allowed_hosts(),
            false => config.with_allowed_hosts(self.hosts.clone()),
        }
    }
}

/// Serves sessions until `end` is ready, then ends them all and deletes their sandboxes.
///
/// # Errors
/// When the address may not be listened on without a token, or can't be.
pub async fn serve(
    podbay: &Podbay,
    options: Options,
    http: HttpOptions,
    listener: TcpListener,
    end: impl Future<Output = ()>,
) -> Result<(), ListenError> {
    let address = listener.local_addr().map_err(ListenError::Listen)?;
    http.check(&address)?;
    let (leftovers, left) = mpsc::unbounded_channel();
    let cleaner = tokio::spawn(delete(left));
    let config = http.config(&address);
    let cancelled = config.cancellation_token.clone();
    let mut manager = LocalSessionManager::default();
    // Access control ends idle sessions: rmcp would also end those in which a long command is silent.
    let mut session_config = SessionConfig::default();
    session_config.keep_alive = None;
    // rmcp drops an answer that was sent, but keeps the events of cancelled requests, however many, for a minute by default. Requests
    // that are under way can be resumed whatever this is.
    session_config.completed_cache_ttl = COMPLETED;
    manager.session_config = session_config;
    let manager = Arc::new(manager);
    let own_sandboxes = options.sandbox.is_none();
    let factory = factory(podbay, Arc::new(options), leftovers);
    let service = StreamableHttpService::new(factory, manager.clone(), config);
    let access = Arc::new(AccessControl::new(service, manager, http, own_sandboxes));
    {
        let sweeping = access.sweep();
        let serving = accept(listener, access.clone());
        tokio::select! {
            () = sweeping => {}
            () = serving => {}
            () = end => {}
        }
    }
    access.close().await;
    cancelled.cancel();
    drop(access);
    // The last session is gone when its last call has ended; then nothing can be left any more.
    if tokio::time::timeout(SHUTDOWN_LIMIT, cleaner).await.is_err() {
        tracing::warn!("sandboxes couldn't be deleted in time; they end by their lifetime");
    }
    Ok(())
}

/// Makes the server of a new session. With one sandbox for all there is one session behind them.
fn factory(
    podbay: &Podbay,
    options: Arc<Options>,
    leftovers: Leftovers,
) -> impl Fn() -> Result<Server, std::io::Error> + Send + Sync + 'static {
    let podbay = podbay.clone();
    let shared = options.sandbox.is_some().then(|| Arc::new(Session::new(&podbay, &options, None)));
    move || {
        let session = match &shared {
            Some(session) => session.clone(),
            None => Arc::new(Session::new(&podbay, &options, Some(leftovers.clone()))),
        };
        Ok(Server::over_http(session))
    }
}

/// Deletes the sandboxes of sessions that ended, until there can be no more of them.
async fn delete(mut left: mpsc::UnboundedReceiver<(LazySandbox, SessionSlot)>) {
    let mut deletions = JoinSet::new();
    while let Some((sandbox, slot)) = left.recv().await {
        deletions.spawn(async move {
            let _slot = slot;
            for pause in [1, 5, 0] {
                match sandbox.close().await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(id = sandbox.id(), %error, "a session's sandbox couldn't be deleted"),
                }
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
        });
        while deletions.try_join_next().is_some() {}
    }
    deletions.join_all().await;
}

async fn accept(listener: TcpListener, access: Arc<AccessControl>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most often too many open files: a moment later some are closed.
                tracing::warn!(%error, "a connection couldn't be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small messages go out at once.
        let _ = stream.set_nodelay(true);
        let access = access.clone();
        connections.spawn(async move {
            let stranger = access.stranger(&stream).await;
            // A stranger hears why, and may not take up room meanwhile.
            let limit = if stranger.is_some() { STRANGER } else { Duration::MAX };
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(stranger.is_none());
            let service = service_fn(move |request| {
                let (access, stranger) = (access.clone(), stranger.clone());
                async move {
                    match stranger {
                        None => access.handle(request).await,
                        Some(stranger) => Ok(AccessControl::turn_away(&stranger)),
                    }
                }
            });
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(limit, connection).await {
                tracing::debug!(%error, "a connection broke");
            }
            drop(slot);
        });
        while connections.try_join_next().is_some() {}
    }
}
