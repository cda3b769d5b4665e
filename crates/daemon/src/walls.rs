//! What confines commands and not podbayd, and what the kernel enforces of it.

use std::io;
use std::path::Path;

use podbay_jail::{CommandConfinement, CommandFilter, Domain, Entered, PreparedConfinement};
use podbay_proto::layout::ARTEFACT_DIR;
use serde::{Deserialize, Serialize};

/// Entries of podbayd's directory that commands may change: what agent frameworks write lies there where a sandbox has no
/// better place for it. Shims need none: they write to files that podbayd opened for them.
const OPEN: [&str; 1] = [ARTEFACT_DIR];

/// What confines commands and not podbayd. Plain data: a zygote that is started anew gets it as text.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Walls {
    /// Places and system calls of each command, where the sandbox as a whole has no namespaces.
    pub cell: Option<CommandConfinement>,
    /// What all commands share.
    pub domain: Domain,
    /// System calls that commands don't have although podbayd has them.
    pub filter: Option<CommandFilter>,
}

/// Which of them stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The Landlock domain.
    pub domain: Entered,
    /// The commands' system-call filter, or why there is none.
    pub filter: Result<(), String>,
}

impl Walls {
    /// Completes them for a podbayd whose state directory this is, and makes there what they are about.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn around(&mut self, state: &Path) -> io::Result<()> {
        // A cell has the places that its commands may write, and this isn't one.
        if self.cell.is_some() {
            return Ok(());
        }
        // The domain is about what is there when it is entered.
        for name in OPEN {
            std::fs::create_dir_all(state.join(name))?;
        }
        self.domain = Domain { closed: Some(state.to_owned()), open: OPEN.map(Into::into).to_vec() };
        Ok(())
    }

    /// Prepares what each command enters by itself.
    ///
    /// # Errors
    /// When the kernel can't confine commands as the cell says.
    pub fn bars(&self) -> io::Result<Option<PreparedConfinement>> {
        self.cell.as_ref().map(CommandConfinement::prepare).transpose().map_err(io::Error::other)
    }

    /// Puts this process, and all that it starts, behind them.
    ///
    /// # Errors
    /// When one doesn't stand on which the whole sandbox rests.
    pub fn enter(&self) -> io::Result<Standing> {
        let domain = self.domain.enter();
        if self.cell.is_some() {
            domain.signals.clone().map_err(io::Error::other)?;
        }
        // The kernel takes no filter either from those who may gain privileges.
        let filter = match (self.filter, rustix::thread::no_new_privs()) {
            (None, _) => Ok(()),
            // A jail of ours stands or falls with it.
            (Some(filter @ CommandFilter::Local), _) => Ok(filter.install().map_err(io::Error::other)?),
            (Some(_), Ok(false) | Err(_)) => Err(podbay_jail::ESCALATION.into()),
            (Some(filter), Ok(true)) => match filter.install() {
                Ok(()) if filter == CommandFilter::Mark => Err("switched off by cluster.command_filter".into()),
                installed => installed.map_err(|failure| failure.to_string()),
            },
        };
        Ok(Standing { domain, filter })
    }
}
