//! The root file system of a jail: assembled from detached mounts, then entered.

mod dev_and_proc;
mod mounts;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, open, openat, symlinkat};
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};

use self::mounts::{attach, clone_of, parent, place_for, put, tmpfs, write_file};
use crate::error::{FailedStep, Step};
use crate::host_mounts::HostMounts;
use crate::jail::{ARTEFACTS, Jail, STATE, WORKSPACE};
use crate::sys::{self, MountAttr, RDONLY};

/// The size of everything temporary in bytes, unless a limit is set.
pub(crate) const SCRATCH: u64 = 2 << 30;

/// Assembles the root file system and makes it this process's. Returns the writable paths.
pub(crate) fn enter(jail: &Jail, sources: HostMounts) -> Result<Vec<PathBuf>, FailedStep> {
    // Mounts must propagate neither to the host nor from it.
    let old = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the host's root".into())?;
    let private = MountAttr { propagation: libc::MS_PRIVATE, ..Default::default() };
    sys::mount_setattr(old.as_fd(), true, private).map_err(|error| {
        let errno = error.raw_os_error();
        let failure = FailedStep::new("make the mounts of the new namespace private", error);
        match errno {
            Some(libc::ENOSYS) => failure.fix("use Linux 5.12 or newer, which has mount_setattr"),
            Some(libc::EPERM | libc::EACCES) => failure.fix(crate::probe::refused()),
            _ => failure,
        }
    })?;

    let root = tmpfs(&[("size", "4m"), ("nr_inodes", "4096"), ("mode", "0755")], MountAttrFlags::empty())?;
    attach(root.as_fd(), old.as_fd()).step(|| "mount the sandbox's root".into())?;
    let root = root.as_fd();

    for (place, target) in &sources.links {
        let (parent, name) = parent(root, place)?;
        symlinkat(target, &parent, name).step(|| format!("create the link {}", place.display()))?;
    }
    for source in &sources.system {
        put(root, source.tree.as_fd(), &source.inside, source.directory)?;
    }
    for (place, contents) in &sources.files {
        write_file(root, place, contents)?;
    }
    dev_and_proc::devices(root, &sources)?;
    dev_and_proc::proc(root)?;

    let mut writable = scratch(root, jail)?;
    for source in &sources.given {
        put(root, source.tree.as_fd(), &source.inside, source.directory)?;
    }
    writable.extend(jail.mounts.iter().filter(|mount| mount.writable).map(|mount| mount.inside.clone()));

    let read_only = MountAttr { set: RDONLY, ..Default::default() };
    sys::mount_setattr(root, false, read_only).step(|| "make the sandbox's root read-only".into())?;
    rustix::process::fchdir(root).step(|| "enter the sandbox's root".into())?;
    rustix::process::pivot_root(c".", c".").step(|| "make the sandbox's root the root".into())?;
    // The old root is now mounted on top of the new one.
    unmount(c".", UnmountFlags::DETACH).step(|| "unmount the host's root".into())?;
    rustix::process::chdir(c"/").step(|| "enter the sandbox's root".into())?;
    Ok(writable)
}

/// The size of podbayd's state, logs included. It is separate from what commands can use, so that podbayd can record how a
/// command ended even when they have filled their disk. Even the smallest size has room for some thousand commands.
fn state_size(disk: u64) -> u64 {
    (disk / 8).clamp(64 << 20, 320 << 20)
}

/// Mounts the temporary directories, which are parts of one tmpfs, so that one size limits them all. Returns the writable
/// paths.
fn scratch(root: BorrowedFd<'_>, jail: &Jail) -> Result<Vec<PathBuf>, FailedStep> {
    let size = jail.limits.disk.unwrap_or(SCRATCH);
    let inodes = (size / 4096).clamp(4096, 1 << 20);
    let scratch = tmpfs(
        &[("size", &size.to_string()), ("nr_inodes", &inodes.to_string()), ("mode", "0755")],
        MountAttrFlags::empty(),
    )?;
    // It must be attached first: before Linux 6.15, parts of a detached mount can't be copied.
    let base = place_for(root, Path::new("/tmp"), true)?;
    attach(scratch.as_fd(), base.as_fd()).step(|| "mount the temporary space".into())?;

    let mut places = vec![("/tmp", 0o1777), ("/dev/shm", 0o1777)];
    places.extend(ARTEFACTS.map(|place| (place, 0o755)));
    if jail.workspace.is_none() {
        places.push((WORKSPACE, 0o755));
    }
    let mut parts = Vec::new();
    for (index, (place, mode)) in places.iter().enumerate() {
        let step = || format!("make {place}");
        let name = index.to_string();
        mkdirat(&scratch, &name, Mode::from_raw_mode(*mode)).step(step)?;
        let part = openat(&scratch, &name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let part = part.step(step)?;
        // Whatever the umask.
        rustix::fs::fchmod(&part, Mode::from_raw_mode(*mode)).step(step)?;
        parts.push((clone_of(part.as_fd()).step(step)?, Path::new(*place)));
    }
    // The tmpfs itself stays hidden below its part at /tmp: unmounting it would take a tenth of the whole start-up time.
    for (part, place) in &parts {
        put(root, part.as_fd(), place, true)?;
    }
    if jail.state.is_none() {
        let size = state_size(size);
        let inodes = (size / 1024).max(4096);
        let state = tmpfs(
            &[("size", &size.to_string()), ("nr_inodes", &inodes.to_string()), ("mode", "0700")],
            MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )?;
        put(root, state.as_fd(), Path::new(STATE), true)?;
    }
    let mut writable: Vec<PathBuf> = parts.iter().map(|(_, place)| place.to_path_buf()).collect();
    for place in [WORKSPACE, STATE] {
        if !writable.iter().any(|known| known == Path::new(place)) {
            writable.push(PathBuf::from(place));
        }
    }
    Ok(writable)
}
