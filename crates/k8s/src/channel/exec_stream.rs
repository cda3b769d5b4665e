//! A process in a container as a byte stream: what is written is its input, what is read its output.
//!
//! Each direction is polled by whoever uses it, without a task or queue in between: neither waits for the other, every
//! message saves a hop between tasks, and a dropped stream leaves nothing behind.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::{self, Message};

use super::kube_upgrade::{Socket, Subprotocol};
use super::websocket;

// The first byte of every message says which of the process's streams it belongs to. See
// https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Version 5 only: the stream that the next byte names has ended.
const CLOSE: u8 = 255;

/// The most that goes into one message.
const LARGEST_WRITE: usize = 64 << 10;

/// How much of standard error is kept.
const KEPT: usize = 4 << 10;

/// A process in a container.
pub struct ExecStream {
    socket: Socket,
    subprotocol: Subprotocol,
    /// Output that has arrived and wasn't read yet.
    unread: Bytes,
    stderr: Vec<u8>,
    ended: Option<ExecExit>,
    input_closed: bool,
}

/// How a process ended, as the API server reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecExit {
    /// `Success` or `Failure`.
    pub status: String,
    /// Why it failed.
    #[serde(default)]
    pub message: String,
}

impl ExecExit {
    /// Whether it ended with exit code 0.
    pub fn success(&self) -> bool {
        self.status == "Success"
    }
}

impl ExecStream {
    pub(crate) fn new(socket: Socket, subprotocol: Subprotocol) -> Self {
        Self { socket, subprotocol, unread: Bytes::new(), stderr: Vec::new(), ended: None, input_closed: false }
    }

    /// The beginning of what the process printed on standard error.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }

    /// How it ended, once the output has been read to its end.
    pub fn ended(&self) -> Option<&ExecExit> {
        self.ended.as_ref()
    }

    /// Takes in one message from the server.
    fn take(&mut self, mut message: Bytes) {
        if message.is_empty() {
            return;
        }
        match message.get_u8() {
            // The server begins with empty messages on every stream.
            STDOUT => self.unread = message,
            STDERR => {
                let room = KEPT.saturating_sub(self.stderr.len()).min(message.len());
                self.stderr.extend_from_slice(&message[..room]);
            }
            STATUS if !message.is_empty() => {
                self.ended = Some(serde_json::from_slice(&message).unwrap_or_else(|error| ExecExit {
                    status: "Failure".into(),
                    message: format!("the API server's exit status isn't valid: {error}"),
                }));
            }
            _ => {}
        }
    }

    fn poll_write_parts(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.input_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(LARGEST_WRITE);
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
        let message = websocket::message(&[STDIN], parts, length);
        Pin::new(&mut self.socket).start_send(Message::Binary(message)).map_err(broken)?;
        Poll::Ready(Ok(length))
    }
}

impl std::fmt::Debug for ExecStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecStream").field("subprotocol", &self.subprotocol).finish_non_exhaustive()
    }
}

impl AsyncRead for ExecStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(message))) => self.take(message),
                Some(Ok(_)) => {}
                // Nothing of interest follows the status.
                None | Some(Err(tungstenite::Error::ConnectionClosed)) => return Poll::Ready(Ok(())),
                Some(Err(_)) if self.ended.is_some() => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ExecStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_parts(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
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

    /// Ends the input. Version 4 has no message for that, so it ends the whole connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.subprotocol == Subprotocol::V4 {
            self.input_closed = true;
            return Pin::new(&mut self.socket).poll_close(context).map_err(broken);
        }
        if !self.input_closed {
            ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
            let message = Message::Binary(Bytes::from_static(&[CLOSE, STDIN]));
            Pin::new(&mut self.socket).start_send(message).map_err(broken)?;
            self.input_closed = true;
        }
        Pin::new(&mut self.socket).poll_flush(context).map_err(broken)
    }
}

fn broken(error: tungstenite::Error) -> io::Error {
    websocket::broken("the container")(error)
}
