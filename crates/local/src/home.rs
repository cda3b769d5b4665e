//! The directory in which local sandboxes live.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use podbay_supervision::{NEW, SANDBOXES};

use crate::error::{Error, Result};
use crate::podbayd_program::{self, PodbaydProgram};
use crate::trusted_dir;

/// In the home: the directory of podbayd's program.
const PROGRAMS: &str = "bin";

/// The directory in which local sandboxes live: `$PODBAY_HOME`, else `podbay` in the user's runtime directory, else
/// `/tmp/podbay-UID` (for root `/run/podbay-local`). Neither it nor the sandboxes survive a reboot.
#[derive(Debug, Clone)]
pub struct Home {
    /// Its real path: without links, and below directories that nobody else can replace.
    path: PathBuf,
    programs: Arc<OwnedFd>,
}

impl Home {
    /// The current user's home for sandboxes.
    ///
    /// # Errors
    /// When it can't be created, or another user could replace what is in it.
    pub fn of_user() -> Result<Self> {
        let uid = rustix::process::geteuid();
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(home) = set("PODBAY_HOME") {
            return Self::at(home);
        }
        // After `su` and `sudo -E` this is another user's directory. That is normal, so it is skipped without an error.
        if let Some(runtime) = set("XDG_RUNTIME_DIR").filter(|runtime| runtime.is_dir()) {
            match trusted_dir::open(&runtime).and_then(|_| Self::at(runtime.join("podbay"))) {
                Err(error @ Error::Untrusted { .. }) => tracing::debug!(%error, "ignoring XDG_RUNTIME_DIR"),
                home => return home,
            }
        }
        match uid.is_root() {
            true => Self::at("/run/podbay-local"),
            false => Self::at(format!("/tmp/podbay-{}", uid.as_raw())),
        }
    }

    /// A home at a path.
    ///
    /// # Errors
    /// When it can't be created, or another user could replace what is in it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        // Supervisors outlive the working directory of the process that started them.
        let path = std::path::absolute(&path).map_err(Error::home(&path, "can't be made absolute"))?;
        let (dir, path) = trusted_dir::open(&path)?;
        for name in [SANDBOXES, NEW] {
            trusted_dir::open_in(dir.as_fd(), &path, name)?;
        }
        let programs = trusted_dir::open_in(dir.as_fd(), &path, PROGRAMS)?;
        Ok(Self { path, programs: Arc::new(programs) })
    }

    /// The directory of all sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join(SANDBOXES)
    }

    /// The directory in which sandboxes' directories are assembled.
    pub(crate) fn unfinished(&self) -> PathBuf {
        self.path.join(NEW)
    }

    /// podbayd's program, written to the home if it isn't there.
    pub(crate) fn podbayd(&self) -> Result<PodbaydProgram> {
        podbayd_program::open_or_write(self.programs.as_fd(), &self.path.join(PROGRAMS))
    }
}
