//! The shim: the process beside each command that owns its output, its clock and everything it started.
//!
//! It has one thread and one loop. It is forked by the [zygote](crate::zygote) with all that it needs open: its listening
//! socket, the line to podbayd, which brings the command and whose closing is the sign of the shim's death, and the two files
//! that it writes. It opens, makes, renames and removes nothing in podbayd's directory, where it has no right to. podbayd may
//! come and go; the shim stays until nothing of the command is left.

mod cgroup;
mod child;
mod connection;
mod input;
mod posix_spawn;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use podbay_jail::{PreparedConfinement, SeccompListener};
use podbay_proto::exec::{Exit, Info, Process, Signalled, State, Stream, Target, Usage};
use podbay_proto::message::{HeadReader, MAX_ANSWER, decode_head, encode_head};
use podbay_proto::record;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use self::cgroup::CommandCgroup;
use self::child::Child;
use self::connection::{Connection, Role};
use self::input::Input;
use crate::exec_store::log::{CHUNK, Cursor, LogWriter};
use crate::exec_store::record::{CommandOutcome, Record};
use crate::process_tree;
use crate::shim_protocol::{MAX_PROCESSES, Report, Request, StartCommand};
use crate::stderr_log::log_error;
use crate::sys::{self, Ended, Reaped};

/// A reader that takes nothing for this long doesn't hold the command back any longer.
const STALLED: Duration = Duration::from_secs(60);

/// How often killing is tried again while something is left: a process in the kernel's hands dies later.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How often a command is offered to the kernel, and after what pause again.
const OFFERS: u32 = 4;
const OFFER_AGAIN: Duration = Duration::from_millis(5);

/// More connections than this wait: podbayd needs a few, and a command could make any number.
const MOST_CONNECTIONS: usize = 512;

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
    last: Option<CommandOutcome>,
    /// The same as a record.
    end: Option<Vec<u8>>,
    has_children: bool,
    cgroup: Option<CommandCgroup>,
    /// What the command and its children ask to be done for them.
    errands: Option<SeccompListener>,
    listener: UnixListener,
    connections: Vec<Connection>,
    children: OwnedFd,
}

#[derive(Default)]
struct Clock {
    deadline: Option<Instant>,
    timed_out: bool,
    kill_at: Option<Instant>,
    /// When the command is offered to the kernel again, and how many times more.
    offer: Option<(Instant, u32)>,
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
        let (start, unread) = read_start(&mut line)?;
        let now = Instant::now();
        let timeout = start.command.timeout_ms;
        let clock = Clock {
            deadline: (timeout > 0).then(|| now.checked_add(Duration::from_millis(timeout))).flatten(),
            ..Clock::default()
        };
        let mut shim = Self {
            started: now,
            log: LogWriter::new(output, record, largest_file()),
            main: None,
            ended: None,
            outputs: [None, None],
            input: Input::default(),
            clock,
            killed: false,
            last: None,
            end: None,
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
                shim.offer(OFFERS);
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
            self.watch_clock();
            self.conclude()?;
            let done = self.last.is_some() && !self.has_children;
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
        if self.connections.len() < MOST_CONNECTIONS {
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
        let mut alarms = vec![self.clock.kill_at.or(self.clock.deadline), self.clock.offer.map(|(at, _)| at)];
        if held_back {
            alarms.push(Some(Instant::now() + Duration::from_secs(1)));
        }
        let timeout = alarms.into_iter().flatten().min().map(|alarm| {
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

    fn accept(&mut self) {
        while self.connections.len() < MOST_CONNECTIONS
            && let Ok((socket, _)) = self.listener.accept()
        {
            if let Ok(connection) = Connection::new(socket, Bytes::new()) {
                self.connections.push(connection);
            }
        }
    }

    fn serve_connections(&mut self) {
        // A connection that fails is dropped: podbayd comes again and asks for what it missed.
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
                // Nothing is expected any more; reading tells when the other side has gone.
                Role::Following { .. } => {
                    return connection.next_request().map(|_| ());
                }
                Role::Closing => return Ok(()),
            }
        }
    }

    fn handle(&mut self, connection: &mut Connection, request: Request) -> io::Result<()> {
        match request {
            Request::Start(_) => Err(io::Error::other("a command is started once")),
            Request::Attach { offset } => {
                let until = self.last.as_ref().map(|_| self.log.log().end());
                connection.role = Role::Following { cursor: Cursor::at(offset), until };
                connection.progress = Instant::now();
                Ok(())
            }
            Request::Watch => {
                connection.role = Role::Watching;
                connection.answer(&Report::Begun)?;
                match &self.last {
                    Some(last) => {
                        connection.answer(&Report::Ended { outcome: last.clone(), processes: self.processes() })
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
                let outcome = self.last.clone().unwrap_or_else(|| self.outcome(State::Running));
                connection.answer(&Report::Ended { outcome, processes: self.processes() })
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

    /// Offers the command to the kernel for the time when memory runs out, and again a little later where that fails: the
    /// kernel says that a new program runs a moment before the process's files belong to its user.
    fn offer(&mut self, times: u32) {
        let failed = self.main.is_some_and(|main| !child::offer_to_oom(main));
        self.clock.offer = (failed && times > 1).then(|| (Instant::now() + OFFER_AGAIN, times - 1));
    }

    fn watch_clock(&mut self) {
        let now = Instant::now();
        if let Some((_, times)) = self.clock.offer.filter(|(at, _)| *at <= now) {
            self.offer(times);
        }
        let over = |alarm: Option<Instant>| alarm.is_some_and(|alarm| alarm <= now);
        if over(self.clock.deadline) {
            self.clock.deadline = None;
            if self.last.is_none() {
                self.clock.timed_out = true;
                process_tree::signal_all(Signal::TERM);
                self.clock.kill_at = Some(now + Duration::from_millis(self.start.command.grace_ms));
            }
        }
        if over(self.clock.kill_at) {
            process_tree::kill_all();
            self.clock.kill_at = Some(now + KILL_AGAIN);
        }
    }

    /// Settles the outcome once the command's own process has ended; when all are being killed, once all have.
    fn conclude(&mut self) -> io::Result<()> {
        if !self.has_children {
            self.clock.kill_at = None;
        }
        let Some(ended) = self.ended else { return Ok(()) };
        if self.last.is_some() || (self.clock.kill_at.is_some() && self.has_children) {
            return Ok(());
        }
        // All that it printed before its end is in the pipes by now. Background processes may go on printing.
        self.take_output(if self.has_children { 16 } else { usize::MAX })?;
        if !self.clock.timed_out {
            self.clock.deadline = None;
        }
        let exit = Exit {
            code: match (self.clock.timed_out, ended.code, ended.signal) {
                (true, ..) => 124,
                (_, Some(code), _) => code,
                (_, None, signal) => 128 + signal.unwrap_or(0),
            },
            signal: ended.signal.map(signal_name),
            timed_out: self.clock.timed_out,
            killed: self.killed,
            out_of_memory: self.cgroup.as_ref().is_some_and(CommandCgroup::out_of_memory),
            duration_us: self.started.elapsed().as_micros() as u64,
            usage: Usage { user_us: ended.user_us, system_us: ended.system_us, peak_memory: ended.peak_memory },
        };
        self.finish(State::Exited(exit))
    }

    fn finish(&mut self, state: State) -> io::Result<()> {
        let outcome = self.outcome(state);
        if let Err(error) = Record::end(self.log.record(), self.start.outcome_at, &outcome) {
            log_error(format_args!("command {}: its outcome can't be written: {error}", self.start.id));
        }
        let processes = self.processes();
        self.end = Some(record::encode_end(&self.info(&outcome, processes.clone())).map_err(io::Error::other)?);
        for connection in &mut self.connections {
            if let Role::Following { until, .. } = &mut connection.role {
                *until = Some(outcome.output_bytes);
            }
        }
        self.report(&Report::Ended { outcome: outcome.clone(), processes })?;
        self.last = Some(outcome);
        Ok(())
    }

    /// Tells podbayd.
    fn report(&mut self, report: &Report) -> io::Result<()> {
        self.connections
            .iter_mut()
            .filter(|connection| matches!(connection.role, Role::Watching))
            .try_for_each(|connection| connection.answer(report))
    }

    fn outcome(&self, state: State) -> CommandOutcome {
        CommandOutcome {
            state,
            output_bytes: self.log.log().end(),
            dropped_bytes: self.log.log().dropped(),
            input_bytes: self.input.taken(),
        }
    }

    /// The command for whoever follows its output. podbayd fills in what it knows better.
    fn info(&self, outcome: &CommandOutcome, processes: Vec<Process>) -> Info {
        Info {
            id: self.start.id.clone(),
            command: String::new(),
            started_ms: self.start.started_ms,
            state: outcome.state.clone(),
            output_bytes: outcome.output_bytes,
            dropped_bytes: outcome.dropped_bytes,
            log: self.start.log.clone(),
            input_bytes: outcome.input_bytes,
            processes,
        }
    }

    fn processes(&self) -> Vec<Process> {
        // Looking through /proc costs more than running `true`, and right after the start the answer is known.
        if !self.has_children || self.started.elapsed() < Duration::from_millis(1) {
            return Vec::new();
        }
        let mut processes = process_tree::descendants();
        processes.truncate(MAX_PROCESSES);
        processes
    }

    fn pump(&mut self) {
        let (log, end) = (self.log.log(), self.end.as_deref());
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

fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(number as usize - 1) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIGRTMIN+{}", number - 34),
    }
}
