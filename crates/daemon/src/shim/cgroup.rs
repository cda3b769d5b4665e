//! A command's cgroup, for limits that need one.

use podbay_jail::{Cgroup, CgroupProcs};
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

    /// What a process needs to enter the cgroup between fork and exec.
    ///
    /// # Errors
    /// When the cgroup's files can't be opened.
    pub fn procs(&self) -> Result<CgroupProcs> {
        let refused =
            |failure| Error::new(ErrorCode::Unsupported, format!("can't enter the command's cgroup: {failure}"));
        self.cgroup.procs().map_err(refused)
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
