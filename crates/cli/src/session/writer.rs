//! Writes standard output and standard error on a thread of its own: a slow reader, or a terminal that was stopped, must not keep
//! this process from noticing signals.

use std::io;
use std::os::fd::BorrowedFd;

use bytes::Bytes;
use podbay::Stream;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;

/// How many pieces wait to be written; the rest waits in the sandbox.
const WAITING: usize = 64;

/// Where pieces go, and the result of the thread that writes them.
type Thread = (mpsc::Sender<(Stream, Bytes)>, oneshot::Receiver<io::Result<()>>);

/// Writes pieces in order.
#[derive(Debug, Default)]
pub struct Writer {
    /// Started with the first piece: many commands print nothing.
    thread: Option<Thread>,
}

impl Writer {
    /// Queues a piece.
    ///
    /// # Errors
    /// When one before couldn't be written.
    pub async fn write(&mut self, stream: Stream, piece: Bytes) -> Result<(), Failure> {
        let (sender, _) = self.thread.get_or_insert_with(start);
        match sender.send((stream, piece)).await {
            Ok(()) => Ok(()),
            Err(_) => self.finish().await,
        }
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// When something couldn't be written.
    pub async fn finish(&mut self) -> Result<(), Failure> {
        let Some((sender, done)) = self.thread.take() else { return Ok(()) };
        drop(sender);
        match done.await {
            Ok(written) => written.map_err(|error| Failure::output(&error)),
            Err(_) => Err(Failure::new("the thread that writes the output died; please report this bug")),
        }
    }
}

fn start() -> Thread {
    let (sender, mut pieces) = mpsc::channel::<(Stream, Bytes)>(WAITING);
    let (tell, done) = oneshot::channel();
    std::thread::spawn(move || {
        let mut written = Ok(());
        while let Some((stream, piece)) = pieces.blocking_recv() {
            written = match stream {
                Stream::Stdout => write_all(rustix::stdio::stdout(), &piece),
                Stream::Stderr => write_all(rustix::stdio::stderr(), &piece),
            };
            if written.is_err() {
                break;
            }
        }
        // First the word, then the closed channel: who finds it closed asks for the word.
        let _ = tell.send(written);
        drop(pieces);
    });
    (sender, done)
}

/// Writes past the standard library's line buffer: the pieces are large, and seldom lines.
fn write_all(file: BorrowedFd<'_>, mut piece: &[u8]) -> io::Result<()> {
    while !piece.is_empty() {
        match rustix::io::write(file, piece) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => piece = &piece[written..],
            Err(rustix::io::Errno::INTR) => {}
            // Someone else has made our end non-blocking; it is theirs too, so it stays so.
            Err(rustix::io::Errno::AGAIN) => wait_for_room(file)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_for_room(file: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    rustix::io::retry_on_intr(|| poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::OUT)], None))?;
    Ok(())
}
