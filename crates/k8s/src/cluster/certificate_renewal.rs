//! Renews the client certificates of exec plugins before they expire.
//!
//! kube runs a plugin again when its token expires. A certificate is part of the TLS configuration, so a new one takes a new
//! stack below the client. Open streams stay open: API servers check a certificate once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use tokio::sync::Mutex;
use tower::{BoxError, ServiceExt};

use crate::cluster::Service;
use crate::cluster::deadline::TimedBody;

/// How long to wait before a plugin that failed is run again.
const RETRY: Duration = Duration::from_secs(10);

/// Creates the stack that sends requests, and says when its credentials expire.
type Make = dyn Fn() -> Result<(Service, Option<Timestamp>), kube::Error> + Send + Sync;

/// Sends requests with credentials that haven't expired.
#[derive(Clone)]
pub(crate) struct RenewingService {
    make: Arc<Make>,
    current: Arc<Mutex<Current>>,
}

struct Current {
    service: Service,
    /// When to renew.
    due: Option<Timestamp>,
    expires: Option<Timestamp>,
}

impl Current {
    /// RenewingService when a fifth of the time is left, so that a plugin which fails once may be asked again.
    fn new(service: Service, expires: Option<Timestamp>) -> Self {
        let now = Timestamp::now();
        let due = expires.map(|expires| now + now.duration_until(expires) * 4 / 5);
        Self { service, due, expires }
    }
}

impl RenewingService {
    pub(crate) fn new(
        service: Service,
        expires: Option<Timestamp>,
        make: impl Fn() -> Result<(Service, Option<Timestamp>), kube::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { make: Arc::new(make), current: Arc::new(Mutex::new(Current::new(service, expires))) }
    }

    /// The stack to use now. Whoever finds that it is due renews it while the others wait.
    async fn current(&self) -> Result<Service, BoxError> {
        let mut current = self.current.lock().await;
        let now = Timestamp::now();
        if current.due.is_some_and(|due| due <= now) {
            let make = self.make.clone();
            match tokio::task::spawn_blocking(move || make()).await? {
                Ok((service, expires)) => *current = Current::new(service, expires),
                Err(error) if current.expires.is_some_and(|expires| expires <= now) => return Err(error.into()),
                // The old certificate is valid a little longer. The plugin isn't run again for every request until then.
                Err(error) => {
                    tracing::warn!(%error, "the exec plugin returned no new certificate");
                    current.due = Some(now + RETRY);
                }
            }
        }
        Ok(current.service.clone())
    }
}

impl tower::Service<Request<Body>> for RenewingService {
    type Response = Response<TimedBody<Incoming>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.current().await?.oneshot(request).await })
    }
}
