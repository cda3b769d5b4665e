//! What confines commands but not podbayd, and which of it the kernel enforces.

use std::io;
use std::path::Path;

use podbay_jail::{CommandConfinement, CommandFilter, Domain, Entered, PreparedConfinement};
use podbay_proto::layout::ARTEFACT_DIR;
use serde::{Deserialize, Serialize};

/// Entries of podbayd's directory that commands may change: files of agent frameworks, where a sandbox has no better place
/// for them. Shims need none: they write to files that podbayd opened for them.
const OPEN: [&str; 1] = [ARTEFACT_DIR];

/// What confines commands but not podbayd. Plain data: a restarted zygote gets it as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CommandRestrictions {
    /// Paths and system calls of each command, where the sandbox has no namespaces.
    pub confinement: Option<CommandConfinement>,
    /// The Landlock domain that all commands share.
    pub domain: Domain,
    /// The seccomp filter of commands.
    pub filter: Option<CommandFilter>,
}

/// Which restrictions are in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcedRestrictions {
    /// The Landlock domain.
    pub domain: Entered,
    /// The commands' system-call filter, or why there is none.
    pub filter: Result<(), String>,
}

impl CommandRestrictions {
    /// Closes podbayd's state directory to commands, except for the entries that they may change, which are created.
    ///
    /// # Errors
    /// When a directory can't be made.
    pub fn protect_state_dir(&mut self, state: &Path) -> io::Result<()> {
        // The confinement lists the paths that its commands may write, and podbayd's directory isn't one.
        if self.confinement.is_some() {
            return Ok(());
        }
        // Landlock grants access to what exists when the domain is entered.
        for name in OPEN {
            std::fs::create_dir_all(state.join(name))?;
        }
        self.domain = Domain { closed: Some(state.to_owned()), open: OPEN.map(Into::into).to_vec() };
        Ok(())
    }

    /// Prepares what each command enters on its own.
    ///
    /// # Errors
    /// When the kernel can't confine commands as configured.
    pub fn prepare_confinement(&self) -> io::Result<Option<PreparedConfinement>> {
        self.confinement.as_ref().map(CommandConfinement::prepare).transpose().map_err(io::Error::other)
    }

    /// Confines this process and all that it starts.
    ///
    /// # Errors
    /// When a restriction fails on which the whole sandbox depends.
    pub fn enter(&self) -> io::Result<EnforcedRestrictions> {
        let domain = self.domain.enter();
        if self.confinement.is_some() {
            domain.signals.clone().map_err(io::Error::other)?;
        }
        // The kernel accepts a filter only with no_new_privs.
        let filter = match (self.filter, rustix::thread::no_new_privs()) {
            (None, _) => Ok(()),
            // A local sandbox depends on it.
            (Some(filter @ CommandFilter::Local), _) => Ok(filter.install().map_err(io::Error::other)?),
            (Some(_), Ok(false) | Err(_)) => Err(podbay_jail::ESCALATION.into()),
            (Some(filter), Ok(true)) => match filter.install() {
                Ok(()) if filter == CommandFilter::Mark => Err("disabled by cluster.command_filter".into()),
                installed => installed.map_err(|failure| failure.to_string()),
            },
        };
        Ok(EnforcedRestrictions { domain, filter })
    }
}
