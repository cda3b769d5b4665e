//! The bytes that a WebSocket carries.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use super::websocket;

/// The most that goes into one message. Routers have limits too, of megabytes.
const LARGEST_WRITE: usize = 64 << 10;

/// A WebSocket as a stream of bytes: messages and their limits don't matter.
pub(crate) struct WebSocketBytes<S> {
    socket: WebSocketStream<S>,
    unread: Bytes,
}

impl<S> WebSocketBytes<S> {
    pub(crate) fn new(socket: WebSocketStream<S>) -> Self {
        Self { socket, unread: Bytes::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketBytes<S> {
    fn poll_write_parts(&mut self, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(LARGEST_WRITE);
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
        let message = websocket::message(&[], parts, length);
        Pin::new(&mut self.socket).start_send(Message::Binary(message)).map_err(broken)?;
        Poll::Ready(Ok(length))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(message))) => self.unread = message,
                Some(Ok(Message::Close(Some(why)))) => {
                    let reason = format!("the WebSocket was closed: {} {}", u16::from(why.code), why.reason);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)));
                }
                Some(Ok(_)) => {}
                None | Some(Err(tungstenite::Error::ConnectionClosed)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketBytes<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_parts(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_parts(context, parts)
    }

    /// Otherwise HTTP/2 would send the nine bytes before each piece of data as a message of their own.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context).map_err(broken)
    }
}

fn broken(error: tungstenite::Error) -> io::Error {
    websocket::broken("the router")(error)
}
