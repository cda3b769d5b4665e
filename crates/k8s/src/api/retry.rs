//! Retries requests that the API server refuses for the moment: it is busy, restarting, or can't be reached.

use std::time::{Duration, Instant};

use kube::Error;

/// How long to retry while the API server answers.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long to retry while it doesn't: a restart takes seconds, and whoever has named the wrong cluster shouldn't wait long.
const SILENCE: Duration = Duration::from_secs(8);

/// The pause after the first refusal; each further one is twice as long, up to two seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Backoff between tries, each longer than the one before.
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Backoff {
    /// The next pause, with jitter: many callers that were refused at once shouldn't come back at once.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Duration::from_secs(2));
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// Sends a request until the answer is final. A request that changes something may have done so before it was refused: the
/// caller has to recognize its own traces.
pub(crate) async fn with_retry<T, F>(mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        let error = match call().await {
            Err(error) if is_transient(&error) => error,
            other => return other,
        };
        let pause = backoff.next().max(retry_after(&error));
        let patience = if matches!(error, Error::Api(_)) { PATIENCE } else { SILENCE };
        if begun.elapsed() + pause > patience {
            return Err(error);
        }
        tracing::debug!(%error, "retrying a request to the API server");
        tokio::time::sleep(pause).await;
    }
}

/// Whether a refusal is worth a retry.
pub(crate) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        // A bad certificate stays bad.
        Error::Service(error) => !chain(error.as_ref()).any(|error| error.to_string().contains("certificate")),
        Error::HyperError(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// An error and its sources.
fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// How long the API server asks to wait.
fn retry_after(error: &Error) -> Duration {
    let seconds = match error {
        Error::Api(status) => status.details.as_ref().map_or(0, |details| details.retry_after_seconds),
        _ => 0,
    };
    Duration::from_secs(u64::from(seconds.min(5)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use std::cell::Cell;

    fn refusal(code: u16) -> Error {
        Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[test]
    fn a_refused_connection_is_transient_and_a_bad_certificate_is_not() {
        let broken =
            |text: &str| Error::Service(Box::new(std::io::Error::other(std::io::Error::other(text.to_owned()))));
        assert!(is_transient(&broken("connection refused")));
        assert!(!is_transient(&broken("invalid peer certificate: UnknownIssuer")));
    }

    #[tokio::test]
    async fn transient_refusals_are_retried_and_final_ones_are_returned_at_once() {
        let calls = Cell::new(0);
        let twice = with_retry(|| async {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Err(refusal(503)) } else { Ok(()) }
        });
        twice.await.unwrap();
        assert_eq!(calls.get(), 3);
        for (code, asked) in [(403, 1), (404, 1), (409, 1), (410, 1), (422, 1)] {
            calls.set(0);
            let refused: Result<(), _> = with_retry(|| async {
                calls.set(calls.get() + 1);
                Err(refusal(code))
            })
            .await;
            assert!(refused.is_err() && calls.get() == asked, "{code}: {} times", calls.get());
        }
    }
}
