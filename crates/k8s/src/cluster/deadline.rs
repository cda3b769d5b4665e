//! Deadlines for the API server's answers, so that nobody waits on a dead connection.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

/// How long an API server may take, as a layer around a service that sends requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// Until an answer begins.
    pub(crate) answer: Duration,
    /// Between two pieces of an answer.
    pub(crate) piece: Duration,
    /// Between two events of a watch. API servers send a bookmark about every minute if nothing else happens. With one that
    /// sends none, a new watch is started this often, which costs a request.
    pub(crate) event: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { answer: 30 * second, piece: 30 * second, event: 150 * second }
    }
}

impl<S> Layer<S> for Deadlines {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, deadlines: *self }
    }
}

/// Sends requests, with deadlines for the answers.
#[derive(Debug, Clone)]
pub(crate) struct Deadline<S> {
    inner: S,
    deadlines: Deadlines,
}

impl<S, A, B> Service<Request<A>> for Deadline<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<TimedBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let Deadlines { answer, piece, event } = self.deadlines;
        let watches = is_watch(request.uri().query().unwrap_or_default());
        let quiet = if watches { event } else { piece };
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = tokio::time::timeout(answer, response).await.map_err(|_| late("sent no answer", answer))?;
            Ok(response.map_err(Into::into)?.map(|body| TimedBody::new(body, quiet, watches)))
        })
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"))
}

fn late(what: &str, after: Duration) -> BoxError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, format!("the API server {what} within {after:?}")).into()
}

/// A body that may be silent only for so long. A watch ends then, as it does every few minutes anyway, and is resumed; any
/// other answer fails.
#[derive(Debug)]
pub(crate) struct TimedBody<B> {
    body: B,
    quiet: Duration,
    watches: bool,
    silence: Pin<Box<Sleep>>,
}

impl<B> TimedBody<B> {
    fn new(body: B, quiet: Duration, watches: bool) -> Self {
        Self { body, quiet, watches, silence: Box::pin(tokio::time::sleep(quiet)) }
    }
}

impl<B: Body + Unpin> Body for TimedBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let until = Instant::now() + self.quiet;
            self.silence.as_mut().reset(until);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.silence.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if self.watches => {
                tracing::debug!(after = ?self.quiet, "ended a silent watch");
                Poll::Ready(None)
            }
            Poll::Ready(()) => Poll::Ready(Some(Err(late("sent no more of its answer", self.quiet)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
