//! Commands.

mod stream;

use bytes::Bytes;
use podbay_proto::ErrorCode;
use podbay_proto::exec::{
    Command, Cut, ExecId, Exit, Info, List, Run, RunOutput, Signal, Start, State, Status, Stream, Target,
};

use crate::Sandbox;
use crate::connection::{Failure, Purpose};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::guard::{Content, Effect, Permit};
use crate::session::{Session, request_id};

pub use stream::{Control, Event, Exec};

/// The signal that nothing can ignore.
const SIGKILL: i32 = 9;

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
    /// When it can't be started, or the sandbox can't be reached. A command that fails isn't an error.
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
    /// As for [`run`](Self::run). A command that doesn't read all of its input isn't an error.
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
            // A command whose input can't be sent might wait for it forever.
            let ((), output) = tokio::try_join!(feed, self.collect(&mut guard, permit, deadline))?;
            Ok(output)
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
                    rerun_only_on_same_instance(
                        &mut asked,
                        &connection.welcome.instance,
                        &mut permit.request_mut().command,
                    );
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
fn rerun_only_on_same_instance(asked: &mut Option<String>, instance: &str, command: &mut Option<Command>) {
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
