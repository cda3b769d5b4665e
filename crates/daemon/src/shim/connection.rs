//! A connection from podbayd to a shim: its requests, and what is still to be sent.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use bytes::Bytes;
use podbay_proto::message::{HeadReader, decode_head, encode_head};
use podbay_proto::record;

use crate::exec_store::log::{CHUNK, Cursor, Log, Piece};
use crate::shim_protocol::Request;

/// The longest request. The first one, with what to run, is read elsewhere.
const MAX_REQUEST: usize = 64 << 10;

/// What a connection is used for at the moment.
#[derive(Debug)]
pub enum Role {
    /// It waits for the next request.
    Asking,
    /// It gets the output up to `until`, once that is known, and then the end.
    Following { cursor: Cursor, until: Option<u64> },
    /// podbayd watches the command on it, and gets reports.
    Watching,
    /// Input arrives on it.
    Feeding { offset: u64, left: usize, close: bool },
    /// It is closed once everything is sent.
    Closing,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket, which never blocks.
    pub socket: UnixStream,
    /// What it is for.
    pub role: Role,
    /// When something was last sent on it.
    pub progress: Instant,
    requests: HeadReader,
    unread: Bytes,
    unsent: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// A connection that waits for its first request, with what was already read from it.
    ///
    /// # Errors
    /// When the socket can't be made non-blocking.
    pub fn new(socket: UnixStream, unread: Bytes) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            role: Role::Asking,
            progress: Instant::now(),
            requests: HeadReader::at_most(MAX_REQUEST),
            unread,
            unsent: Vec::new(),
            sent: 0,
        })
    }

    /// The line to podbayd, with what was already read from it.
    ///
    /// # Errors
    /// When the socket can't be made non-blocking.
    pub fn watching(socket: UnixStream, unread: Bytes) -> io::Result<Self> {
        Ok(Self { role: Role::Watching, ..Self::new(socket, unread)? })
    }

    /// Whether there is something left to send.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Whether something that has arrived wasn't used yet. The socket doesn't report it again.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The next request, if it has arrived.
    ///
    /// # Errors
    /// When the connection is closed or sends nonsense; the caller drops it then.
    pub fn next_request(&mut self) -> io::Result<Option<Request>> {
        loop {
            if self.unread.is_empty() && !self.fill()? {
                return Ok(None);
            }
            let piece = std::mem::take(&mut self.unread);
            if let Some((head, rest)) = self.requests.push(&piece).map_err(io::Error::other)? {
                self.unread = rest;
                return decode_head(&head).map(Some).map_err(io::Error::other);
            }
        }
    }

    /// Input that has arrived, at most `most` bytes.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn input(&mut self, most: usize) -> io::Result<Bytes> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        Ok(self.unread.split_to(most.min(self.unread.len())))
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer.truncate(count);
                    self.unread = buffer.into();
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues the answer to a request. The connection is then ready for the next.
    ///
    /// # Errors
    /// When the answer can't be written as JSON.
    pub fn answer(&mut self, answer: &impl serde::Serialize) -> io::Result<()> {
        self.unsent.extend_from_slice(&encode_head(answer).map_err(io::Error::other)?);
        Ok(())
    }

    /// Queues the record of the end, after which the connection is closed.
    pub fn finish(&mut self, end: &[u8]) {
        self.unsent.extend_from_slice(end);
        self.role = Role::Closing;
    }

    /// Sends as much as the socket takes. `end` is the record of the end, once there is one.
    ///
    /// # Errors
    /// When the connection is broken or complete.
    pub fn pump(&mut self, log: &Log, end: Option<&[u8]>) -> io::Result<()> {
        loop {
            while self.has_unsent() {
                match self.socket.write(&self.unsent[self.sent..]) {
                    Ok(count) => {
                        self.sent += count;
                        self.progress = Instant::now();
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.unsent.clear();
            self.sent = 0;
            match &mut self.role {
                Role::Following { cursor, until } => {
                    let left = until.map_or(u64::MAX, |until| until.saturating_sub(cursor.offset));
                    let piece = if left == 0 { None } else { log.read(cursor, CHUNK.min(left as usize))? };
                    match (piece, end) {
                        (Some(Piece::Data(stream, data)), _) => {
                            self.unsent.extend_from_slice(&record::output_header(stream, data.len()));
                            self.unsent.extend_from_slice(&data);
                        }
                        (Some(Piece::Lost(bytes)), _) => self.unsent.extend(record::encode_lost(bytes)),
                        (None, Some(end)) => self.finish(end),
                        (None, None) => return Ok(()),
                    }
                }
                Role::Closing => return Err(io::ErrorKind::ConnectionAborted.into()),
                Role::Asking | Role::Watching | Role::Feeding { .. } => return Ok(()),
            }
        }
    }
}
