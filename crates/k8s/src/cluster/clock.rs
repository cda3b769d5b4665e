//! The API server's clock, learned from the `Date` header of its answers.
//!
//! Programs on other machines read the times in a Lease, and some of them delete because of what they read. So one clock has
//! to decide, and the API server's is the only one that everybody sees. An answer's `Date` is the time at some moment between
//! the request and its answer, truncated to a second: that bounds the server's time from both sides, and several answers
//! together bound it to about one round trip. The lower bound is what counts as now, so an age that is measured by it is
//! never too high.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response, header};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use tower::{Layer, Service};

/// An estimate of the API server's clock. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// Moments are measured from here. This clock is monotonic, unlike the one that tells the date.
    anchor: Instant,
    /// The server's time at the anchor, in microseconds since 1970.
    bounds: Arc<Mutex<Option<Bounds>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    earliest: i64,
    latest: i64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { anchor: Instant::now(), bounds: Arc::default() }
    }

    /// Whether the API server has answered anything yet.
    pub(crate) fn is_known(&self) -> bool {
        self.bounds().is_some()
    }

    /// The API server's time, or a little earlier; this machine's time until the server has answered.
    pub(crate) fn now(&self) -> Timestamp {
        match *self.bounds() {
            Some(Bounds { earliest, .. }) => {
                Timestamp::from_microsecond(earliest.saturating_add(self.since_anchor(Instant::now())))
                    .unwrap_or_else(|_| Timestamp::now())
            }
            None => Timestamp::now(),
        }
    }

    /// Learns from an answer's date: whole seconds since 1970.
    fn learn(&self, sent: Instant, received: Instant, date: i64) {
        let date = date.saturating_mul(1_000_000);
        let new = Bounds {
            earliest: date.saturating_sub(self.since_anchor(received)),
            latest: date.saturating_add(1_000_000).saturating_sub(self.since_anchor(sent)),
        };
        let mut bounds = self.bounds();
        let both =
            bounds.map(|old| Bounds { earliest: old.earliest.max(new.earliest), latest: old.latest.min(new.latest) });
        // A contradiction means that a clock was set, this machine slept, or another API server answered.
        *bounds = Some(both.filter(|both| both.earliest <= both.latest).unwrap_or(new));
    }

    fn since_anchor(&self, moment: Instant) -> i64 {
        i64::try_from(moment.saturating_duration_since(self.anchor).as_micros()).unwrap_or(i64::MAX)
    }

    fn bounds(&self) -> std::sync::MutexGuard<'_, Option<Bounds>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Layer<S> for Clock {
    type Service = ClockService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClockService { inner, clock: self.clone() }
    }
}

/// A service that sends requests, and whose clock learns from every answer, refusals included.
#[derive(Debug, Clone)]
pub(crate) struct ClockService<S> {
    inner: S,
    clock: Clock,
}

impl<S, B, R> Service<Request<B>> for ClockService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (clock, sent) = (self.clock.clone(), Instant::now());
        let answer = self.inner.call(request);
        async move {
            let response = answer.await?;
            if let Some(date) = date(response.headers()) {
                clock.learn(sent, Instant::now(), date);
            }
            Ok(response)
        }
        .boxed()
    }
}

fn date(headers: &http::HeaderMap) -> Option<i64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    Some(DateTimeParser::new().parse_timestamp(text).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: i64 = 3_600;

    #[test]
    fn a_date_is_read_as_servers_write_it() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(date(&headers), None);
        headers.insert(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert_eq!(date(&headers), Some(784_111_777));
        headers.insert(header::DATE, "now".parse().unwrap());
        assert_eq!(date(&headers), None);
    }

    #[test]
    fn several_answers_tell_the_time_better_than_one() {
        let clock = Clock::new();
        let after = |millis: u64| clock.anchor + Duration::from_millis(millis);
        assert!(!clock.is_known());
        // The server's clock says 1000.9 s at the anchor. Each answer takes 10 ms.
        for (sent, date) in [(0, 1000), (50, 1000), (95, 1001), (700, 1001)] {
            clock.learn(after(sent), after(sent + 10), date);
        }
        let bounds = clock.bounds().unwrap();
        assert!(bounds.earliest <= 1_000_900_000 && bounds.latest >= 1_000_900_000, "{bounds:?}");
        assert!(bounds.latest - bounds.earliest < 60_000, "{bounds:?}");
    }

    #[test]
    fn the_lower_bound_is_told_and_a_clock_that_was_set_is_followed() {
        let clock = Clock::new();
        clock.learn(clock.anchor, clock.anchor, 50 * HOUR);
        assert!((50 * HOUR..=50 * HOUR + 1).contains(&clock.now().as_second()));
        for other in [60 * HOUR, 40 * HOUR] {
            clock.learn(clock.anchor, clock.anchor, other);
            assert!((other..=other + 1).contains(&clock.now().as_second()), "{}", clock.now());
        }
    }
}
