//! Watching a command: whether its shim lives, how the command ended, and when its time is up.
//!
//! A command can stop, kill or fool its shim, so podbayd doesn't rely on it. Each shim has a *line* to podbayd, a socket pair
//! that no command can get hold of: if it closes, the shim is dead, and what arrives on it was sent by the shim, as the
//! kernel confirms. If the shim hasn't reported the end by the command's deadline and some slack, podbayd kills shim, command
//! and everything below.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use podbay_jail::process_tree;
use podbay_proto::exec::{ExecId, Exit, Info, Process, State};
use podbay_proto::message::{HeadReader, decode_head, encode_head};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::ExecRegistry;
use crate::exec_store::log_quota;
use crate::exec_store::record::{Begun, CommandOutcome, ExecRecord, RECORD};
use crate::shim_protocol::{MAX_REPORT, Request, ShimReport};
use crate::stderr_log::log_error;

/// How long after its command's deadline a shim has to report the end.
const SLACK: Duration = Duration::from_secs(1);

/// How long podbayd keeps killing before it answers its callers anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// A command that may have live processes.
#[derive(Debug)]
pub struct Watched {
    /// Its id.
    pub id: ExecId,
    /// What was started.
    pub begun: Begun,
    /// Its shim's process id, as the kernel says; 0 until it is known.
    shim: AtomicI32,
    ended: watch::Sender<Option<(CommandOutcome, Vec<Process>)>>,
    kill: Notify,
}

impl Watched {
    pub(super) fn new(id: ExecId, begun: Begun) -> Arc<Self> {
        let ended = watch::Sender::new(None);
        Arc::new(Self { id, begun, shim: AtomicI32::new(0), ended, kill: Notify::new() })
    }

    /// The shim's process id, if it is known.
    pub fn shim(&self) -> Option<i32> {
        Some(self.shim.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    pub(super) fn set_shim(&self, pid: i32) {
        self.shim.store(pid, Ordering::Relaxed);
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<(CommandOutcome, Vec<Process>)> {
        self.ended.borrow().clone()
    }

    /// Waits for its end.
    pub async fn end(&self) -> (CommandOutcome, Vec<Process>) {
        let mut ended = self.ended.subscribe();
        loop {
            if let Some(end) = ended.borrow_and_update().clone() {
                return end;
            }
            if ended.changed().await.is_err() {
                return (CommandOutcome::lost(0), Vec::new());
            }
        }
    }

    /// Makes podbayd kill the shim and everything below it.
    pub fn kill(&self) {
        self.kill.notify_one();
    }

    pub(super) fn set_outcome(&self, outcome: CommandOutcome, processes: Vec<Process>) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some((outcome, processes));
            }
            first
        });
    }

    fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// When podbayd kills it. In wall-clock time, because an earlier podbayd may have started it.
    fn deadline(&self) -> Option<Instant> {
        if self.begun.timeout_ms == 0 {
            return None;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let ran = (now.as_millis() as u64).saturating_sub(self.begun.started_ms);
        let left = self.begun.timeout_ms.saturating_add(self.begun.grace_ms).saturating_sub(ran);
        Instant::now().checked_add(Duration::from_millis(left).saturating_add(SLACK))
    }
}

/// podbayd's end of the line to a shim.
#[derive(Debug)]
pub struct Line {
    socket: UnixStream,
    reader: HeadReader,
    ready: VecDeque<ShimReport>,
    sender: Option<i32>,
}

impl Line {
    /// Takes over a socket. From now on the kernel adds the sender to each message.
    pub(super) fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        Ok(Self { socket, reader: HeadReader::at_most(MAX_REPORT), ready: VecDeque::new(), sender: None })
    }

    pub(super) async fn send(&mut self, request: &Request) -> io::Result<()> {
        let head = encode_head(request).map_err(io::Error::other)?;
        self.socket.write_all(&head).await
    }

    /// Closes it in both directions.
    pub(super) fn close(&self) {
        // An error means that it is closed already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// The next report; nothing when the shim is gone.
    pub(super) async fn next(&mut self) -> io::Result<Option<ShimReport>> {
        loop {
            if let Some(report) = self.ready.pop_front() {
                return Ok(Some(report));
            }
            let mut buffer = [0; 4096];
            let socket = &self.socket;
            let (count, sender) = socket.async_io(Interest::READABLE, || receive(socket, &mut buffer)).await?;
            if count == 0 {
                return Ok(None);
            }
            self.sender = sender.or(self.sender);
            let mut piece = bytes::Bytes::copy_from_slice(&buffer[..count]);
            while let Some((head, rest)) = self.reader.push(&piece).map_err(io::Error::other)? {
                self.ready.push_back(decode_head(&head).map_err(io::Error::other)?);
                piece = rest;
                if piece.is_empty() {
                    break;
                }
            }
        }
    }
}

fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut sender = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmCredentials(credentials) = part {
            sender = Some(credentials.pid.as_raw_nonzero().get());
        }
    }
    Ok((message.bytes, sender))
}

/// Why podbayd itself kills a command.
#[derive(Debug, Clone, Copy)]
enum Cause {
    TimedOut,
    Killed,
}

impl ExecRegistry {
    /// Watches a command until it and everything that it started have ended.
    pub(super) async fn watch(self: Arc<Self>, watched: Arc<Watched>, mut line: Line) {
        let deadline = watched.deadline();
        let (mut clean, mut forced) = (false, None);
        loop {
            if let Some(shim) = line.sender {
                watched.set_shim(shim);
            }
            let time_is_up = async {
                match deadline.filter(|_| !watched.has_ended()) {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                report = line.next() => match report {
                    Ok(Some(ShimReport::Begun)) => {}
                    Ok(Some(ShimReport::Room)) => self.answer_for_room(&mut line).await,
                    Ok(Some(ShimReport::Ended { outcome, processes })) => watched.set_outcome(outcome, processes),
                    Ok(Some(ShimReport::Gone)) => clean = true,
                    Ok(None) => break,
                    Err(error) => {
                        log_error(format_args!("command {}: its shim sent an invalid message: {error}", watched.id));
                        break;
                    }
                },
                () = time_is_up => {
                    forced = self.end_by_force(&watched, Cause::TimedOut).await;
                    break;
                }
                () = watched.kill.notified() => {
                    forced = self.end_by_force(&watched, Cause::Killed).await;
                    break;
                }
            }
        }
        if !clean && forced.is_none() && !watched.has_ended() {
            // Nobody could list, signal or time out the processes that a killed shim leaves, so they are killed too.
            self.clear_after(&watched).await;
        } else if !clean {
            let (execs, watched) = (self.clone(), watched.clone());
            tokio::spawn(async move { execs.clear_after(&watched).await });
        }
        let outcome = match (forced, watched.has_ended()) {
            (Some(outcome), _) => Some(outcome),
            (None, true) => None,
            (None, false) => {
                let (execs, id) = (self.clone(), watched.id.clone());
                let outcome = tokio::task::spawn_blocking(move || execs.outcome_on_file(&id)).await;
                Some(outcome.unwrap_or_else(|_| CommandOutcome::lost(0)))
            }
        };
        // First: a caller that has its answer mustn't find the command among those that run.
        self.forget_shim(&watched);
        if let Some(outcome) = outcome {
            watched.set_outcome(outcome, Vec::new());
        }
    }

    async fn answer_for_room(self: &Arc<Self>, line: &mut Line) {
        let execs = self.clone();
        let used_up =
            tokio::task::spawn_blocking(move || log_quota::exceeds_quota(&execs.directory, &execs.running_ids()));
        // A shim that doesn't get this keeps to its own bounds.
        let _ = line.send(&Request::Room { used_up: used_up.await.unwrap_or(false) }).await;
    }

    /// Kills a command whose shim didn't end it, and records the outcome.
    async fn end_by_force(self: &Arc<Self>, watched: &Arc<Watched>, cause: Cause) -> Option<CommandOutcome> {
        let (execs, watched) = (self.clone(), watched.clone());
        let ended = tokio::task::spawn_blocking(move || {
            let processes = watched.shim().map_or(0, |shim| process_tree::end(shim, PATIENCE));
            let outcome = execs.forced_outcome(&watched, cause);
            log_error(format_args!(
                "command {}: its shim didn't end it, so podbayd killed it and {processes} processes",
                watched.id
            ));
            outcome
        });
        let ended = ended.await;
        if ended.is_err() {
            log_error("podbayd failed to kill a command; please report this bug");
        }
        ended.ok()
    }

    fn forced_outcome(&self, watched: &Watched, cause: Cause) -> CommandOutcome {
        let on_file = self.directory.record(&watched.id);
        // It may have ended at the last moment.
        if let Ok(ExecRecord { outcome: Some(outcome), .. }) = &on_file {
            return outcome.clone();
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let ran = (now.as_millis() as u64).saturating_sub(watched.begun.started_ms);
        let timed_out = matches!(cause, Cause::TimedOut);
        let exit = Exit {
            code: if timed_out { 124 } else { 137 },
            signal: Some("SIGKILL".to_owned()),
            timed_out,
            killed: !timed_out,
            duration_us: ran.saturating_mul(1000),
            ..Exit::default()
        };
        let log = self.directory.log(&watched.id);
        let outcome = CommandOutcome {
            output_bytes: log.as_ref().map_or(0, |log| log.end()),
            dropped_bytes: log.as_ref().map_or(0, |log| log.dropped()),
            ..CommandOutcome::lost(0)
        };
        let outcome = CommandOutcome { state: State::Exited(exit), ..outcome };
        let written = on_file.and_then(|record| {
            let file = self.directory.file(&watched.id, RECORD, rustix::fs::OFlags::WRONLY)?;
            ExecRecord::end(&file, record.outcome_at, &outcome)
        });
        if let Err(error) = written {
            log_error(format_args!("command {}: can't write its outcome: {error}", watched.id));
        }
        outcome
    }

    /// Kills what a shim that died unexpectedly has left.
    async fn clear_after(self: &Arc<Self>, watched: &Arc<Watched>) {
        let (execs, watched) = (self.clone(), watched.clone());
        let zygote = self.zygote_pid().await;
        let cleared = tokio::task::spawn_blocking(move || {
            // It may have closed its line and live on.
            if let Some(shim) = watched.shim().filter(|shim| process_tree::is_child_of(*shim, zygote)) {
                process_tree::end(shim, PATIENCE);
            }
            let mut spared: Vec<i32> = execs.shims(&watched.id);
            spared.extend(zygote);
            process_tree::end_orphans(&spared, PATIENCE);
        });
        if cleared.await.is_err() {
            log_error("podbayd failed to kill the processes of a dead shim; please report this bug");
        }
    }

    /// The description of a watched command in lists and results.
    pub fn info(&self, watched: &Watched, outcome: Option<(CommandOutcome, Vec<Process>)>) -> Info {
        let running = CommandOutcome { state: State::Running, ..CommandOutcome::lost(0) };
        let (outcome, processes) = outcome.unwrap_or((running, Vec::new()));
        self.assemble(&watched.id, &watched.begun, outcome, processes)
    }

    pub(super) fn assemble(
        &self,
        id: &ExecId,
        begun: &Begun,
        outcome: CommandOutcome,
        processes: Vec<Process>,
    ) -> Info {
        Info {
            id: id.clone(),
            command: begun.command.clone(),
            started_ms: begun.started_ms,
            state: outcome.state,
            output_bytes: outcome.output_bytes,
            dropped_bytes: outcome.dropped_bytes,
            log: self.directory.log_path(id),
            input_bytes: outcome.input_bytes,
            processes,
        }
    }

    pub(super) fn outcome_on_file(&self, id: &ExecId) -> CommandOutcome {
        let outcome = self.directory.record(id).ok().and_then(|record| record.outcome);
        outcome.unwrap_or_else(|| CommandOutcome::lost(self.directory.log(id).map_or(0, |log| log.end())))
    }
}
