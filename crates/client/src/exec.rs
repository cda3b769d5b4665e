//! Commands.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use podbay_proto::ErrorCode;
use podbay_proto::exec::{
    Attach, Command, Cut, ExecId, Exit, Info, Input, List, Run, RunOutput, Signal, Start, State, Status, Stream, Target,
};
use podbay_proto::record::{Record, RecordReader};

use crate::Sandbox;
use crate::connection::{Answer, Failure, Purpose};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::guard::{Content, Effect, Permit};
use crate::session::{Patience, Session, request_id};

/// The signal that nothing can ignore.
const SIGKILL: i32 = 9;

/// How much input is sent in one request.
const INPUT_PIECE: usize = 1 << 20;

/// The output of a command that has ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command: how it ended, what it used, where its log is.
    pub info: Info,
    bytes: Bytes,
    runs: Vec<(Stream, u64)>,
    /// Where bytes are missing, if there were more than requested.
    pub cut: Option<Cut>,
}

impl Output {
    /// How it ended; none if that is unknown.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.info.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// The exit code; none if the outcome is unknown.
    pub fn code(&self) -> Option<i32> {
        self.exit().map(|exit| exit.code)
    }

    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.code() == Some(0)
    }

    /// Its output, both streams in order of arrival.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its output as text. Bytes that aren't UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Its standard output.
    pub fn stdout(&self) -> Vec<u8> {
        self.stream(Stream::Stdout)
    }

    /// Its standard error.
    pub fn stderr(&self) -> Vec<u8> {
        self.stream(Stream::Stderr)
    }

    fn stream(&self, wanted: Stream) -> Vec<u8> {
        let mut rest = &self.bytes[..];
        let mut bytes = Vec::new();
        for (stream, length) in &self.runs {
            // The lengths come from the sandbox and may be anything.
            let (run, after) = rest.split_at((*length).min(rest.len() as u64) as usize);
            if *stream == wanted {
                bytes.extend_from_slice(run);
            }
            rest = after;
        }
        bytes
    }
}

/// An event of a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It printed these bytes.
    Output(Stream, Bytes),
    /// So many bytes of output are missing here, because the log no longer has them.
    Lost(u64),
    /// It has ended. The last event.
    End(Box<Info>),
}

impl Sandbox {
    /// Runs a command to its end.
    ///
    /// The command is killed when the returned future is dropped. It runs once, however often the connection breaks meanwhile.
    ///
    /// ```no_run
    /// # async fn example(sandbox: podbay_client::Sandbox) -> podbay_client::Result<()> {
    /// let output = sandbox.run("echo hello | tr a-z A-Z").await?;
    /// assert_eq!(output.text(), "HELLO\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it can't be started, or the sandbox can't be reached. A command that fails is no error.
    pub async fn run(&self, command: impl Into<Command>) -> Result<Output> {
        self.run_capped(command, podbay_proto::exec::DEFAULT_OUTPUT_CAP).await
    }

    /// Like [`run`](Self::run), with at most `cap` bytes of output: its beginning and its end.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn run_capped(&self, command: impl Into<Command>, cap: u64) -> Result<Output> {
        let command = command.into();
        let deadline = self.session.deadline(&command);
        let request = Run { id: new_id()?, command: Some(command), output_cap: cap };
        let mut permit = self.session.permit(request, Content::Nothing)?;
        let mut guard = KillOnDrop::new(&self.session, &permit.id);
        let output = self.collect(&mut guard, &mut permit, &deadline).await;
        permit.finish(output, effect)
    }

    /// Like [`run_capped`](Self::run_capped), with these bytes as the command's standard input, which is closed after them.
    ///
    /// # Errors
    /// As for [`run`](Self::run). A command that doesn't read all of its input is no error.
    pub async fn run_with_input(
        &self,
        command: impl Into<Command>,
        input: impl Into<Bytes>,
        cap: u64,
    ) -> Result<Output> {
        let (command, input) = (command.into().stdin(), input.into());
        let deadline = self.session.deadline(&command);
        let request = Run { id: new_id()?, command: Some(command), output_cap: cap };
        // One operation: what follows is part of it.
        let mut permit = self.session.permit(request, Content::Bytes(&input))?;
        let output = self.start_and_feed(&mut permit, input, &deadline).await;
        permit.finish(output, effect)
    }

    async fn start_and_feed(&self, permit: &mut Permit<Run>, input: Bytes, deadline: &Deadline) -> Result<Output> {
        let id = permit.id.clone();
        let mut guard = KillOnDrop::new(&self.session, &id);
        if let Some(command) = permit.request_mut().command.take() {
            let start = Permit::part(Start { id: id.clone(), command });
            deadline.wait(&id, self.started(&start)).await??;
        }
        let mut control = Control { session: self.session.clone(), id: id.clone(), written: 0, part: true };
        let feed = async {
            if control.write(input).await? {
                control.close_input().await?;
            }
            Ok(())
        };
        let work = async {
            let (fed, output) = tokio::join!(feed, self.collect(&mut guard, permit, deadline));
            fed.and(output)
        };
        deadline.wait(&id, work).await?
    }

    /// Starts a command where there is one, waits for its end and fetches its output.
    async fn collect(&self, guard: &mut KillOnDrop, permit: &mut Permit<Run>, deadline: &Deadline) -> Result<Output> {
        let id = guard.id.clone();
        // Overdue, the command is left to the guard, which has it killed where that can still be asked for.
        deadline.wait(&id, self.collect_patiently(guard, permit)).await?
    }

    async fn collect_patiently(&self, guard: &mut KillOnDrop, permit: &mut Permit<Run>) -> Result<Output> {
        let most = usize::try_from(permit.output_cap).unwrap_or(usize::MAX).saturating_add(1024);
        let mut asked: Option<String> = None;
        let mut patience = self.session.patience("running a command");
        let result = loop {
            let failure = match self.session.connection(Purpose::Shared).await {
                Ok(connection) => {
                    settle_instance(&mut asked, &connection.welcome.instance, &mut permit.request_mut().command);
                    let failure = match connection.ask(permit, None, Bytes::new()).await {
                        Ok(answer) => match answer.collect(Some(most)).await {
                            Ok(answer) => break Ok(answer),
                            Err(failure) => failure,
                        },
                        Err(failure) => restarted(failure, permit.command.is_none(), "running a command"),
                    };
                    // The command may have run for hours before the connection broke.
                    patience = self.session.patience("running a command");
                    failure
                }
                Err(failure) => failure,
            };
            if let Err(error) = patience.after(failure).await {
                break Err(error);
            }
        };
        guard.armed = matches!(result, Err(Error::Unreachable { .. }));
        let (RunOutput { info, runs, cut }, bytes) = result?;
        match info.state {
            State::Failed(error) => Err(error.into()),
            _ => Ok(Output { info, bytes, runs, cut }),
        }
    }

    /// Starts a command and streams its events.
    ///
    /// Dropping the returned value leaves the command running: [`attach`](Self::attach) finds it again.
    ///
    /// # Errors
    /// When it can't be started, or the sandbox can't be reached.
    pub async fn spawn(&self, command: impl Into<Command>) -> Result<Exec> {
        Exec::open(self.session.clone(), new_id()?, Some(command.into()), 0).await
    }

    /// Streams the events of a command that was started before, from an offset in its output on.
    ///
    /// The caller doesn't know the command's time-out, so the events have no deadline: [`Exec::next`] waits as long as the
    /// connection lives and the command says nothing. Callers who don't trust the sandbox to end set one of their own.
    ///
    /// # Errors
    /// `exec_not_found`; [`Error::NoAnswer`] when the sandbox doesn't even say whether it knows the command.
    pub async fn attach(&self, id: &ExecId, offset: u64) -> Result<Exec> {
        Exec::open(self.session.clone(), id.clone(), None, offset).await
    }

    /// Starts a command and leaves it running.
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn start(&self, command: impl Into<Command>) -> Result<Info> {
        self.start_as(new_id()?, command).await
    }

    /// Starts a command with the caller's id. An id that was started before isn't started again.
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn start_as(&self, id: ExecId, command: impl Into<Command>) -> Result<Info> {
        let permit = self.session.permit(Start { id, command: command.into() }, Content::Nothing)?;
        let info = self.started(&permit).await;
        permit.finish(info, |_| Effect::default())
    }

    async fn started(&self, permit: &Permit<Start>) -> Result<Info> {
        let (info, _) = self.session.send(permit, Bytes::new(), Some(0)).await?;
        match info.state {
            State::Failed(error) => Err(error.into()),
            _ => Ok(info),
        }
    }

    /// Describes a command.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn status(&self, id: &ExecId) -> Result<Info> {
        self.session.ask(Status { id: id.clone() }).await
    }

    /// Lists commands, oldest first; optionally only those with live processes.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn commands(&self, running: bool) -> Result<Vec<Info>> {
        self.session.ask(List { running }).await
    }

    /// Sends a signal to everything that a command started. Returns how many processes got it.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn signal(&self, id: &ExecId, signal: i32) -> Result<u32> {
        self.signal_to(id, signal, Target::All).await
    }

    /// Sends a signal to a command's own process, or to everything that it started. Returns how many processes got it.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn signal_to(&self, id: &ExecId, signal: i32, target: Target) -> Result<u32> {
        Ok(self.session.ask(Signal { id: id.clone(), signal, target }).await?.processes)
    }

    /// Kills everything that a command started, until no process is left.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn kill(&self, id: &ExecId) -> Result<u32> {
        self.signal(id, SIGKILL).await
    }
}

fn new_id() -> Result<ExecId> {
    Ok(ExecId::new(request_id())?)
}

/// A podbayd that was restarted finds commands of the one before by their directories, but one that it doesn't find may
/// have run: it is only looked for, not started.
fn settle_instance(asked: &mut Option<String>, instance: &str, command: &mut Option<Command>) {
    if asked.as_ref().is_some_and(|asked| asked != instance) {
        *command = None;
    }
    *asked = Some(instance.to_owned());
}

/// Not finding what was only looked for means that podbayd was restarted and has lost it.
fn restarted(failure: Failure, looked_for: bool, what: &'static str) -> Failure {
    match failure {
        Failure::Final(error) if looked_for && error.code() == Some(ErrorCode::ExecNotFound) => {
            Failure::Final(Error::SandboxRestarted { what })
        }
        other => other,
    }
}

/// What the guard is told of a command that has ended.
fn effect(output: &Output) -> Effect {
    Effect { exit: output.code(), ..Effect::bytes(output.info.output_bytes) }
}

struct KillOnDrop {
    session: Session,
    id: ExecId,
    armed: bool,
}

impl KillOnDrop {
    fn new(session: &Session, id: &ExecId) -> Self {
        Self { session: session.clone(), id: id.clone(), armed: true }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Outside a runtime nothing can be sent any more; the command's own time-out ends it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Part of the command's own operation, which ends as cancelled: an audit log that can't be written mustn't keep it alive.
            let signal = Permit::part(Signal { id: self.id.clone(), signal: SIGKILL, target: Target::All });
            let session = self.session.clone();
            runtime.spawn(async move {
                if let Err(error) = session.send(&signal, Bytes::new(), Some(0)).await {
                    tracing::debug!(%error, "a command that nobody waits for couldn't be killed");
                }
            });
        }
    }
}

/// A running command and its events.
///
/// Dropping it leaves the command running; the guard is told that it is no longer followed.
#[derive(Debug)]
pub struct Exec {
    session: Session,
    permit: Permit<Attach>,
    offset: u64,
    started: bool,
    stream: Option<Records>,
    instance: Option<String>,
    ended: Option<Box<Info>>,
    deadline: Deadline,
}

impl Drop for Exec {
    fn drop(&mut self) {
        if let Err(error) = self.permit.end(Ok(Effect::bytes(self.offset))) {
            tracing::warn!(%error, "the end of a command couldn't be recorded");
        }
    }
}

#[derive(Debug)]
struct Records {
    answer: Answer<podbay_proto::exec::Attached>,
    reader: RecordReader,
    ready: VecDeque<Record>,
}

impl Exec {
    async fn open(session: Session, id: ExecId, command: Option<Command>, offset: u64) -> Result<Self> {
        let deadline = command.as_ref().map_or_else(Deadline::none, |command| session.deadline(command));
        let permit = session.permit(Attach { id, command, offset }, Content::Nothing)?;
        let (stream, instance, ended) = (None, None, None);
        let mut exec =
            Self { session, permit, offset, started: false, stream, instance, ended, deadline: deadline.clone() };
        let id = exec.id().clone();
        let connected = deadline.wait(&id, exec.connect()).await.flatten();
        if let Err(error) = connected {
            exec.permit.end(Err(&error))?;
            return Err(error);
        }
        Ok(exec)
    }

    /// The command's id, by which any client finds it.
    pub fn id(&self) -> &ExecId {
        &self.permit.id
    }

    /// How many bytes of its output have been seen.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    async fn connect(&mut self) -> Result<()> {
        let mut patience = self.session.patience("a command's output");
        let only_looked_for = self.permit.command.is_none();
        loop {
            let failure = match self.try_connect().await {
                Ok(()) => {
                    // From now on it is only looked for.
                    self.permit.request_mut().command = None;
                    return Ok(());
                }
                Err(failure) if self.started || !only_looked_for => {
                    restarted(failure, self.permit.command.is_none(), "a command's output")
                }
                Err(failure) => failure,
            };
            patience.after(failure).await?;
        }
    }

    async fn try_connect(&mut self) -> Result<(), Failure> {
        let connection = self.session.connection(Purpose::Shared).await?;
        let request = self.permit.request_mut();
        settle_instance(&mut self.instance, &connection.welcome.instance, &mut request.command);
        request.offset = self.offset;
        let answer = connection.ask(&self.permit, None, Bytes::new()).await?;
        self.started = true;
        self.stream = Some(Records { answer, reader: RecordReader::default(), ready: VecDeque::new() });
        Ok(())
    }

    /// The next event; none after the end.
    ///
    /// A connection that breaks is reopened, and the output continues with the exact next byte.
    ///
    /// # Errors
    /// When the sandbox can't be reached any more, or the command's program couldn't be started; `DeadlineExceeded` when its
    /// time was up long ago and it still hasn't ended, whether podbayd is silent or sends a trickle.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let (deadline, id) = (self.deadline.clone(), self.id().clone());
        let event = deadline.wait(&id, self.next_patiently()).await.flatten();
        let bytes = match &event {
            Ok(Some(Event::Output(_, bytes))) => Some(bytes.len()),
            Ok(Some(Event::Lost(_))) => Some(0),
            _ => None,
        };
        let event = bytes.map_or(Ok(()), |bytes| deadline.received(&id, bytes)).and(event);
        match &event {
            Ok(Some(Event::End(info))) => {
                let exit = match &info.state {
                    State::Exited(exit) => Some(exit.code),
                    _ => None,
                };
                self.permit.end(Ok(Effect { exit, ..Effect::bytes(info.output_bytes) }))?;
            }
            Err(error) => self.permit.end(Err(error))?,
            _ => {}
        }
        event
    }

    async fn next_patiently(&mut self) -> Result<Option<Event>> {
        let mut patience: Option<Patience> = None;
        loop {
            let begun = Instant::now();
            let failure = match &mut self.stream {
                Some(records) => match records.next().await {
                    Ok(record) => return self.take(record).map(Some),
                    Err(failure) => {
                        if let Some(patience) = &mut patience {
                            patience.was_served_since(begun);
                        }
                        failure
                    }
                },
                None => match self.try_connect().await {
                    Ok(()) => continue,
                    Err(failure) => restarted(failure, true, "a command's output"),
                },
            };
            self.stream = None;
            patience.get_or_insert_with(|| self.session.patience("a command's output")).after(failure).await?;
        }
    }

    fn take(&mut self, record: Record) -> Result<Event> {
        self.offset = self.offset.saturating_add(record.span());
        Ok(match record {
            Record::Output(stream, data) => Event::Output(stream, data),
            Record::Lost(bytes) => Event::Lost(bytes),
            Record::End(info) => {
                self.ended = Some(info.clone());
                self.stream = None;
                if let State::Failed(error) = info.state {
                    return Err(error.into());
                }
                Event::End(info)
            }
        })
    }

    /// Waits for the end and ignores the output.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn wait(&mut self) -> Result<Info> {
        loop {
            if let Some(info) = &self.ended {
                return Ok((**info).clone());
            }
            self.next().await?;
        }
    }

    /// Sends input and signals, even while another task waits for the next event.
    pub fn control(&self) -> Control {
        Control { session: self.session.clone(), id: self.id().clone(), written: 0, part: false }
    }
}

/// A command's input and its signals.
///
/// Use one writer at a time: it counts what it has written, so that nothing is written twice.
#[derive(Debug)]
pub struct Control {
    session: Session,
    id: ExecId,
    written: u64,
    /// Whether what it sends is part of an operation that has a permit.
    part: bool,
}

impl Control {
    /// Writes to the command's standard input, which must have been kept open. Returns false when the command no longer reads.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<bool> {
        let mut data = data.into();
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(INPUT_PIECE));
            if !self.input(piece, false).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the command's standard input.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn close_input(&mut self) -> Result<()> {
        self.input(Bytes::new(), true).await.map(drop)
    }

    async fn input(&mut self, piece: Bytes, close: bool) -> Result<bool> {
        let length = piece.len() as u64;
        let request = Input { id: self.id.clone(), offset: self.written, close };
        let permit = match self.part {
            true => Permit::part(request),
            false => self.session.permit(request, Content::of(&piece))?,
        };
        let (taken, _) = self.session.perform(permit, piece, Some(0)).await?;
        self.written += length;
        Ok(!taken.closed)
    }

    /// Sends a signal to everything that the command started. Returns how many processes got it.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn signal(&self, signal: i32) -> Result<u32> {
        Ok(self.session.ask(Signal { id: self.id.clone(), signal, target: Target::All }).await?.processes)
    }

    /// Kills everything that the command started.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn kill(&self) -> Result<u32> {
        self.signal(SIGKILL).await
    }
}

impl Records {
    async fn next(&mut self) -> Result<Record, Failure> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(record);
            }
            match self.answer.payload.next().await {
                Ok(Some(piece)) => self.reader.push(&piece),
                Ok(None) => return Err(Failure::Broken("the output ended before the command did".to_owned())),
                Err(error) => return Err(Failure::Broken(error.message)),
            }
            while let Some(record) = self.reader.next_record().map_err(|error| {
                Failure::Final(Error::BadAnswer { what: "a command's output", reason: error.message })
            })? {
                self.ready.push_back(record);
            }
        }
    }
}
