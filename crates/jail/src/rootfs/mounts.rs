//! Detached mounts, and the places in the new root at which they are attached.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, open_tree,
};

use crate::error::{FailedStep, Step};

/// Makes a detached tmpfs.
pub(super) fn tmpfs(options: &[(&str, &str)], more: MountAttrFlags) -> Result<OwnedFd, FailedStep> {
    new_mount("tmpfs", options, MountAttrFlags::MOUNT_ATTR_NODEV | more)
}

/// Makes a detached mount of a new file system.
pub(super) fn new_mount(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd, FailedStep> {
    let made = || -> rustix::io::Result<OwnedFd> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(&context, *key, *value)?;
        }
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags | MountAttrFlags::MOUNT_ATTR_NOSUID)
    };
    made().map_err(|error| {
        let failure = FailedStep::new(format!("make a {kind} for the sandbox"), error);
        match (kind, error) {
            ("proc", Errno::PERM) => failure.fix(format!(
                "the kernel refuses a new /proc where the existing one is partly masked, as in most containers: run \
                 outside of the container or unmask its /proc{}",
                crate::probe::instead()
            )),
            (_, Errno::PERM | Errno::ACCESS) => failure.fix(crate::probe::refused()),
            _ => failure,
        }
    })
}

/// Attaches a detached mount at a place that is open.
pub(super) fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", place, c"", flags)
}

/// Attaches a mount at a path in the root, creating its mount point if necessary.
pub(super) fn put(
    root: BorrowedFd<'_>,
    mount: BorrowedFd<'_>,
    place: &Path,
    directory: bool,
) -> Result<(), FailedStep> {
    let target = place_for(root, place, directory)?;
    attach(mount, target.as_fd()).step(|| format!("mount {}", place.display()))
}

/// Looks up one name without following a link.
pub(super) fn step_into(at: BorrowedFd<'_>, name: &Path, place: &Path) -> Result<Option<OwnedFd>, FailedStep> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => {
            let failure = FailedStep::new(format!("find the mount point {}", place.display()), error);
            Err(match error {
                Errno::LOOP => failure.fix("a component of the path is a symbolic link: remove it, or mount elsewhere"),
                _ => failure,
            })
        }
    }
}

/// Opens a mount point, creating it if necessary.
pub(super) fn place_for(root: BorrowedFd<'_>, place: &Path, directory: bool) -> Result<OwnedFd, FailedStep> {
    let (parent, name) = parent(root, place)?;
    if let Some(found) = step_into(parent.as_fd(), name, place)? {
        return Ok(found);
    }
    let made = match directory {
        true => mkdirat(&parent, name, Mode::from_raw_mode(0o755)),
        false => create(parent.as_fd(), name).map(drop),
    };
    made.step(|| format!("create the mount point {}", place.display()))?;
    step_into(parent.as_fd(), name, place)?.ok_or_else(|| {
        FailedStep::new(format!("find the mount point {}", place.display()), io::Error::from_raw_os_error(libc::ENOENT))
    })
}

/// The parent directory of a path, created if necessary, and the path's last component.
pub(super) fn parent<'p>(root: BorrowedFd<'_>, place: &'p Path) -> Result<(OwnedFd, &'p Path), FailedStep> {
    let mut at = root.try_clone_to_owned().step(|| "copy a descriptor".into())?;
    let mut names = place.components().filter(|c| matches!(c, Component::Normal(_))).map(|c| Path::new(c.as_os_str()));
    let Some(mut name) = names.next() else {
        return Err(FailedStep::new("mount over the sandbox's root", io::Error::from_raw_os_error(libc::EINVAL)));
    };
    for next in names {
        at = match step_into(at.as_fd(), name, place)? {
            Some(found) => found,
            None => {
                let step = || format!("create the directories of {}", place.display());
                mkdirat(&at, name, Mode::from_raw_mode(0o755)).step(step)?;
                step_into(at.as_fd(), name, place)?
                    .ok_or_else(|| FailedStep::new(step(), io::Error::from_raw_os_error(libc::ENOENT)))?
            }
        };
        name = next;
    }
    Ok((at, name))
}

pub(super) fn create(at: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::from_raw_mode(0o644))
}

/// Writes a new file.
pub(super) fn write_file(root: BorrowedFd<'_>, place: &Path, contents: &[u8]) -> Result<(), FailedStep> {
    use std::io::Write;
    let (parent, name) = parent(root, place)?;
    let file = create(parent.as_fd(), name).step(|| format!("create {}", place.display()))?;
    std::fs::File::from(file).write_all(contents).step(|| format!("write {}", place.display()))
}

/// A detached copy of the mount at a place that is open.
pub(super) fn clone_of(place: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(place, c"", flags)
}
