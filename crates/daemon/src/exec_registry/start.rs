//! Starting a command: its directory, its files and its shim.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use podbay_jail::process_tree;
use podbay_proto::exec::{Command, ExecId, Program};
use podbay_proto::layout::EXEC_DIR;
use podbay_proto::{RawPath, Result};
use rustix::process::Signal;

use super::watch::Line;
use super::{ExecRegistry, Found, Watched, exec_io};
use crate::exec_store::record::{self, Begun, ExecRecord, RECORD};
use crate::exec_store::{directory, log, retention};
use crate::shim_protocol::{Request, ShimReport, StartCommand};
use crate::stderr_log::log_error;
use crate::sys;
use crate::zygote::Zygote;

/// The longest argument that the kernel takes, including its final NUL.
const MAX_ARGUMENT: usize = 128 << 10;

/// How long the zygote may take to fork a shim. A healthy one takes a fraction of a millisecond; a command may have
/// stopped it.
const HEALTHY: Duration = Duration::from_secs(1);

/// How many times to try to get a shim.
const ATTEMPTS: u32 = 4;

/// The descriptors that a shim is given besides its line to podbayd.
struct ShimFiles {
    listener: UnixListener,
    output: File,
    record: File,
}

impl ExecRegistry {
    /// Starts a command, or finds the one that was started with this id before. True if it was started.
    ///
    /// # Errors
    /// When its directory can't be made.
    pub async fn start(self: &Arc<Self>, id: &ExecId, command: Command) -> Result<(Found, bool)> {
        let Some(dir) = self.directory.make(id).map_err(|error| exec_io(id, "can't create its directory", &error))?
        else {
            return Ok((self.find(id).await?, false));
        };
        // No await between creating the directory and the entry in the registry, so that no caller sees one without the other.
        let begun = Begun::now(&command);
        let (files, start) = self
            .equip(&dir, id, &begun, command)
            .map_err(|error| exec_io(id, "can't prepare its directory", &error))?;
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
        let outcome_at = self.reserve.with_room(self.directory.state(), || ExecRecord::begin(&record, begun))?;
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
            // A command line that is in the script isn't sent as well.
            command: Command {
                cwd: Some(cwd),
                program: if script.is_some() { Program::Shell(RawPath::default()) } else { command.program },
                ..command
            },
            log: self.directory.log_path(id),
            outcome_at,
            started_ms: begun.started_ms,
            podbayd_filters: self.filters,
            script,
        };
        Ok((ShimFiles { listener, output, record }, start))
    }

    /// A command's working directory: relative to the sandbox's, as paths in file operations are.
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
                let outcome =
                    record::not_started(format_args!("podbayd couldn't start a process for the command: {error}"));
                if let Err(error) = ExecRecord::end(&files.record, outcome_at, &outcome) {
                    log_error(format_args!("command {}: can't write its outcome: {error}", watched.id));
                }
                watched.set_outcome(outcome, Vec::new());
                self.forget_shim(&watched);
            }
        }
    }

    /// Has a shim forked, and waits for its first report. A shim reports before it reads what to run, and exits if it can't:
    /// so one that hasn't reported has run nothing, never will once its line is closed, and another can be tried.
    async fn shim(&self, files: &ShimFiles, start: &Request) -> io::Result<Line> {
        let mut last = io::Error::other("the zygote doesn't respond");
        for attempt in 0..ATTEMPTS {
            let zygote = self.zygote.lock().await.clone();
            let (ours, theirs) = UnixStream::pair()?;
            let mut line = Line::new(ours)?;
            let ShimFiles { listener, output, record } = files;
            let fork = zygote.fork_shim([listener.as_fd(), theirs.as_fd(), output.as_fd(), record.as_fd()]);
            match tokio::time::timeout(HEALTHY, fork).await {
                Ok(Ok(())) => {}
                // A command has killed it, or stopped it long ago.
                _ => {
                    self.replace(&zygote).await?;
                    continue;
                }
            }
            drop(theirs);
            // If it is gone already, that is noticed below.
            let _ = line.send(start).await;
            let report = match tokio::time::timeout(HEALTHY, line.next()).await {
                Ok(report) => report,
                Err(_) => {
                    process_tree::send(zygote.pid(), Signal::CONT);
                    match tokio::time::timeout(HEALTHY, line.next()).await {
                        Ok(report) => report,
                        Err(_) => {
                            self.replace(&zygote).await?;
                            // Nothing can be sent on a closed line any more, but something may have been.
                            line.close();
                            line.next().await
                        }
                    }
                }
            };
            match report {
                Ok(Some(ShimReport::Begun)) => return Ok(line),
                Ok(None) if attempt + 1 < ATTEMPTS => {
                    last = io::Error::other("the zygote couldn't fork a shim");
                    if !zygote.is_alive() {
                        self.replace(&zygote).await?;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(None) => {}
                Ok(Some(other)) => return Err(io::Error::other(format!("a shim's first report was {other:?}"))),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Starts another zygote in place of one that is dead or doesn't respond.
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

    /// Watches a command that an earlier podbayd started, if its shim lives.
    pub(super) async fn adopt(self: &Arc<Self>, id: &ExecId) {
        let connected = tokio::time::timeout(HEALTHY, tokio::net::UnixStream::connect(socket(id))).await;
        let Some(Ok(socket)) = connected.ok().map(|socket| socket?.into_std()) else { return };
        // The shim listens on it, and may be stopped: then it says nothing, and its deadline is podbayd's to enforce.
        let shim = sys::peer(&socket).ok().flatten().map(|(pid, _)| pid.as_raw_nonzero().get());
        let Ok(mut line) = Line::new(socket) else { return };
        let (execs, of) = (self.clone(), id.clone());
        let record = tokio::task::spawn_blocking(move || execs.directory.record(&of)).await;
        let Some(Ok(record)) = record.ok() else { return };
        if line.send(&Request::Watch).await.is_ok() {
            let watched = Watched::new(id.clone(), record.begun);
            if let Some(shim) = shim.filter(|shim| process_tree::is_other(*shim)) {
                watched.set_shim(shim);
            }
            self.watched().insert(id.clone(), watched.clone());
            tokio::spawn(self.clone().watch(watched, line));
        }
    }
}

/// Relative to the state directory, so that it fits into a socket address.
pub(super) fn socket(id: &ExecId) -> PathBuf {
    Path::new(EXEC_DIR).join(id.as_str()).join(directory::SOCKET)
}
