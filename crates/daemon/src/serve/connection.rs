//! HTTP/2 on one byte stream, with windows that suit its purpose.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use podbay_proto::session::BULK;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tcp::Authorization;
use super::{Daemon, routes};

/// The window of a stream on the shared connection: small, so that a large answer doesn't delay the others.
const WINDOW: u32 = 256 << 10;

/// The window of a stream on the bulk connection: large enough to keep the connection full.
const BULK_WINDOW: u32 = 16 << 20;

/// The window of a connection, which is never the bottleneck: many streams are open and wait for their commands.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Serves a connection, of which some bytes were already read, until it ends. With an `authorization`, every request needs a
/// token, and the connection ends with it.
///
/// # Errors
/// When it breaks.
pub async fn serve(
    daemon: Arc<Daemon>,
    first: u8,
    more: Vec<u8>,
    stream: Box<dyn Stream>,
    authorization: Option<Arc<Authorization>>,
) -> io::Result<()> {
    let bulk = first == BULK;
    let mut read = if bulk { Vec::new() } else { vec![first] };
    read.extend(more);
    let stream = Prefixed { read: read.into(), stream };
    let shown = authorization.clone();
    let service = service_fn(move |request| routes::serve(daemon.clone(), request, shown.clone()));
    let connection = http2::Builder::new(TokioExecutor::new())
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
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let Some(authorization) = authorization else { return connection.await.map_err(io::Error::other) };
    tokio::select! {
        served = connection.as_mut() => return served.map_err(io::Error::other),
        () = authorization.expired() => connection.as_mut().graceful_shutdown(),
    }
    // Requests that are under way may be hours of a command, or gigabytes of a file: they are finished.
    connection.await.map_err(io::Error::other)
}

/// What a connection may be on. Boxed, so that the HTTP/2 server is compiled only once: podbayd is copied into sandboxes, and a server
/// for each kind of stream would add to its size.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream of which some bytes were already read.
struct Prefixed {
    read: Bytes,
    stream: Box<dyn Stream>,
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0 && !self.read.is_empty() {
            let count = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Prefixed {
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
