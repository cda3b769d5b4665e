//! What podbayd asks of a shim.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use bytes::Bytes;
use podbay_jail::process_tree;
use podbay_proto::exec::{Signalled, State, Target};
use rustix::process::{Pid, Signal};

use super::Shim;
use super::clock::KILL_AGAIN;
use super::connection::{Connection, Role};
use crate::exec_store::log::Cursor;
use crate::peer::Peers;
use crate::shim_protocol::{Request, ShimReport};
use crate::sys;

/// Further connections have to wait: podbayd needs a few.
pub(super) const MAX_CONNECTIONS: usize = 512;

impl Shim {
    /// Takes new connections, from podbayd only: a command can connect to this socket too, and would get another
    /// command's output, input and signals.
    pub(super) fn accept(&mut self) {
        while self.connections.len() < MAX_CONNECTIONS
            && let Ok((socket, _)) = self.listener.accept()
        {
            if self.is_podbayd(&socket)
                && let Ok(connection) = Connection::new(socket, Bytes::new())
            {
                self.connections.push(connection);
            }
        }
    }

    fn is_podbayd(&mut self, socket: &UnixStream) -> bool {
        let Ok(Some((peer, _))) = sys::peer(socket) else { return false };
        let mut watchers = self.watchers();
        if !watchers.is_empty() && !watchers.contains(&peer) {
            // Perhaps podbayd has died, its successor has come, and this shim hasn't noticed.
            self.serve_connections();
            watchers = self.watchers();
        }
        if !watchers.is_empty() {
            return watchers.contains(&peer);
        }
        // podbayd isn't running, and its successor isn't this process's ancestor. So a process is accepted if it can't be
        // a command: not a descendant of this shim and, where commands have a seccomp filter, not under that filter
        // either. A process that has ended meanwhile is refused, because it could have been a command.
        !Peers::of_shim(self.start.podbayd_filters).is_command(socket).unwrap_or(true)
    }

    /// The podbayd that watches this command, if one does.
    fn watchers(&self) -> Vec<Pid> {
        let watching = self.connections.iter().filter(|connection| matches!(connection.role, Role::Watching));
        watching.filter_map(|connection| sys::peer(&connection.socket).ok().flatten()).map(|(pid, _)| pid).collect()
    }

    pub(super) fn serve_connections(&mut self) {
        // A failed connection is dropped: podbayd connects again and asks for what it missed.
        let mut connections = std::mem::take(&mut self.connections);
        connections.retain_mut(|connection| self.serve(connection).is_ok());
        self.connections = connections;
    }

    fn serve(&mut self, connection: &mut Connection) -> io::Result<()> {
        loop {
            match connection.role {
                Role::Feeding { .. } => {
                    if !self.input.take(connection)? {
                        return Ok(());
                    }
                }
                Role::Asking | Role::Watching => match connection.next_request()? {
                    Some(request) => self.handle(connection, request)?,
                    None => return Ok(()),
                },
                // Nothing more is expected; reading notices when the other side is gone.
                Role::Following { .. } => {
                    return connection.next_request().map(|_| ());
                }
                Role::Closing => return Ok(()),
            }
        }
    }

    fn handle(&mut self, connection: &mut Connection, request: Request) -> io::Result<()> {
        match request {
            Request::Start(_) => Err(io::Error::other("a command can be started only once")),
            Request::Attach { offset } => {
                let until = self.outcome.as_ref().map(|_| self.log.log().end());
                connection.role = Role::Following { cursor: Cursor::at(offset), until };
                connection.progress = Instant::now();
                Ok(())
            }
            Request::Watch => {
                connection.role = Role::Watching;
                connection.answer(&ShimReport::Begun)?;
                match &self.outcome {
                    Some(last) => {
                        connection.answer(&ShimReport::Ended { outcome: last.clone(), processes: self.processes() })
                    }
                    None => Ok(()),
                }
            }
            Request::Room { used_up } => {
                if used_up {
                    self.log.restrict();
                }
                Ok(())
            }
            Request::Input { offset, close, length } => {
                connection.role = Role::Feeding { offset, left: length, close };
                Ok(())
            }
            Request::Signal { signal, target } => {
                let processes = self.signal(signal, target);
                connection.answer(&Signalled { processes })
            }
            Request::Status => {
                let outcome = self.outcome.clone().unwrap_or_else(|| self.outcome_with(State::Running));
                connection.answer(&ShimReport::Ended { outcome, processes: self.processes() })
            }
        }
    }

    fn signal(&mut self, number: i32, target: Target) -> u32 {
        let Some(signal) = Signal::from_named_raw(number) else { return 0 };
        match (target, self.main) {
            (Target::Main, Some(main)) => {
                self.killed |= signal == Signal::KILL || signal == Signal::TERM;
                u32::from(process_tree::send(main, signal))
            }
            (Target::Main, None) => 0,
            (Target::All, main) => {
                self.killed |= main.is_some() && (signal == Signal::KILL || signal == Signal::TERM);
                if signal != Signal::KILL {
                    return process_tree::signal_all(signal);
                }
                self.clock.kill_at = Some(Instant::now() + KILL_AGAIN);
                process_tree::kill_all()
            }
        }
    }
}
