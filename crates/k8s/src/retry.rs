//! Asks the API server again when its refusal will pass: it is busy, being restarted, or can't be reached for a moment.

use std::time::{Duration, Instant};

use kube::Error;

/// For how long it is asked.
const PATIENCE: Duration = Duration::from_secs(15);

/// The pause after the first refusal; each further one is twice as long, up to two seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Pauses between tries, each longer than the one before.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    /// The next one. Of many callers that were refused at once, not all come back at once.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Duration::from_secs(2));
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// Makes a request until it is answered for good. A request that changes something may have done so before it was refused:
/// the caller has to understand its own traces.
pub(crate) async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    let mut pauses = Pauses::default();
    loop {
        let error = match call().await {
            Err(error) if passes(&error) => error,
            other => return other,
        };
        let pause = pauses.next().max(wish(&error));
        if begun.elapsed() + pause > PATIENCE {
            return Err(error);
        }
        tracing::debug!(%error, "asking the API server again");
        tokio::time::sleep(pause).await;
    }
}

/// Whether a refusal passes by itself.
pub(crate) fn passes(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// How long the API server asks to be left alone.
fn wish(error: &Error) -> Duration {
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

    #[tokio::test]
    async fn what_passes_is_asked_again_and_what_does_not_is_told_at_once() {
        let calls = Cell::new(0);
        let twice = patiently(|| async {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Err(refusal(503)) } else { Ok(()) }
        });
        twice.await.unwrap();
        assert_eq!(calls.get(), 3);
        for (code, asked) in [(403, 1), (404, 1), (409, 1), (410, 1), (422, 1)] {
            calls.set(0);
            let refused: Result<(), _> = patiently(|| async {
                calls.set(calls.get() + 1);
                Err(refusal(code))
            })
            .await;
            assert!(refused.is_err() && calls.get() == asked, "{code}: {} times", calls.get());
        }
    }
}
