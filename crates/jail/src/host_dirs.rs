//! The directories of a sandbox that has no mount namespace: where its state, its temporary files and, unless it was given
//! one, its workspace lie on the host.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, openat};
use rustix::path::Arg;

use crate::error::{FailedStep, JailError, Step};
use crate::ids::Who;
use crate::jail::Jail;

/// The directory below a sandbox's own that holds them.
const AREA: &str = "area";

/// In podbayd's state: the commands, with their logs. Commands may read it.
pub(crate) const COMMANDS: &str = "exec";

/// In podbayd's state: what agent frameworks write. Commands may write it.
pub(crate) const ARTEFACTS: &str = "artefacts";

/// Makes what a jail without namespaces needs below a sandbox's own directory, and completes the jail with it. Everything
/// goes with that directory.
///
/// # Errors
/// When a directory can't be made, or couldn't be reached by the sandbox's user.
pub fn make_host_dirs(dir: &Path, jail: &mut Jail) -> Result<(), JailError> {
    let who = Who::of(jail)?;
    if who.switches {
        open_the_way(dir)?;
    }
    let area = dir.join(AREA);
    let parent = open(CWD, dir).step(|| format!("open {}", dir.display()))?;
    // Others look for nothing in here, but root's sandbox has to get through.
    let place = make(parent.as_fd(), AREA, 0o711)?;
    let own = |parent: BorrowedFd<'_>, name: &str, inner: &[&str]| -> Result<PathBuf, FailedStep> {
        let made = make(parent, name, 0o700)?;
        let inner = inner.iter().map(|name| make(made.as_fd(), name, 0o700)).collect::<Result<Vec<_>, _>>()?;
        // Given away at the very end, from the inside out, and by descriptor: the owner of a workspace is a user of this
        // machine, who may put a link to a file of root's into a directory as soon as it is theirs.
        for given in inner.iter().chain([&made]).filter(|_| who.switches) {
            let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
            fchown(given, Some(uid), Some(gid)).step(|| format!("give {name} to the sandbox's user"))?;
        }
        Ok(area.join(name))
    };
    jail.state = Some(own(place.as_fd(), "state", &[COMMANDS, ARTEFACTS])?);
    jail.temporary = Some(own(place.as_fd(), "tmp", &[])?);
    if jail.workspace.is_none() {
        jail.workspace = Some(own(place.as_fd(), "workspace", &[])?);
    }
    Ok(())
}

fn open(parent: BorrowedFd<'_>, path: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, path, flags, Mode::empty())
}

/// Makes a directory and opens it.
fn make(parent: BorrowedFd<'_>, name: &str, mode: u32) -> Result<OwnedFd, FailedStep> {
    let mode = Mode::from_raw_mode(mode);
    let made = mkdirat(parent, name, mode).and_then(|()| {
        let made = open(parent, name)?;
        // The umask has no say here.
        fchmod(&made, mode)?;
        Ok(made)
    });
    made.step(|| format!("make the sandbox's directory {name}"))
}

/// Lets the sandbox's user, who is a stranger, through to its directory. What else lies on the way is closed by its own
/// mode.
fn open_the_way(dir: &Path) -> Result<(), JailError> {
    for (height, place) in dir.ancestors().enumerate() {
        let mode = fs::metadata(place).step(|| format!("look at {}", place.display()))?.mode();
        if mode & 0o001 != 0 {
            continue;
        }
        // The directory itself, that of all sandboxes, and the home are ours.
        if height < 3 {
            let open = Permissions::from_mode(mode & 0o7777 | 0o011);
            fs::set_permissions(place, open).step(|| format!("open the way through {}", place.display()))?;
            continue;
        }
        let failure = FailedStep::new(format!("let the sandbox's user through {}", place.display()), denied());
        let fix = "root's sandboxes have a user of their own, who must get to their directories: set PODBAY_HOME to a \
                   place that everybody can get through to";
        return Err(failure.fix(fix).into());
    }
    Ok(())
}

fn denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}
