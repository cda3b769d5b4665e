//! The connections that a router carries for this client.
//!
//! The Python router admits 64 for each client, and refuses others without saying why. Then the one that nobody has used for the
//! longest time makes room: its sandbox reconnects when it is used, and commands keep running meanwhile.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that was used more recently isn't closed: an answer may be on its way.
const IN_USE: Duration = Duration::from_millis(250);

/// The connections that are open.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<Weak<Activity>>>);

/// When a connection was last used, and whether it has to make room.
struct Activity {
    last: Mutex<Instant>,
    closing: AtomicBool,
    reader: AtomicWaker,
}

impl Activity {
    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Connections {
    /// Counts a connection for as long as it exists.
    pub(super) fn track<S>(&self, stream: S) -> Tracked<S> {
        let activity = Arc::new(Activity {
            last: Mutex::new(Instant::now()),
            closing: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        });
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.strong_count() > 0);
        open.push(Arc::downgrade(&activity));
        Tracked { stream, activity }
    }

    /// Whether there are any.
    pub(super) fn are_open(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|one| one.strong_count() > 0)
    }

    /// Closes the one that nobody has used for the longest time. Returns whether there is one that can be spared.
    pub(super) fn close_least_recently_used(&self) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spared = open.iter().filter_map(Weak::upgrade).filter(|one| !one.closing.load(Ordering::Acquire));
        let oldest = spared.min_by_key(|one| one.last()).filter(|one| one.last().elapsed() >= IN_USE);
        let Some(oldest) = oldest else { return false };
        oldest.closing.store(true, Ordering::Release);
        oldest.reader.wake();
        true
    }
}

/// A connection that notes when it is used.
pub(super) struct Tracked<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tracked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.activity.reader.register(context.waker());
        if self.activity.closing.load(Ordering::Acquire) {
            let why = "the connection was closed to make room for another sandbox's: the router's connection limit is \
                       reached";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tracked<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.activity.note();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.activity.note();
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_connection_that_was_unused_for_longest_makes_room() {
        let connections = Connections::default();
        let (near, mut far) = tokio::io::duplex(64);
        let mut first = connections.track(near);
        let (near, _silent) = tokio::io::duplex(64);
        let mut second = connections.track(near);
        assert!(!connections.close_least_recently_used(), "both are in use");
        tokio::time::sleep(IN_USE).await;
        far.write_all(b"x").await.unwrap();
        first.read_u8().await.unwrap();
        let reading = tokio::spawn(async move { second.read_u8().await.unwrap_err() });
        tokio::task::yield_now().await;
        assert!(connections.close_least_recently_used());
        assert!(reading.await.unwrap().to_string().contains("to make room"));
        assert!(!connections.close_least_recently_used(), "the first is in use");
        far.write_all(b"y").await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'y');
        drop(first);
        assert!(!connections.are_open());
    }
}
