//! A running command that several callers may use at once, as objects of garbage-collected languages do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError};

use podbay_client::{Command, Control, Event, Exec, ExecId, Info, Result, Sandbox, Target};
use tokio::sync::Mutex;

/// A running command, shared by the object that stands for it and the calls that wait for it.
#[derive(Debug)]
pub struct SharedExec {
    exec: Mutex<Exec>,
    control: Mutex<Control>,
    id: ExecId,
    offset: AtomicU64,
    ended: Plain<Option<Info>>,
    /// Keeps a leashed sandbox alive while somebody follows one of its commands.
    sandbox: Sandbox,
}

impl SharedExec {
    /// Starts a command.
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn spawn(sandbox: Sandbox, command: Command) -> Result<Arc<Self>> {
        let exec = sandbox.spawn(command).await?;
        Ok(Self::new(sandbox, exec, 0))
    }

    /// Follows a command that was started earlier, from an offset of its output on.
    ///
    /// # Errors
    /// When there is no such command.
    pub async fn attach(sandbox: Sandbox, id: ExecId, offset: u64) -> Result<Arc<Self>> {
        let exec = sandbox.attach(&id, offset).await?;
        Ok(Self::new(sandbox, exec, offset))
    }

    fn new(sandbox: Sandbox, exec: Exec, offset: u64) -> Arc<Self> {
        let (id, control) = (exec.id().clone(), exec.control());
        let (exec, control) = (Mutex::new(exec), Mutex::new(control));
        Arc::new(Self { exec, control, id, offset: offset.into(), ended: Plain::new(None), sandbox })
    }

    /// The command's id.
    pub fn id(&self) -> &ExecId {
        &self.id
    }

    /// How many bytes of its output have been read.
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// How it ended, once that has been read.
    pub fn ended(&self) -> Option<Info> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next event; nothing after the end.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn next(&self) -> Result<Option<Event>> {
        let event = self.exec.lock().await.next().await?;
        let seen = match &event {
            Some(Event::Output(_, data)) => data.len() as u64,
            Some(Event::Lost(bytes)) => *bytes,
            Some(Event::End(info)) => {
                *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((**info).clone());
                0
            }
            None => 0,
        };
        self.offset.fetch_add(seen, Ordering::Relaxed);
        Ok(event)
    }

    /// Waits for the command to end, and discards its output.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn wait(&self) -> Result<Info> {
        loop {
            if let Some(info) = self.ended() {
                return Ok(info);
            }
            if self.next().await?.is_none() && self.ended().is_none() {
                // The stream failed earlier, so ask the sandbox how the command ended.
                return self.sandbox.status(&self.id).await;
            }
        }
    }

    /// Writes to the command's standard input. Returns false if the command closed it.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn write(&self, data: impl Into<bytes::Bytes>) -> Result<bool> {
        self.control.lock().await.write(data).await
    }

    /// Closes the command's standard input.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn close_input(&self) -> Result<()> {
        self.control.lock().await.close_input().await
    }

    /// Sends a signal to all processes of the command. Returns how many got it.
    ///
    /// # Errors
    /// When there is no such signal, or the sandbox can't be reached.
    pub async fn signal(&self, signal: i32) -> Result<u32> {
        self.sandbox.signal_to(&self.id, signal, Target::All).await
    }

    /// Kills all processes of the command. Returns how many there were.
    ///
    /// # Errors
    /// When the sandbox can't be reached.
    pub async fn kill(&self) -> Result<u32> {
        self.sandbox.kill(&self.id).await
    }
}
