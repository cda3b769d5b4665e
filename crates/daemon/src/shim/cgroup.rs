//! A command's cgroup, for limits that need one.

use std::fs::File;
use std::os::fd::OwnedFd;

use podbay_jail::Cgroup;
use podbay_proto::exec::{CommandLimits, ExecId};
use podbay_proto::{Error, ErrorCode, Result};

use crate::stderr_log::log_error;

/// The cgroup of one command.
pub struct CommandCgroup {
    cgroup: Cgroup,
}

impl CommandCgroup {
    /// Makes a cgroup if the limits need one.
    ///
    /// # Errors
    /// `unsupported` if none can be made: a limit that isn't enforced would be worse than none.
    pub fn make(id: &ExecId, limits: &CommandLimits) -> Result<Option<Self>> {
        if limits.memory.is_none() && limits.processes.is_none() {
            return Ok(None);
        }
        // Removes what killed shims left. If it fails, the next one tries again.
        let _ = podbay_jail::sweep();
        let wanted = podbay_jail::JailLimits {
            memory: limits.memory,
            processes: limits.processes,
            ..podbay_jail::JailLimits::default()
        };
        let (cgroup, in_force) = Cgroup::make(id.as_str(), &wanted);
        let made = cgroup.map(|cgroup| Self { cgroup });
        match in_force.into_iter().find(|limit| limit.by.is_none()) {
            None => Ok(made),
            Some(missing) => {
                made.iter().for_each(Self::remove);
                let why = missing.note.unwrap_or_default();
                let message = format!(
                    "limiting the {} of one command needs a cgroup, and this sandbox has none: {why}",
                    missing.limit
                );
                Err(Error::new(ErrorCode::Unsupported, message))
            }
        }
    }

    /// The `cgroup.procs` files. A process that writes `0` to them between fork and exec is in the cgroup.
    ///
    /// # Errors
    /// When they can't be opened.
    pub fn procs_files(&self) -> Result<Vec<OwnedFd>> {
        self.cgroup
            .directories()
            .iter()
            .map(|dir| File::options().write(true).open(dir.join("cgroup.procs")).map(OwnedFd::from))
            .collect::<std::io::Result<_>>()
            .map_err(|error| Error::new(ErrorCode::Unsupported, format!("can't enter the command's cgroup: {error}")))
    }

    /// Whether a process in it was killed for lack of memory.
    pub fn out_of_memory(&self) -> bool {
        self.cgroup.out_of_memory()
    }

    /// Removes it, once no process of the command is left.
    pub fn remove(&self) {
        if let Err(error) = self.cgroup.remove() {
            log_error(error);
        }
    }
}

/// Enters the cgroup. Between fork and exec: system calls only.
pub fn enter(procs_files: &[OwnedFd]) -> std::io::Result<()> {
    for file in procs_files {
        rustix::io::write(file, b"0")?;
    }
    Ok(())
}
