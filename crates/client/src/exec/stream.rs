//! Following a command while it runs: its events, its input, signals to it.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use podbay_proto::exec::{Attach, Command, ExecId, Info, Input, Signal, State, Stream, Target};
use podbay_proto::record::{Record, RecordReader};

use super::{SIGKILL, rerun_only_on_same_instance, restarted};
use crate::connection::{Answer, Failure, Purpose};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::guard::{Content, Effect, Permit};
use crate::session::{Patience, Session};

/// How much input is sent in one request.
const INPUT_PIECE: usize = 1 << 20;

/// An event of a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It printed these bytes.
    Output(Stream, Bytes),
    /// This many bytes of output are missing here, because the log no longer has them.
    Lost(u64),
    /// It has ended. The last event.
    End(Box<Info>),
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
        self.permit.end_unheard(Effect::bytes(self.offset));
    }
}

#[derive(Debug)]
struct Records {
    answer: Answer<podbay_proto::exec::Attached>,
    reader: RecordReader,
    ready: VecDeque<Record>,
}

impl Exec {
    pub(super) async fn open(session: Session, id: ExecId, command: Option<Command>, offset: u64) -> Result<Self> {
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
        rerun_only_on_same_instance(&mut self.instance, &connection.welcome.instance, &mut request.command);
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
    pub(super) session: Session,
    pub(super) id: ExecId,
    pub(super) written: u64,
    /// Whether what it sends is part of an operation that has a permit.
    pub(super) part: bool,
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
