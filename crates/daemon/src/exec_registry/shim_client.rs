//! A connection to a shim for one purpose: to follow the output, give input, send a signal, or ask for the status.
//!
//! A shim may be stopped, or its socket be another process's by now, so answers are limited in time and size.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use podbay_jail::process_tree;
use podbay_proto::exec::{Info, Signalled, Target};
use podbay_proto::message::{HeadReader, decode_head, encode_head};
use podbay_proto::record::RecordReader;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::start::socket;
use super::{ExecRegistry, Watched};
use crate::shim_protocol::{MAX_PROCESSES, MAX_REPORT, Request, ShimReport};

/// How long a shim may take to answer. A healthy one takes a fraction of a millisecond.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to a shim.
pub struct ShimClient {
    socket: UnixStream,
}

impl ShimClient {
    /// Connects to a command's shim.
    ///
    /// # Errors
    /// When it can't be reached.
    pub async fn open(watched: &Watched) -> io::Result<Self> {
        let connect = UnixStream::connect(socket(&watched.id));
        Ok(Self { socket: tokio::time::timeout(TIMEOUT, connect).await?? })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the shim is gone.
    pub async fn send(&mut self, request: &Request, data: &[u8]) -> io::Result<()> {
        let head = encode_head(request).map_err(io::Error::other)?;
        self.socket.write_all(&head).await?;
        self.socket.write_all(data).await
    }

    /// Sends a request and takes its one answer, however long that takes.
    ///
    /// # Errors
    /// When the shim is gone.
    pub async fn ask<T: serde::de::DeserializeOwned>(&mut self, request: &Request, data: &[u8]) -> io::Result<T> {
        // A shim that refuses the data may have answered already and closed the connection.
        let sent = self.send(request, data).await;
        let mut reader = HeadReader::at_most(MAX_REPORT);
        let mut buffer = [0; 4096];
        loop {
            let count = self.socket.read(&mut buffer).await?;
            if count == 0 {
                return Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some((head, _)) = reader.push(&buffer[..count]).map_err(io::Error::other)? {
                return decode_head(&head).map_err(io::Error::other);
            }
        }
    }

    /// Reads what comes next on the connection; false when the shim is gone.
    pub async fn fill(&mut self, reader: &mut RecordReader) -> bool {
        matches!(self.socket.read_buf(reader.space()).await, Ok(1..))
    }
}

async fn ask_soon<T: serde::de::DeserializeOwned>(watched: &Watched, request: &Request) -> io::Result<T> {
    let asked = async { ShimClient::open(watched).await?.ask(request, &[]).await };
    tokio::time::timeout(TIMEOUT, asked).await?
}

impl ExecRegistry {
    /// Describes a command: by its shim's answer or, if there is none, by what podbayd itself knows.
    pub async fn status(self: &Arc<Self>, watched: &Arc<Watched>) -> Info {
        match ask_soon(watched, &Request::Status).await {
            Ok(ShimReport::Ended { outcome, processes }) => self.info(watched, Some((outcome, processes))),
            answer => {
                // A shim that hangs up is about to exit, and podbayd about to learn why.
                if !matches!(&answer, Err(error) if error.kind() == io::ErrorKind::TimedOut) {
                    let _ = tokio::time::timeout(TIMEOUT, watched.end()).await;
                }
                let outcome = watched.outcome();
                let shim = watched.shim();
                let look = move || shim.map_or_else(Vec::new, process_tree::below);
                let mut processes = tokio::task::spawn_blocking(look).await.unwrap_or_default();
                processes.truncate(MAX_PROCESSES);
                Info { processes, ..self.info(watched, outcome) }
            }
        }
    }

    /// Sends a signal to a command, through its shim or, if that doesn't answer, directly. Returns the number of processes
    /// that got it.
    pub async fn signal(&self, watched: &Arc<Watched>, signal: Signal, target: Target) -> Signalled {
        let request = Request::Signal { signal: signal.as_raw(), target };
        if let Ok(signalled) = ask_soon(watched, &request).await {
            return signalled;
        }
        let Some(shim) = watched.shim() else { return Signalled { processes: 0 } };
        let kill = signal == Signal::KILL && target == Target::All;
        let send =
            move || if kill { process_tree::below(shim).len() as u32 } else { signal_directly(shim, signal, target) };
        let processes = tokio::task::spawn_blocking(send).await.unwrap_or(0);
        if kill {
            watched.kill();
            watched.end().await;
        }
        Signalled { processes }
    }
}

fn signal_directly(shim: i32, signal: Signal, target: Target) -> u32 {
    match target {
        Target::All => process_tree::signal_below(shim, signal),
        // The command's own process is the first that its shim started.
        Target::Main => {
            process_tree::children(shim).first().map_or(0, |main| u32::from(process_tree::send(main.pid, signal)))
        }
    }
}
