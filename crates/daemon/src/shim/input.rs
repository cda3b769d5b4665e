//! A command's standard input.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use podbay_proto::exec::InputTaken;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::connection::{Connection, Role};

/// How much is buffered for a command that doesn't read it.
const MOST: usize = 256 << 10;

/// Input on its way to a command.
#[derive(Default)]
pub struct Input {
    pipe: Option<OwnedFd>,
    buffer: VecDeque<u8>,
    taken: u64,
    close: bool,
}

impl Input {
    /// Input for a pipe; without one, it is closed from the beginning.
    pub fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe, ..Self::default() }
    }

    /// How many bytes were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether nothing more can be taken at the moment.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= MOST
    }

    /// What to poll for: that the command reads. Without data to write only its end matters, which is always reported.
    pub fn awaited(&self) -> Option<PollFd<'_>> {
        let events = if self.buffer.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, events))
    }

    /// Takes data from a connection; false if there is none at the moment.
    ///
    /// # Errors
    /// When the connection is closed, or earlier bytes are missing.
    pub fn take(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let Role::Feeding { offset, left, close } = connection.role else { return Ok(false) };
        if offset > self.taken {
            return Err(io::Error::other("input bytes are missing"));
        }
        if left > 0 && self.pipe.is_some() {
            let room = MOST.saturating_sub(self.buffer.len());
            if room == 0 {
                return Ok(false);
            }
            let data = connection.input(left.min(room))?;
            if data.is_empty() {
                return Ok(false);
            }
            // A retried request begins with bytes that were taken the first time.
            let known = (self.taken - offset).min(data.len() as u64) as usize;
            self.buffer.extend(&data[known..]);
            self.taken += (data.len() - known) as u64;
            connection.role = Role::Feeding { offset: offset + data.len() as u64, left: left - data.len(), close };
            return Ok(true);
        }
        self.close |= close;
        connection.answer(&InputTaken { total: self.taken, closed: self.pipe.is_none() })?;
        // Data that nobody will read may still arrive on this connection.
        connection.role = if left == 0 { Role::Asking } else { Role::Closing };
        Ok(true)
    }

    /// Writes as much as the command reads.
    pub fn feed(&mut self) {
        while let (Some(pipe), false) = (&self.pipe, self.buffer.is_empty()) {
            match rustix::io::write(pipe, self.buffer.as_slices().0) {
                Ok(count) => drop(self.buffer.drain(..count)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    // The command has closed its input, or ended.
                    self.pipe = None;
                    self.buffer.clear();
                }
            }
        }
        if self.close {
            self.pipe = None;
        }
    }
}
