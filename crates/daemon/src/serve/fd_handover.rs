//! Connections to the unix socket: clients, `podbayd connect`, which hands over its standard input and output, and `podbayd
//! exchange`.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::exchange::{self, EXCHANGE};
use super::{Daemon, connection};
use crate::descriptors;
use crate::stderr_log::log_error;

/// The byte that `podbayd connect` sends with the descriptors of two pipes, and that podbayd answers once it has them.
pub const HANDOVER: u8 = b'>';

/// How long answers may still be written once the input has ended: the client may be gone, and then nobody reads them.
pub const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Serves a connection.
///
/// # Errors
/// When the connection breaks.
pub async fn serve(daemon: Arc<Daemon>, stream: UnixStream) -> io::Result<()> {
    if daemon.peers.is_command(&stream)? {
        log_error("refused a connection: a command tried to use podbayd's socket");
        return Ok(());
    }
    let Some((first, fds)) = stream.async_io(Interest::READABLE, || descriptors::receive(&stream)).await? else {
        return Ok(());
    };
    if first == EXCHANGE && fds.is_empty() {
        return exchange::serve(daemon, stream).await;
    }
    // Any others are closed here.
    match <[OwnedFd; 2]>::try_from(fds).ok().filter(|_| first == HANDOVER) {
        Some(pipes) => serve_pipes(daemon, pipes, stream).await,
        None => connection::serve(daemon, first, Vec::new(), Box::new(stream), None).await,
    }
}

/// Serves on another process's pipes, as long as that process lives. If it copied between them and a socket instead, it
/// would have to be woken for every request and every answer.
async fn serve_pipes(daemon: Arc<Daemon>, [input, output]: [OwnedFd; 2], mut owner: UnixStream) -> io::Result<()> {
    let (input, output) = (pipe::Receiver::from_owned_fd(input)?, pipe::Sender::from_owned_fd(output)?);
    // From now on they are ours; without this byte their owner copies the bytes itself.
    owner.write_all(&[HANDOVER]).await?;
    let (ended, end) = oneshot::channel();
    let mut pipes = tokio::io::join(Input { pipe: input, ended: Some(ended) }, output);
    let work = async {
        match pipes.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
            Ok(first) => connection::serve(daemon, first, Vec::new(), Box::new(pipes), None).await,
        }
    };
    let drained = async {
        if end.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(DRAIN_TIME).await;
    };
    tokio::select! {
        done = work => done,
        _ = owner.read_u8() => Ok(()),
        () = drained => Ok(()),
    }
}

/// A pipe that reports its end.
struct Input {
    pipe: pipe::Receiver,
    ended: Option<oneshot::Sender<()>>,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        ready!(Pin::new(&mut self.pipe).poll_read(context, buffer))?;
        if room > 0
            && buffer.filled().len() == before
            && let Some(ended) = self.ended.take()
        {
            let _ = ended.send(());
        }
        Poll::Ready(Ok(()))
    }
}
