//! The body of a stranger's request: it has to keep coming, and what isn't wanted is read all the same.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// How long a body may take, besides the time that it gets for its length.
const PATIENCE: Duration = Duration::from_secs(60);

/// The slowest that is waited for.
const BYTES_PER_SECOND: u64 = 1 << 10;

/// How much of a body is read only because its sender won't read the answer before it has sent everything.
const MOST_DRAINED: u64 = 64 << 20;

/// Why a body isn't complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// It was cut off, or comes too slowly.
    Lost,
    /// It is larger than it may be.
    TooLarge,
}

/// A body that is arriving.
pub(super) struct Arriving {
    body: Incoming,
    begun: Instant,
    received: u64,
}

impl Arriving {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, begun: Instant::now(), received: 0 }
    }

    /// The next piece.
    ///
    /// # Errors
    /// When it is cut off or comes too slowly.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        loop {
            let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut self.body).poll_frame(context));
            let deadline = self.begun + allowed(self.received);
            match timeout_at(deadline, frame).await.map_err(|_| Cut::Lost)? {
                None => return Ok(None),
                Some(Err(_)) => return Err(Cut::Lost),
                Some(Ok(frame)) => {
                    // Trailers mean nothing here.
                    if let Ok(piece) = frame.into_data() {
                        self.received += piece.len() as u64;
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// The whole body, if it has at most `most` bytes.
    ///
    /// # Errors
    /// When it has more, is cut off or comes too slowly.
    pub(super) async fn collect(&mut self, most: usize) -> Result<Bytes, Cut> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > most {
                return Err(Cut::TooLarge);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Reads the rest: most clients send everything before they read an answer, and would report a broken connection instead.
    pub(super) async fn drain(&mut self) {
        let most = self.received + MOST_DRAINED;
        while self.received < most && matches!(self.next().await, Ok(Some(_))) {}
    }
}

/// How long a body may take of which so many bytes have come.
fn allowed(received: u64) -> Duration {
    PATIENCE + Duration::from_secs(received / BYTES_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_gets_time_and_whoever_trickles_does_not() {
        assert_eq!(allowed(0), PATIENCE);
        assert_eq!(allowed(1_000), PATIENCE);
        assert_eq!(allowed(1 << 20), PATIENCE + Duration::from_secs(1 << 10));
        // No length overflows it.
        assert!(Instant::now().checked_add(allowed(u64::MAX >> 20)).is_some());
    }
}
