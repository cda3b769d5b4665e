//! Directories on the host for a jail without namespaces, in place of private mounts: state, temporary files, and a workspace
//! unless the jail has one.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use podbay_proto::layout::{ARTEFACT_DIR, EXEC_DIR};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, openat};
use rustix::path::Arg;

use crate::error::{FailedStep, JailError, Step};
use crate::ids::Who;
use crate::jail::Jail;

/// The directory that contains them.
const AREA: &str = "area";

/// Creates these directories in `dir`, owned by the jail's user, and adds them to the jail. The caller removes them with `dir`.
///
/// If the jail's user is another one than the caller, `dir` and the two directories above it become searchable by everyone: the
/// caller must own these three.
///
/// # Errors
/// When a directory can't be created, or the jail's user couldn't reach it.
pub fn make_host_dirs(dir: &Path, jail: &mut Jail) -> Result<(), JailError> {
    let who = Who::of(jail)?;
    if who.switches {
        make_searchable(dir)?;
    }
    let area = dir.join(AREA);
    let parent = open(CWD, dir).step(|| format!("open {}", dir.display()))?;
    // Root's jail has another user, who must be able to pass through.
    let place = make(parent.as_fd(), AREA, 0o711)?;
    let own = |parent: BorrowedFd<'_>, name: &str, inner: &[&str]| -> Result<PathBuf, FailedStep> {
        let made = make(parent, name, 0o700)?;
        let inner = inner.iter().map(|name| make(made.as_fd(), name, 0o700)).collect::<Result<Vec<_>, _>>()?;
        // Ownership changes last, from the inside out, and by descriptor: the new owner may be a user of this machine, who
        // could put links to root's files into a directory as soon as they own it.
        for given in inner.iter().chain([&made]).filter(|_| who.switches) {
            let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
            fchown(given, Some(uid), Some(gid)).step(|| format!("change the owner of {name} to the sandbox's user"))?;
        }
        Ok(area.join(name))
    };
    jail.state = Some(own(place.as_fd(), "state", &[EXEC_DIR, ARTEFACT_DIR])?);
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

/// Creates a directory and opens it.
fn make(parent: BorrowedFd<'_>, name: &str, mode: u32) -> Result<OwnedFd, FailedStep> {
    let mode = Mode::from_raw_mode(mode);
    let made = mkdirat(parent, name, mode).and_then(|()| {
        let made = open(parent, name)?;
        // Whatever the umask.
        fchmod(&made, mode)?;
        Ok(made)
    });
    made.step(|| format!("create the sandbox's directory {name}"))
}

/// Lets the jail's user, who is another one, pass through to the directory. Other entries of the directories above are protected
/// by their own modes.
fn make_searchable(dir: &Path) -> Result<(), JailError> {
    for (height, place) in dir.ancestors().enumerate() {
        let mode = fs::metadata(place).step(|| format!("stat {}", place.display()))?.mode();
        if mode & 0o001 != 0 {
            continue;
        }
        // The directory itself and the two above it are the caller's.
        if height < 3 {
            let open = Permissions::from_mode(mode & 0o7777 | 0o011);
            fs::set_permissions(place, open).step(|| format!("make {} searchable", place.display()))?;
            continue;
        }
        let failure = FailedStep::new(format!("reach {} as the sandbox's user", dir.display()), denied());
        let fix = format!(
            "root's sandboxes run as another user, who can't pass through {}: keep them below directories with mode o+x",
            place.display()
        );
        return Err(failure.fix(fix).into());
    }
    Ok(())
}

fn denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}
