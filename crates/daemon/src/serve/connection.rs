//! HTTP/2 on one byte stream, with windows that suit its purpose.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use podbay_proto::session::BULK;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Daemon, routes};

/// The window of a stream on the shared connection: small, so that a large answer doesn't delay the others.
const WINDOW: u32 = 256 << 10;

/// The window of a stream on the bulk connection: large enough to keep the connection full.
const BULK_WINDOW: u32 = 16 << 20;

/// The window of a connection, which is never the bottleneck: many streams are open and wait for their commands.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Serves a connection, whose first byte was already read, until it ends. If `trusted`, no token is required.
///
/// # Errors
/// When it breaks.
pub async fn serve<S>(daemon: Arc<Daemon>, first: u8, stream: S, trusted: bool) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let bulk = first == BULK;
    let stream = Prefixed { first: (!bulk).then_some(first), stream };
    let service = service_fn(move |request| routes::serve(daemon.clone(), request, trusted));
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(if bulk { BULK_WINDOW } else { WINDOW })
        .max_frame_size(64 << 10)
        .max_concurrent_streams(4_096)
        // Cancelling a request is normal here, not an attack.
        .max_pending_accept_reset_streams(1_024)
        .max_local_error_reset_streams(None)
        .max_send_buf_size(if bulk { 4 << 20 } else { WINDOW as usize })
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(40))
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

/// A stream whose first byte was already read.
struct Prefixed<S> {
    first: Option<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
