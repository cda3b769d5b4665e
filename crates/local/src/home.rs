//! Where local sandboxes have their directories.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use podbay_jail::supervision::{NEW, SANDBOXES};
use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::program;
use crate::trust;

/// Below the home: where podbayd is.
const PROGRAMS: &str = "bin";

/// The directory below which local sandboxes live: `$PODBAY_HOME`, else `podbay` in the user's runtime directory, else
/// `/tmp/podbay-UID` (for root `/run/podbay-local`). Nothing in it outlives a restart of the machine, and neither do sandboxes.
#[derive(Debug, Clone)]
pub struct Home {
    /// Its real path: through no link, and through no directory that somebody else could exchange.
    path: PathBuf,
    programs: Arc<OwnedFd>,
}

impl Home {
    /// The user's.
    ///
    /// # Errors
    /// When it can't be made, or somebody else could exchange what is in it.
    pub fn of_user() -> Result<Self> {
        let uid = rustix::process::geteuid();
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(home) = set("PODBAY_HOME") {
            return Self::at(home);
        }
        // After `su` and `sudo -E` it is another user's: nothing to complain about, and nothing to use.
        if let Some(runtime) = set("XDG_RUNTIME_DIR").filter(|runtime| runtime.is_dir()) {
            match trust::open(&runtime).and_then(|_| Self::at(runtime.join("podbay"))) {
                Err(error @ Error::Untrusted { .. }) => tracing::debug!(%error, "XDG_RUNTIME_DIR isn't used"),
                home => return home,
            }
        }
        match uid.is_root() {
            true => Self::at("/run/podbay-local"),
            false => Self::at(format!("/tmp/podbay-{}", uid.as_raw())),
        }
    }

    /// One at a path.
    ///
    /// # Errors
    /// When it can't be made, or somebody else could exchange what is in it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        // Supervisors outlive the working directory of whoever started them.
        let path = std::path::absolute(&path).map_err(Error::home(&path, "it can't be named"))?;
        let (dir, path) = trust::open(&path)?;
        for name in [SANDBOXES, NEW] {
            trust::open_in(dir.as_fd(), &path, name)?;
        }
        let programs = trust::open_in(dir.as_fd(), &path, PROGRAMS)?;
        Ok(Self { path, programs: Arc::new(programs) })
    }

    /// Where the sandboxes are.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join(SANDBOXES)
    }

    /// Where those are that are being made.
    pub(crate) fn new_ones(&self) -> PathBuf {
        self.path.join(NEW)
    }

    /// podbayd, opened to be run. It is written once for each build.
    pub(crate) fn podbayd(&self) -> Result<Program> {
        let arch = std::env::consts::ARCH;
        let bytes = podbay_embed::daemon(arch).ok_or(Error::NoDaemon(arch))?;
        let digest = podbay_embed::digest(arch).ok_or(Error::NoDaemon(arch))?;
        let name = format!("podbayd-{}", &digest[..16]);
        let path = self.path.join(PROGRAMS).join(&name);
        if let Some(file) = self.existing(&name, bytes) {
            return Ok(Program { file, path });
        }
        let temporary = format!("{name}.{:08x}", rand::random::<u32>());
        self.write_program(&temporary, bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&*self.programs, &temporary, &*self.programs, &name)?))
            .map_err(Error::home(&path, "podbayd can't be written"))?;
        let gone = || io::Error::new(io::ErrorKind::InvalidData, "it was exchanged meanwhile");
        let file = self.existing(&name, bytes).ok_or_else(gone);
        Ok(Program { file: file.map_err(Error::home(&path, "podbayd can't be used"))?, path })
    }

    fn existing(&self, name: &str, bytes: &[u8]) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.programs, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        (trust::is_own_file(&stat) && program::holds(&file, bytes)).then_some(file)
    }

    fn write_program(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Root's sandboxes have users of their own, who run it again when one of podbayd's processes was killed.
        let mode = Mode::from_raw_mode(0o755);
        let mut file = std::fs::File::from(rustix::fs::openat(&*self.programs, name, flags, mode)?);
        // The umask has no say here.
        rustix::fs::fchmod(&file, mode)?;
        file.write_all(bytes)
    }
}

/// podbayd's file, held open: what is run is what was looked at.
pub(crate) struct Program {
    file: OwnedFd,
    path: PathBuf,
}

impl Program {
    /// A path by which it can be run while this value lives.
    pub(crate) fn to_run(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Where it lies, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
