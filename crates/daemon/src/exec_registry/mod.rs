//! The registry of commands: each has a directory and, while any of its processes lives, a shim that podbayd watches.

mod shim_client;
mod start;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podbay_proto::exec::{ExecId, Info, State};
use podbay_proto::{Error, ErrorCode, RawPath, Result};

pub use self::shim_client::ShimClient;
pub use self::watch::Watched;
use crate::command_restrictions::EnforcedRestrictions;
use crate::exec_store::directory::Directory;
use crate::exec_store::disk_reserve::DiskReserve;
use crate::exec_store::log::Log;
use crate::exec_store::record::Begun;
use crate::peer;
use crate::zygote::Zygote;

/// All commands of a sandbox.
pub struct ExecRegistry {
    directory: Directory,
    reserve: DiskReserve,
    workdir: RawPath,
    zygote: tokio::sync::Mutex<Arc<Zygote>>,
    /// How many seccomp filters podbayd runs under.
    filters: Option<u32>,
    /// Resolves paths that stand for others.
    files: Arc<podbay_fsops::Files>,
    /// Commands that may have live processes.
    watched: Mutex<BTreeMap<ExecId, Arc<Watched>>>,
}

/// A command that was found.
pub enum Found {
    /// It may have live processes.
    Live(Arc<Watched>),
    /// It has ended; this is what is known of it.
    Ended(Info),
}

impl ExecRegistry {
    /// The commands in a state directory, which must be the current directory: that keeps socket paths short.
    ///
    /// # Errors
    /// When their directory can't be made.
    pub fn new(state: &Path, workdir: RawPath, zygote: Zygote, files: Arc<podbay_fsops::Files>) -> io::Result<Self> {
        let directory = Directory::open(state)?;
        let reserve = DiskReserve::default();
        reserve.fill(directory.state());
        let zygote = tokio::sync::Mutex::new(Arc::new(zygote));
        let filters = peer::own_filters();
        Ok(Self { directory, reserve, workdir, zygote, filters, files, watched: Mutex::default() })
    }

    /// Takes over the commands that an earlier podbayd left running.
    pub async fn adopt_all(self: &Arc<Self>) {
        // No client is served yet, so nobody waits for this.
        for id in self.directory.ids().unwrap_or_default() {
            self.adopt(&id).await;
        }
    }

    /// Finds a command that was started before.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn find(self: &Arc<Self>, id: &ExecId) -> Result<Found> {
        if let Some(watched) = self.live(id) {
            return Ok(Found::Live(watched));
        }
        let (execs, of) = (self.clone(), id.clone());
        let ended = tokio::task::spawn_blocking(move || execs.ended(&of)).await;
        ended.unwrap_or_else(|_| Err(not_found(id))).map(Found::Ended)
    }

    /// What is known of a command without live processes. Reads files.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub fn ended(&self, id: &ExecId) -> Result<Info> {
        // A directory without a valid record is a command that was lost before its record was written.
        self.directory.of(id).map_err(|_| not_found(id))?;
        let record = self.directory.record(id).ok();
        let begun = record.map_or_else(
            || Begun { command: String::new(), started_ms: 0, timeout_ms: 0, grace_ms: 0 },
            |record| record.begun,
        );
        Ok(self.assemble(id, &begun, self.outcome_on_file(id), Vec::new()))
    }

    /// A command's log.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub fn log(&self, id: &ExecId) -> Result<Log> {
        self.directory.log(id).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(id),
            _ => exec_io(id, "can't read its log", &error),
        })
    }

    /// What confines commands that are started now.
    ///
    /// # Errors
    /// When the zygote is gone; the next command starts another.
    pub async fn enforced_restrictions(&self) -> io::Result<EnforcedRestrictions> {
        let zygote = self.zygote.lock().await.clone();
        zygote.enforced_restrictions().await.cloned()
    }

    /// How many commands have live processes.
    pub fn running(&self) -> u32 {
        self.watched().len() as u32
    }

    /// All commands, oldest first; with `running`, only those with live processes.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub async fn list(self: &Arc<Self>, running: bool) -> Result<Vec<Info>> {
        let live: Vec<Arc<Watched>> = self.watched().values().cloned().collect();
        let mut list = Vec::new();
        if !running {
            let execs = self.clone();
            let known: BTreeSet<ExecId> = live.iter().map(|watched| watched.id.clone()).collect();
            let ended = tokio::task::spawn_blocking(move || -> io::Result<Vec<Info>> {
                let ids = execs.directory.ids()?.into_iter().filter(|id| !known.contains(id));
                // A command may be removed meanwhile.
                Ok(ids.filter_map(|id| execs.ended(&id).ok()).collect())
            });
            let failed =
                |error: &dyn std::fmt::Display| Error::new(ErrorCode::Io, format!("can't list commands: {error}"));
            list = ended.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        }
        // All at once: a shim that doesn't answer delays only its own answer.
        let asked: Vec<_> = live
            .into_iter()
            .map(|watched| {
                let execs = self.clone();
                tokio::spawn(async move { execs.status(&watched).await })
            })
            .collect();
        for status in asked {
            // The shim of a command that has ended goes a moment later than the last of its processes.
            let is_live = |info: &Info| matches!(info.state, State::Running) || !info.processes.is_empty();
            list.extend(status.await.ok().filter(|info| !running || is_live(info)));
        }
        list.sort_by(|a, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
        Ok(list)
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<ExecId, Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, id: &ExecId) -> Option<Arc<Watched>> {
        self.watched().get(id).cloned()
    }

    fn running_ids(&self) -> BTreeSet<ExecId> {
        self.watched().keys().cloned().collect()
    }

    fn forget_shim(&self, watched: &Arc<Watched>) {
        let mut all = self.watched();
        if all.get(&watched.id).is_some_and(|known| Arc::ptr_eq(known, watched)) {
            all.remove(&watched.id);
        }
    }

    /// The shims of all commands but one.
    fn shims(&self, except: &ExecId) -> Vec<i32> {
        self.watched().values().filter(|watched| watched.id != *except).filter_map(|watched| watched.shim()).collect()
    }
}

fn not_found(id: &ExecId) -> Error {
    Error::new(
        ErrorCode::ExecNotFound,
        format!("there is no command {id} in this sandbox; list the commands to see which exist"),
    )
}

fn exec_io(id: &ExecId, what: &str, error: &io::Error) -> Error {
    let code = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => ErrorCode::NoSpace,
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => ErrorCode::PermissionDenied,
        Some(rustix::io::Errno::ROFS) => ErrorCode::ReadOnly,
        _ => ErrorCode::Io,
    };
    Error::new(code, format!("command {id}: {what}: {error}"))
}
