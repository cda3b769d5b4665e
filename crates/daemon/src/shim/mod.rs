//! The shim: the process beside each command that owns its output, its clock and everything it started.
//!
//! It has one thread and one loop. It is forked by the [zygote](crate::zygote) with all that it needs open: its listening
//! socket, the line to podbayd, which brings the command and whose closing is the sign of the shim's death, and the two files
//! that it writes. It opens, makes, renames and removes nothing in podbayd's directory, where it has no right to. podbayd may
//! come and go; the shim stays until nothing of the command is left.

mod cgroup;
mod child;
mod clock;
mod connection;
mod input;
mod outcome;
mod posix_spawn;
mod requests;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use podbay_jail::{PreparedConfinement, SeccompListener};
use podbay_proto::exec::{State, Stream};
use podbay_proto::message::{HeadReader, MAX_ANSWER, decode_head, encode_head};
use rustix::event::{PollFd, PollFlags};

use self::cgroup::CommandCgroup;
use self::child::Child;
use self::clock::{Clock, OOM_ATTEMPTS};
use self::connection::{Connection, Role};
use self::input::Input;
use self::requests::MAX_CONNECTIONS;
use crate::exec_store::log::{CHUNK, LogWriter};
use crate::exec_store::record::CommandOutcome;
use crate::shim_protocol::{Report, Request, StartCommand};
use crate::stderr_log::log_error;
use crate::sys::{self, Ended, Reaped};

/// A reader that takes nothing for this long doesn't hold the command back any longer.
const STALLED: Duration = Duration::from_secs(60);

/// How many connections a shim queues that it hasn't taken yet; the standard library's choice.
const BACKLOG: i32 = 128;

/// Runs a command to its end. Called in a fresh fork of the zygote; the process ends with this call.
///
/// Where commands are confined more than the shim, `bars` are what keeps them.
pub fn run(listener: OwnedFd, line: OwnedFd, files: (File, File), bars: Option<PreparedConfinement>) -> i32 {
    // With nobody to tell, the record without an outcome tells that it is unknown.
    match Shim::start(listener.into(), line.into(), files, bars).and_then(|mut shim| shim.attend()) {
        Ok(()) => 0,
        Err(error) => {
            log_error(format_args!("a command's shim gave up: {error}"));
            1
        }
    }
}

struct Shim {
    start: StartCommand,
    started: Instant,
    log: LogWriter,
    main: Option<i32>,
    ended: Option<Ended>,
    outputs: [Option<OwnedFd>; 2],
    input: Input,
    clock: Clock,
    killed: bool,
    /// How the command ended, once it has.
    outcome: Option<CommandOutcome>,
    /// The same as the last record of its output.
    end_record: Option<Vec<u8>>,
    has_children: bool,
    cgroup: Option<CommandCgroup>,
    /// What the command and its children ask to be done for them.
    errands: Option<SeccompListener>,
    listener: UnixListener,
    connections: Vec<Connection>,
    children: OwnedFd,
}

impl Shim {
    fn start(
        listener: UnixListener,
        mut line: UnixStream,
        (output, record): (File, File),
        bars: Option<PreparedConfinement>,
    ) -> io::Result<Self> {
        // podbayd takes a shim that hasn't spoken for one that will never run anything: so this comes first, and must succeed.
        line.write_all(&encode_head(&Report::Begun).map_err(io::Error::other)?)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let children = sys::child_signals()?;
        listener.set_nonblocking(true)?;
        // podbayd listens on it already. Said again here, whoever connects learns from the kernel that this process is at
        // the other end: the next podbayd would have no other way to find a shim that a command has stopped.
        rustix::net::listen(&listener, BACKLOG)?;
        let (start, unread) = read_start(&mut line)?;
        let mut shim = Self {
            started: Instant::now(),
            log: LogWriter::new(output, record, largest_file()),
            main: None,
            ended: None,
            outputs: [None, None],
            input: Input::default(),
            clock: Clock::with_timeout(start.command.timeout_ms),
            killed: false,
            outcome: None,
            end_record: None,
            has_children: false,
            cgroup: None,
            errands: None,
            listener,
            connections: vec![Connection::watching(line, unread)?],
            children,
            start,
        };
        let spawned = CommandCgroup::make(&shim.start.id, &shim.start.command.limits).and_then(|cgroup| {
            shim.cgroup = cgroup;
            child::spawn(&shim.start, shim.cgroup.as_ref(), bars)
        });
        match spawned {
            Ok(Child { pid, stdin, stdout, stderr, errands }) => {
                shim.errands = errands;
                shim.main = Some(pid);
                shim.prefer_for_oom(OOM_ATTEMPTS);
                shim.has_children = true;
                shim.outputs = [Some(stdout), stderr];
                shim.input = Input::new(stdin);
            }
            Err(error) => shim.finish(State::Failed(error))?,
        }
        Ok(shim)
    }

    /// The loop: until the command has ended and nothing that it started is left.
    fn attend(&mut self) -> io::Result<()> {
        let mut held_back = false;
        loop {
            self.reap();
            if !held_back {
                self.take_output(1)?;
            }
            self.run_errands()?;
            self.accept();
            self.serve_connections();
            self.input.feed();
            self.check_clock();
            self.conclude()?;
            let done = self.outcome.is_some() && !self.has_children;
            if done {
                self.report(&Report::Gone)?;
            }
            self.pump();
            if done {
                self.cgroup.iter().for_each(CommandCgroup::remove);
                // What readers have not got yet is in the files.
                return Ok(());
            }
            held_back = self.hold_back();
            if self.log.wants_room() {
                self.report(&Report::Room)?;
            }
            self.wait(held_back)?;
        }
    }

    /// Whether the command has to wait because a reader isn't ready for more and the log is full.
    fn hold_back(&mut self) -> bool {
        if self.outputs.iter().all(Option::is_none) {
            return false;
        }
        let needed = |connections: &[Connection]| {
            connections
                .iter()
                .filter_map(|connection| match &connection.role {
                    Role::Following { cursor, .. } => Some(cursor.offset),
                    _ => None,
                })
                .min()
        };
        if self.log.has_room(needed(&self.connections)) {
            return false;
        }
        self.connections.retain(|connection| {
            !matches!(connection.role, Role::Following { .. }) || connection.progress.elapsed() < STALLED
        });
        !self.log.has_room(needed(&self.connections))
    }

    fn wait(&self, held_back: bool) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        if self.connections.len() < MAX_CONNECTIONS {
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        if !held_back {
            fds.extend(self.outputs.iter().flatten().map(|output| PollFd::new(output, PollFlags::IN)));
        }
        fds.extend(self.input.awaited());
        fds.extend(self.errands.as_ref().map(|errands| PollFd::new(errands, PollFlags::IN)));
        for connection in &self.connections {
            let mut events = PollFlags::IN;
            if matches!(connection.role, Role::Feeding { .. }) && self.input.is_full() {
                events.remove(PollFlags::IN);
            }
            if connection.has_unsent() {
                events.insert(PollFlags::OUT);
            }
            fds.push(PollFd::from_borrowed_fd(connection.socket.as_fd(), events));
        }
        let look_again = held_back.then(|| Instant::now() + Duration::from_secs(1));
        let timeout = self.clock.next().into_iter().chain(look_again).min().map(|alarm| {
            let left = alarm.saturating_duration_since(Instant::now());
            rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn reap(&mut self) {
        let mut notice = [0; 128];
        while rustix::io::read(&self.children, &mut notice).is_ok() {}
        loop {
            match sys::reap() {
                Reaped::Ended(ended) if Some(ended.pid) == self.main => {
                    self.main = None;
                    self.ended = Some(ended);
                }
                Reaped::Ended(_) => {}
                Reaped::AllRun => return self.has_children = true,
                Reaped::NoChildren => return self.has_children = false,
            }
        }
    }

    /// Takes what the command printed, at most `rounds` chunks of each stream.
    fn take_output(&mut self, rounds: usize) -> io::Result<()> {
        let mut buffer = [0; CHUNK];
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            for _ in 0..rounds {
                let Some(pipe) = &self.outputs[at] else { break };
                match rustix::io::read(pipe, &mut buffer) {
                    Ok(0) => self.outputs[at] = None,
                    Ok(count) => self.log.append(stream, &buffer[..count]),
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Does what the command asks for, as long as it asks.
    fn run_errands(&mut self) -> io::Result<()> {
        // A few in a row: who unpacks an archive asks thousands of times.
        for _ in 0..64 {
            let Some(errands) = &self.errands else { return Ok(()) };
            let mut fds = [PollFd::new(errands, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&now)))?;
            let happened = fds[0].revents();
            if happened.contains(PollFlags::IN) {
                // One that has died meanwhile needs no answer.
                let _ = errands.respond_to_one();
            } else {
                // Nobody is left who could ask.
                if !happened.is_empty() {
                    self.errands = None;
                }
                return Ok(());
            }
        }
        Ok(())
    }

    fn pump(&mut self) {
        let (log, end) = (self.log.log(), self.end_record.as_deref());
        self.connections.retain_mut(|connection| connection.pump(log, end).is_ok());
    }
}

/// The largest file that the kernel lets this process write.
fn largest_file() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

fn read_start(first: &mut UnixStream) -> io::Result<(StartCommand, Bytes)> {
    use std::io::Read;
    let mut reader = HeadReader::at_most(MAX_ANSWER);
    let mut buffer = [0; CHUNK];
    loop {
        let count = first.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((head, rest)) = reader.push(&buffer[..count]).map_err(io::Error::other)? {
            return match decode_head(&head).map_err(io::Error::other)? {
                Request::Start(start) => Ok((*start, rest)),
                other => Err(io::Error::other(format!("a command's first request was {other:?}"))),
            };
        }
    }
}
