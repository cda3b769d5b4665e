//! How a command gets its directory, its files and its shim.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use podbay_proto::exec::{Command, ExecId, Program};
use podbay_proto::layout::EXEC_DIR;
use podbay_proto::{RawPath, Result};
use rustix::process::Signal;

use super::watch::Line;
use super::{ExecRegistry, Found, Watched, exec_io};
use crate::exec_store::record::{self, Begun, RECORD, Record};
use crate::exec_store::{directory, log, retention};
use crate::process_tree;
use crate::shim_protocol::{Report, Request, StartCommand};
use crate::stderr_log::log_error;
use crate::zygote::Zygote;

/// The kernel takes no argument longer than this, its final NUL included.
const MAX_ARGUMENT: usize = 128 << 10;

/// How long the zygote may take for a shim before something is done about it. A healthy one takes a fraction of a
/// millisecond; a command may have stopped it.
const HEALTHY: Duration = Duration::from_secs(1);

/// How often a shim is tried to be had.
const ATTEMPTS: u32 = 4;

/// What a shim is given besides its line.
struct ShimFiles {
    listener: UnixListener,
    output: File,
    record: File,
}

impl ExecRegistry {
    /// Starts a command, unless its id was started before; then finds that one. Tells which.
    ///
    /// # Errors
    /// When its directory can't be made.
    pub async fn start(self: &Arc<Self>, id: &ExecId, command: Command) -> Result<(Found, bool)> {
        let Some(dir) = self.directory.make(id).map_err(|error| exec_io(id, "its directory can't be made", &error))?
        else {
            return Ok((self.find(id).await?, false));
        };
        // No await from the directory to the entry among the watched: whoever finds the one finds the other.
        let begun = Begun::now(&command);
        let (files, start) = self
            .equip(&dir, id, &begun, command)
            .map_err(|error| exec_io(id, "its directory can't be prepared", &error))?;
        let watched = Watched::new(id.clone(), begun);
        self.watched().insert(id.clone(), watched.clone());
        tokio::spawn(self.clone().launch(watched.clone(), files, start));
        if let Some(most) = retention::is_due(&self.directory) {
            let execs = self.clone();
            tokio::task::spawn_blocking(move || retention::forget(&execs.directory, &execs.running_ids(), most));
        }
        Ok((Found::Live(watched), true))
    }

    fn equip(
        &self,
        dir: impl AsFd,
        id: &ExecId,
        begun: &Begun,
        command: Command,
    ) -> io::Result<(ShimFiles, StartCommand)> {
        let record = directory::create(&dir, RECORD)?;
        let outcome_at = self.reserve.with_room(self.directory.state(), || Record::begin(&record, begun))?;
        self.reserve.fill(self.directory.state());
        let output = directory::create(&dir, log::OUTPUT)?;
        let script = match &command.program {
            Program::Shell(line) if line.as_bytes().len() >= MAX_ARGUMENT && !line.as_bytes().contains(&0) => {
                io::Write::write_all(&mut directory::create(&dir, directory::SCRIPT)?, line.as_bytes())?;
                Some(RawPath::from(self.directory.path_of(id, directory::SCRIPT).as_os_str().as_bytes()))
            }
            _ => None,
        };
        let listener = UnixListener::bind(socket(id))?;
        let cwd = self.files.rerooted(self.start_of(command.cwd.as_ref()));
        let start = StartCommand {
            id: id.clone(),
            // What is in the script needn't be sent.
            command: Command {
                cwd: Some(cwd),
                program: if script.is_some() { Program::Shell(RawPath::default()) } else { command.program },
                ..command
            },
            log: self.directory.log_path(id),
            outcome_at,
            started_ms: begun.started_ms,
            script,
        };
        Ok((ShimFiles { listener, output, record }, start))
    }

    /// Where a command starts: what it names is relative to the working directory, as paths of file operations are.
    fn start_of(&self, cwd: Option<&RawPath>) -> RawPath {
        let Some(cwd) = cwd.filter(|cwd| !cwd.is_empty()) else { return self.workdir.clone() };
        if cwd.as_bytes().starts_with(b"/") {
            cwd.clone()
        } else {
            [self.workdir.as_bytes(), cwd.as_bytes()].join(&b'/').into()
        }
    }

    async fn launch(self: Arc<Self>, watched: Arc<Watched>, files: ShimFiles, start: StartCommand) {
        let outcome_at = start.outcome_at;
        match self.shim(&files, &Request::Start(Box::new(start))).await {
            Ok(line) => {
                drop(files);
                self.watch(watched, line).await;
            }
            Err(error) => {
                let outcome = record::not_started(format_args!("no process could be had for the command: {error}"));
                if let Err(error) = Record::end(&files.record, outcome_at, &outcome) {
                    log_error(format_args!("command {}: its outcome can't be written: {error}", watched.id));
                }
                watched.set_outcome(outcome, Vec::new());
                self.forget_shim(&watched);
            }
        }
    }

    /// Has a shim forked, and waits for its first word. It says that before it looks at what to run, and goes if it can't:
    /// so a shim that hasn't spoken has run nothing and never will once its line is closed, and another may be tried.
    async fn shim(&self, files: &ShimFiles, start: &Request) -> io::Result<Line> {
        let mut last = io::Error::other("the zygote doesn't answer");
        for attempt in 0..ATTEMPTS {
            let zygote = self.zygote.lock().await.clone();
            let (ours, theirs) = UnixStream::pair()?;
            let mut line = Line::new(ours)?;
            let ShimFiles { listener, output, record } = files;
            let fork = zygote.fork_shim([listener.as_fd(), theirs.as_fd(), output.as_fd(), record.as_fd()]);
            match tokio::time::timeout(HEALTHY, fork).await {
                Ok(Ok(())) => {}
                // Something in the sandbox has killed it, or stopped it long ago.
                _ => {
                    self.replace(&zygote).await?;
                    continue;
                }
            }
            drop(theirs);
            // One that is gone already is noticed below.
            let _ = line.send(start).await;
            let spoken = match tokio::time::timeout(HEALTHY, line.next()).await {
                Ok(spoken) => spoken,
                Err(_) => {
                    process_tree::send(zygote.pid(), Signal::CONT);
                    match tokio::time::timeout(HEALTHY, line.next()).await {
                        Ok(spoken) => spoken,
                        Err(_) => {
                            self.replace(&zygote).await?;
                            // After the close nothing can be said any more, but something may have been.
                            line.close();
                            line.next().await
                        }
                    }
                }
            };
            match spoken {
                Ok(Some(Report::Begun)) => return Ok(line),
                Ok(None) if attempt + 1 < ATTEMPTS => {
                    last = io::Error::other("the zygote could fork no shim");
                    if !zygote.is_alive() {
                        self.replace(&zygote).await?;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(None) => {}
                Ok(Some(other)) => return Err(io::Error::other(format!("a shim's first word was {other:?}"))),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Another zygote in place of one that is dead or doesn't answer.
    async fn replace(&self, zygote: &Arc<Zygote>) -> io::Result<()> {
        let mut current = self.zygote.lock().await;
        if Arc::ptr_eq(&current, zygote) {
            process_tree::send(zygote.pid(), Signal::KILL);
            *current = Arc::new(zygote.restart()?);
        }
        Ok(())
    }

    pub(super) async fn zygote_pid(&self) -> Option<i32> {
        Some(self.zygote.lock().await.pid())
    }

    /// Watches a command that a podbayd before this one started, if its shim lives.
    pub(super) async fn adopt(self: &Arc<Self>, id: &ExecId) {
        let connected = tokio::time::timeout(HEALTHY, tokio::net::UnixStream::connect(socket(id))).await;
        let Some(Ok(mut line)) = connected.ok().map(|socket| Line::new(socket?.into_std()?)) else { return };
        let (execs, of) = (self.clone(), id.clone());
        let record = tokio::task::spawn_blocking(move || execs.directory.record(&of)).await;
        let Some(Ok(record)) = record.ok() else { return };
        if line.send(&Request::Watch).await.is_ok() {
            let watched = Watched::new(id.clone(), record.begun);
            self.watched().insert(id.clone(), watched.clone());
            tokio::spawn(self.clone().watch(watched, line));
        }
    }
}

/// Relative to the state directory, so that it fits into a socket address however deep that lies.
pub(super) fn socket(id: &ExecId) -> PathBuf {
    Path::new(EXEC_DIR).join(id.as_str()).join(directory::SOCKET)
}
