//! Connections to the unix socket: clients, and `podbayd connect`, which hands its standard input and output over.

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

use super::{Daemon, connection};
use crate::descriptors;
use crate::stderr_log::log_error;

/// The byte that comes with the two ends of pipes that a connection is to be served on, and that says that they came.
pub const HANDOVER: u8 = b'>';

/// How long what is still to be written may take once the input has ended: whoever has ended it may be gone, and then nobody
/// reads what is written either.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves whoever has connected.
///
/// # Errors
/// When the connection breaks.
pub async fn serve(daemon: Arc<Daemon>, stream: UnixStream) -> io::Result<()> {
    if daemon.peers.is_command(&stream)? {
        log_error("a command has connected to podbayd's socket, which is not for commands: the connection was closed");
        return Ok(());
    }
    let Some((first, fds)) = stream.async_io(Interest::READABLE, || descriptors::receive(&stream)).await? else {
        return Ok(());
    };
    // Any others are closed here.
    match <[OwnedFd; 2]>::try_from(fds).ok().filter(|_| first == HANDOVER) {
        Some(pipes) => serve_pipes(daemon, pipes, stream).await,
        None => connection::serve(daemon, first, stream, true).await,
    }
}

/// Serves on another process's pipes, for as long as that process is there: a bridge between them and the socket would be
/// one more process to wake for every request and every answer.
async fn serve_pipes(daemon: Arc<Daemon>, [input, output]: [OwnedFd; 2], mut owner: UnixStream) -> io::Result<()> {
    let (input, output) = (pipe::Receiver::from_owned_fd(input)?, pipe::Sender::from_owned_fd(output)?);
    // From now on they are ours; without this byte their owner has to carry the bytes itself.
    owner.write_all(&[HANDOVER]).await?;
    let (ended, end) = oneshot::channel();
    let mut pipes = tokio::io::join(Input { pipe: input, ended: Some(ended) }, output);
    let work = async {
        match pipes.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
            Ok(first) => connection::serve(daemon, first, pipes, true).await,
        }
    };
    let no_more_words = async {
        if end.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        done = work => done,
        _ = owner.read_u8() => Ok(()),
        () = no_more_words => Ok(()),
    }
}

/// A pipe that is read, and that tells when it ends.
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
