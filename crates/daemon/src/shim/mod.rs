//! The shim: the process beside each command that owns its output, its clock and everything it started.
//!
//! It has one thread and one loop. The [zygote](crate::zygote) forks it with all that it needs open: its listening socket, the
//! two files that it writes, and the line to podbayd, on which the command arrives and by whose closing podbayd notices the
//! shim's death. It opens, makes, renames and removes nothing in podbayd's directory, where it has no permission to. podbayd
//! may come and go; the shim stays until no process of the command is left.

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
use crate::shim_protocol::{Request, ShimReport, StartCommand};
use crate::stderr_log::log_error;
use crate::sys::{self, Ended, Reaped};

/// A reader that reads nothing for this long no longer holds the command back.
const STALLED: Duration = Duration::from_secs(60);

/// How many connections a shim queues that it hasn't taken yet; the standard library's choice.
const BACKLOG: i32 = 128;

/// Runs a command to its end. Called in a fresh fork of the zygote; the process exits with the returned code.
///
/// `confinement` is what the command enters, where it is confined more than the shim.
pub fn run(listener: OwnedFd, line: OwnedFd, files: (File, File), confinement: Option<PreparedConfinement>) -> i32 {
    // If it fails, the record stays without an outcome, which means that the outcome is unknown.
    match Shim::start(listener.into(), line.into(), files, confinement).and_then(|mut shim| shim.attend()) {
        Ok(()) => 0,
        Err(error) => {
            log_error(format_args!("a command's shim failed: {error}"));
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
    /// System calls that the shim does on behalf of the command's processes.
    seccomp_listener: Option<SeccompListener>,
    listener: UnixListener,
    connections: Vec<Connection>,
    children: OwnedFd,
}

impl Shim {
    fn start(
        listener: UnixListener,
        mut line: UnixStream,
        (output, record): (File, File),
        confinement: Option<PreparedConfinement>,
    ) -> io::Result<Self> {
        // podbayd assumes that a shim which hasn't reported will never run anything: so this comes first, and must succeed.
        line.write_all(&encode_head(&ShimReport::Begun).map_err(io::Error::other)?)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let children = sys::child_signals()?;
        listener.set_nonblocking(true)?;
        // podbayd listens on it already. Listening again makes this process the peer that the kernel reports to whoever
        // connects: that is how the next podbayd finds a shim that a command has stopped.
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
            seccomp_listener: None,
            listener,
            connections: vec![Connection::watching(line, unread)?],
            children,
            start,
        };
        let spawned = CommandCgroup::make(&shim.start.id, &shim.start.command.limits).and_then(|cgroup| {
            shim.cgroup = cgroup;
            child::spawn(&shim.start, shim.cgroup.as_ref(), confinement)
        });
        match spawned {
            Ok(Child { pid, stdin, stdout, stderr, seccomp_listener }) => {
                shim.seccomp_listener = seccomp_listener;
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

    /// The loop: until the command has ended and none of its processes is left.
    fn attend(&mut self) -> io::Result<()> {
        let mut held_back = false;
        loop {
            self.reap();
            if !held_back {
                self.take_output(1)?;
            }
            self.serve_seccomp_listener()?;
            self.accept();
            self.serve_connections();
            self.input.feed();
            self.check_clock();
            self.conclude()?;
            let done = self.outcome.is_some() && !self.has_children;
            if done {
                self.report(&ShimReport::Gone)?;
            }
            self.pump();
            if done {
                self.cgroup.iter().for_each(CommandCgroup::remove);
                // What readers haven't got yet is in the files.
                return Ok(());
            }
            held_back = self.hold_back();
            if self.log.wants_room() {
                self.report(&ShimReport::Room)?;
            }
            self.wait(held_back)?;
        }
    }

    /// Whether the command has to wait because the log is full and a reader hasn't caught up.
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
        fds.extend(self.seccomp_listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
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
        // Input that was read while there was no room for it, and now there is.
        let is_waiting =
            |connection: &Connection| matches!(connection.role, Role::Feeding { .. }) && connection.has_unread();
        let input = !self.input.is_full() && self.connections.iter().any(is_waiting);
        let at_once = input.then(Instant::now);
        let timeout = self.clock.next().into_iter().chain(look_again).chain(at_once).min().map(|alarm| {
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

    /// Reads what the command printed, at most `rounds` chunks of each stream.
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

    /// Does system calls on behalf of the command's processes.
    fn serve_seccomp_listener(&mut self) -> io::Result<()> {
        // Many in a row: unpacking an archive makes thousands.
        for _ in 0..64 {
            let Some(listener) = &self.seccomp_listener else { return Ok(()) };
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&now)))?;
            let happened = fds[0].revents();
            if happened.contains(PollFlags::IN) {
                // A process that has died meanwhile needs no answer.
                let _ = listener.respond_to_one();
            } else {
                // No process is left that could make one.
                if !happened.is_empty() {
                    self.seccomp_listener = None;
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
