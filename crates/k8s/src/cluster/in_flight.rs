//! A bound on the requests under way to an API server, so that a program with a thousand sandboxes doesn't take all that the
//! server has for everybody.
//!
//! Whoever comes when it is reached waits; an answer's deadline begins after that. Watches and streams (exec, port-forward, logs
//! that are followed) live for long and cost the server little, so they neither count nor wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service, ServiceExt};

/// How many requests of one client are under way at most. An API server handles 400 of all its clients by default
/// (`--max-requests-inflight`), 200 of them changes.
pub(crate) const MOST: usize = 64;

/// The bound, as a layer around a service that sends requests. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct InFlight(Arc<Semaphore>);

impl Default for InFlight {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl<S> Layer<S> for InFlight {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bound: self.clone() }
    }
}

/// Sends requests, not too many at once.
#[derive(Debug, Clone)]
pub(crate) struct Bounded<S> {
    inner: S,
    bound: InFlight,
}

impl<S, A, B> Service<Request<A>> for Bounded<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    A: Send + 'static,
{
    type Response = Response<CountedBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each request waits by itself: one that waits for its turn mustn't keep a watch from starting.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (inner, permits) = (self.inner.clone(), self.bound.0.clone());
        Box::pin(async move {
            // The semaphore is never closed.
            let permit = if is_lasting(&request) { None } else { permits.acquire_owned().await.ok() };
            let response = inner.oneshot(request).await.map_err(Into::into)?;
            Ok(response.map(|body| CountedBody { body, permit }))
        })
    }
}

fn is_lasting<A>(request: &Request<A>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.headers().contains_key(header::UPGRADE)
        || query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true"))
}

/// A body whose request counts until it was read or dropped.
#[derive(Debug)]
pub(crate) struct CountedBody<B> {
    body: B,
    permit: Option<OwnedSemaphorePermit>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.permit = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
