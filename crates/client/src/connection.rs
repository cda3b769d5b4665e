//! One HTTP/2 connection to podbayd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header::HeaderValue};
use hyper::body::Incoming as HttpBody;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use podbay_proto::body::{Incoming, MessageBody, Payload, PayloadBuffer};
use podbay_proto::message::{MAX_ANSWER, decode_head, encode_request};
use podbay_proto::session::{BULK, REQUEST_ID, TOKEN, Welcome};
use podbay_proto::{Operation, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use crate::channel::Channel;
use crate::error::Error;
use crate::guard::Permit;

/// The most bytes of a payload that is collected when its operation doesn't say how many it will be.
const MAX_COLLECTED: usize = 64 << 20;

/// How long the head of an answer may take once the answer has begun. Of a large directory it has megabytes.
const HEAD: Duration = Duration::from_secs(300);

/// How long a caller waits in all for a payload, and how many bytes buy another second: the slowest network that is waited for.
/// A trickle would otherwise never end.
const SILENCE: Duration = Duration::from_secs(60);
const SLOWEST: u64 = 1 << 10;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Everything, with small windows so that answers come soon.
    Shared,
    /// Large transfers.
    Bulk,
}

/// The longest version or instance in a greeting.
const MAX_NAME: usize = 128;

/// The longest path in a greeting: Linux's limit.
const PATH_MAX: usize = 4096;

/// A connection that is open, or was when it was last used.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    sender: SendRequest<MessageBody>,
    /// Where tokens come from, if podbayd wants any.
    credentials: Option<Arc<dyn Channel>>,
    /// Who is at the other end.
    pub(crate) welcome: Welcome,
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection broke. The request may or may not have been served.
    Broken(String),
    /// There is an answer, and it is an error; or trying again can't help.
    Final(Error),
}

/// An answer: its head, and its payload still to come.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) head: T,
    pub(crate) payload: Incoming<HttpBody>,
}

impl Connection {
    /// Opens a connection and learns who is there.
    pub(crate) async fn open(channel: &Arc<dyn Channel>, purpose: Purpose) -> Result<Self, Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::Broken(error.to_string());
        let mut stream = channel.open().await.map_err(not_opened)?;
        let bulk = purpose == Purpose::Bulk;
        if bulk {
            stream.write_all(&[BULK]).await.map_err(|error| broken(&error))?;
        }
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_connection_window_size(1 << 30)
            .initial_stream_window_size(if bulk { 16 << 20 } else { 256 << 10 })
            .max_frame_size(64 << 10)
            .max_send_buf_size(if bulk { 4 << 20 } else { 256 << 10 })
            .max_concurrent_reset_streams(1_024)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(40))
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                // Whoever has a request under way learns of it there.
                tracing::debug!(%error, "a connection to podbayd ended");
            }
        });
        let wanted = channel.credential().await.map_err(not_opened)?.is_some();
        let credentials = wanted.then(|| channel.clone());
        let mut connection = Self { sender, credentials, welcome: nobody() };
        connection.welcome = connection.ask(&Permit::hello(), None, Bytes::new()).await?.head;
        if connection.welcome.version.major != VERSION.major {
            let message = format!(
                "podbayd in the sandbox speaks protocol {} and this client {VERSION}: update the older of the two",
                connection.welcome.version
            );
            return Err(Failure::Final(Error::VersionMismatch(message)));
        }
        if let Some(part) = oversized(&connection.welcome) {
            let reason = format!("its {part} is too long to be one");
            return Err(Failure::Final(Error::BadAnswer { what: "hello", reason }));
        }
        Ok(connection)
    }

    /// The token for a request. A connection may stay open for longer than a token is valid.
    async fn token(&self) -> Result<Option<HeaderValue>, Failure> {
        let Some(channel) = &self.credentials else { return Ok(None) };
        let token = channel.credential().await.map_err(not_opened)?;
        token.map(HeaderValue::try_from).transpose().map_err(|_| {
            Failure::Final(Error::BadAnswer { what: "the token", reason: "it can't be sent in a header".into() })
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request whose payload is in memory.
    pub(crate) async fn ask<O: Operation>(
        &self,
        permit: &Permit<O>,
        id: Option<&str>,
        payload: Bytes,
    ) -> Result<Answer<O::Output>, Failure> {
        self.send(permit, id, Payload::Bytes(payload)).await
    }

    /// Sends a request.
    pub(crate) async fn send<O: Operation>(
        &self,
        permit: &Permit<O>,
        id: Option<&str>,
        payload: Payload,
    ) -> Result<Answer<O::Output>, Failure> {
        let head = encode_request(&**permit).map_err(|error| Failure::Final(error.into()))?;
        let mut http = Request::post(format!("http://podbayd/v{}/{}", VERSION.major, O::NAME));
        if let Some(id) = id {
            http = http.header(REQUEST_ID, id);
        }
        if let Some(token) = self.token().await? {
            http = http.header(TOKEN, token);
        }
        let taken = Arc::new(AtomicU64::new(0));
        let http = http.body(MessageBody::new(head, payload).counted(taken.clone())).map_err(|error| {
            Failure::Final(Error::BadAnswer { what: O::NAME, reason: format!("the request can't be made: {error}") })
        })?;
        let mut sender = self.sender.clone();
        let response = sender.send_request(http);
        let response = match permit.answer_within() {
            Some(within) => while_taken(O::NAME, within, &taken, response).await?,
            None => response.await,
        };
        let response = response.map_err(|error| Failure::Broken(describe(&error)))?;
        let status = response.status();
        // A body that ends early is a connection that broke, or a podbayd that did; asking again tells.
        let body = timeout(HEAD, Incoming::read(response.into_body(), MAX_ANSWER));
        let body = body.await.map_err(|_| silent(O::NAME, HEAD))?.map_err(|error| Failure::Broken(error.message))?;
        let bad = |error: podbay_proto::Error| Error::BadAnswer { what: O::NAME, reason: error.message };
        if !status.is_success() {
            let error = decode_head::<podbay_proto::Error>(&body.head).map_err(|error| Failure::Final(bad(error)))?;
            return Err(match error.code {
                podbay_proto::ErrorCode::VersionMismatch => Failure::Final(Error::VersionMismatch(error.message)),
                _ => Failure::Final(error.into()),
            });
        }
        let head = decode_head(&body.head).map_err(|error| Failure::Final(bad(error)))?;
        Ok(Answer { head, payload: body })
    }
}

impl<T> Answer<T> {
    /// The head and the whole payload, which may have at most `most` bytes.
    pub(crate) async fn collect(mut self, most: Option<usize>) -> Result<(T, Bytes), Failure> {
        let mut payload = PayloadBuffer::at_most(most.unwrap_or(MAX_COLLECTED));
        let mut pace = Pace::default();
        while let Some(piece) = pace.next(&mut self.payload).await? {
            let too_large = |error: podbay_proto::Error| Error::BadAnswer { what: "a request", reason: error.message };
            payload.push(piece).map_err(|error| Failure::Final(too_large(error)))?;
        }
        Ok((self.head, payload.into_bytes()))
    }
}

/// How long was waited for the pieces of a payload. What the caller does between two of them takes no time.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// The next piece of a payload.
    ///
    /// # Errors
    /// When the connection breaks, or the payload comes slower than any network.
    pub(crate) async fn next(&mut self, payload: &mut Incoming<HttpBody>) -> Result<Option<Bytes>, Failure> {
        let allowed = SILENCE.saturating_add(Duration::from_secs(self.bytes / SLOWEST));
        let begun = Instant::now();
        let piece = timeout(allowed.saturating_sub(self.waited), payload.next()).await;
        self.waited += begun.elapsed();
        let piece = piece.map_err(|_| silent("the rest of an answer", self.waited))?;
        let piece = piece.map_err(|error| Failure::Broken(error.message))?;
        self.bytes += piece.as_ref().map_or(0, Bytes::len) as u64;
        Ok(piece)
    }
}

/// Waits for an answer. The time begins anew while the other side still takes the request.
async fn while_taken<T>(
    what: &'static str,
    within: Duration,
    taken: &AtomicU64,
    answer: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::pin!(answer);
    let mut before = taken.load(Ordering::Relaxed);
    loop {
        if let Ok(answer) = timeout(within, &mut answer).await {
            return Ok(answer);
        }
        let now = taken.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, now) == now {
            return Err(silent(what, within));
        }
    }
}

fn silent(what: &'static str, time: Duration) -> Failure {
    Failure::Final(Error::NoAnswer { what, seconds: time.as_secs() })
}

/// A channel that knows that trying again can't help says so by an error of ours.
fn not_opened(error: std::io::Error) -> Failure {
    match error.downcast::<Error>() {
        Ok(error) => Failure::Final(error),
        Err(error) => Failure::Broken(error.to_string()),
    }
}

fn nobody() -> Welcome {
    Welcome {
        version: VERSION,
        build: String::new(),
        instance: String::new(),
        workdir: "/".into(),
        state: "/".into(),
        idle_ms: 0,
        running: 0,
    }
}

/// What is longer in a greeting than in any real one. Callers remember parts of it for many sandboxes.
fn oversized(welcome: &Welcome) -> Option<&'static str> {
    let parts = [
        ("version", welcome.build.len(), MAX_NAME),
        ("instance", welcome.instance.len(), MAX_NAME),
        ("working directory", welcome.workdir.as_bytes().len(), PATH_MAX),
        ("state directory", welcome.state.as_bytes().len(), PATH_MAX),
    ];
    parts.into_iter().find(|(_, length, most)| length > most).map(|(part, ..)| part)
}

/// hyper's errors say little by themselves; the reason is what they come from.
fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        text = format!("{text}: {reason}");
        source = reason.source();
    }
    text
}
