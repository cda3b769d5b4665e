//! The file system inside, put together from detached mounts and entered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::error::{FailedStep, Step};
use crate::host_mounts::HostMounts;
use crate::jail::{ARTEFACTS, Jail, STATE, WORKSPACE};
use crate::sys::{self, MountAttr, RDONLY};

/// Bytes for everything temporary, where no limit was asked for.
pub(crate) const SCRATCH: u64 = 2 << 30;

/// Entries of /proc that speak of the whole machine: nothing inside needs them.
const MASKED: [&str; 15] = [
    "acpi",
    "asound",
    "cmdline",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
];
/// Entries of /proc that are read by normal programs but not written.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "pressure", "sys"];

/// Builds the root and makes it this process's. Returns the writable places.
pub(crate) fn enter(jail: &Jail, sources: HostMounts) -> Result<Vec<PathBuf>, FailedStep> {
    // Nothing of ours may reach the host's mounts, nor theirs us.
    let old = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the host's root".into())?;
    let private = MountAttr { propagation: libc::MS_PRIVATE, ..Default::default() };
    sys::mount_setattr(old.as_fd(), true, private).map_err(|error| {
        let errno = error.raw_os_error();
        let failure = FailedStep::new("make the mounts of the new namespace private", error);
        match errno {
            Some(libc::ENOSYS) => failure.fix("Linux 5.12 or newer is needed (mount_setattr)"),
            Some(libc::EPERM | libc::EACCES) => failure.fix(crate::probe::refused()),
            _ => failure,
        }
    })?;

    let root = tmpfs(&[("size", "4m"), ("nr_inodes", "4096"), ("mode", "0755")], MountAttrFlags::empty())?;
    attach(root.as_fd(), old.as_fd()).step(|| "mount the sandbox's root".into())?;
    let root = root.as_fd();

    for (place, target) in &sources.links {
        let (parent, name) = parent(root, place)?;
        symlinkat(target, &parent, name).step(|| format!("make the link {}", place.display()))?;
    }
    for source in &sources.system {
        put(root, source.tree.as_fd(), &source.inside, source.directory)?;
    }
    for (place, contents) in &sources.files {
        write_file(root, place, contents)?;
    }
    devices(root, &sources)?;
    proc(root)?;

    let mut writable = scratch(root, jail)?;
    for source in &sources.given {
        put(root, source.tree.as_fd(), &source.inside, source.directory)?;
    }
    writable.extend(jail.mounts.iter().filter(|mount| mount.writable).map(|mount| mount.inside.clone()));

    let read_only = MountAttr { set: RDONLY, ..Default::default() };
    sys::mount_setattr(root, false, read_only).step(|| "make the sandbox's root read-only".into())?;
    rustix::process::fchdir(root).step(|| "enter the sandbox's root".into())?;
    rustix::process::pivot_root(c".", c".").step(|| "make the sandbox's root the root".into())?;
    // The old root now lies on top of the new one.
    unmount(c".", UnmountFlags::DETACH).step(|| "let go of the host's root".into())?;
    rustix::process::chdir(c"/").step(|| "enter the sandbox's root".into())?;
    Ok(writable)
}

/// A new, detached tmpfs of this user namespace.
fn tmpfs(options: &[(&str, &str)], more: MountAttrFlags) -> Result<OwnedFd, FailedStep> {
    new_mount("tmpfs", options, MountAttrFlags::MOUNT_ATTR_NODEV | more)
}

fn new_mount(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd, FailedStep> {
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
                "the kernel gives no new /proc where the present one is partly hidden, as in most containers: run \
                 outside of the container or unmask its /proc{}",
                crate::probe::instead()
            )),
            (_, Errno::PERM | Errno::ACCESS) => failure.fix(crate::probe::refused()),
            _ => failure,
        }
    })
}

fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", place, c"", flags)
}

/// Attaches a mount at a place below the root, which is made where it is missing.
fn put(root: BorrowedFd<'_>, mount: BorrowedFd<'_>, place: &Path, directory: bool) -> Result<(), FailedStep> {
    let target = place_for(root, place, directory)?;
    attach(mount, target.as_fd()).step(|| format!("mount {}", place.display()))
}

/// Looks one name up, through no link.
fn step_into(at: BorrowedFd<'_>, name: &Path, place: &Path) -> Result<Option<OwnedFd>, FailedStep> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => {
            let failure = FailedStep::new(format!("find the place for {}", place.display()), error);
            Err(match error {
                Errno::LOOP => failure.fix("a symbolic link lies on the way: remove it, or mount elsewhere"),
                _ => failure,
            })
        }
    }
}

fn place_for(root: BorrowedFd<'_>, place: &Path, directory: bool) -> Result<OwnedFd, FailedStep> {
    let (parent, name) = parent(root, place)?;
    if let Some(found) = step_into(parent.as_fd(), name, place)? {
        return Ok(found);
    }
    let made = match directory {
        true => mkdirat(&parent, name, Mode::from_raw_mode(0o755)),
        false => create(parent.as_fd(), name).map(drop),
    };
    made.step(|| format!("make the place for {}", place.display()))?;
    step_into(parent.as_fd(), name, place)?.ok_or_else(|| {
        FailedStep::new(format!("find the place for {}", place.display()), io::Error::from_raw_os_error(libc::ENOENT))
    })
}

/// The directory that holds a place, made where it is missing, and the place's name in it.
fn parent<'p>(root: BorrowedFd<'_>, place: &'p Path) -> Result<(OwnedFd, &'p Path), FailedStep> {
    let mut at = root.try_clone_to_owned().step(|| "copy a descriptor".into())?;
    let mut names = place.components().filter(|c| matches!(c, Component::Normal(_))).map(|c| Path::new(c.as_os_str()));
    let Some(mut name) = names.next() else {
        return Err(FailedStep::new("mount over the sandbox's root", io::Error::from_raw_os_error(libc::EINVAL)));
    };
    for next in names {
        at = match step_into(at.as_fd(), name, place)? {
            Some(found) => found,
            None => {
                let step = || format!("make the directories of {}", place.display());
                mkdirat(&at, name, Mode::from_raw_mode(0o755)).step(step)?;
                step_into(at.as_fd(), name, place)?
                    .ok_or_else(|| FailedStep::new(step(), io::Error::from_raw_os_error(libc::ENOENT)))?
            }
        };
        name = next;
    }
    Ok((at, name))
}

fn create(at: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::from_raw_mode(0o644))
}

fn write_file(root: BorrowedFd<'_>, place: &Path, contents: &[u8]) -> Result<(), FailedStep> {
    use std::io::Write;
    let (parent, name) = parent(root, place)?;
    let file = create(parent.as_fd(), name).step(|| format!("make {}", place.display()))?;
    std::fs::File::from(file).write_all(contents).step(|| format!("write {}", place.display()))
}

fn devices(root: BorrowedFd<'_>, sources: &HostMounts) -> Result<(), FailedStep> {
    let dev = new_mount(
        "tmpfs",
        &[("size", "64k"), ("nr_inodes", "64"), ("mode", "0755")],
        MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?;
    put(root, dev.as_fd(), Path::new("/dev"), true)?;
    for (name, device) in &sources.devices {
        put(dev.as_fd(), device.as_fd(), &Path::new("/").join(name), false)?;
    }
    let terminals = new_mount("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
    put(dev.as_fd(), terminals.as_fd(), Path::new("/pts"), true)?;
    place_for(dev.as_fd(), Path::new("/shm"), true)?;
    let links = [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ];
    for (name, target) in links {
        symlinkat(target, &dev, name).step(|| format!("make the link /dev/{name}"))?;
    }
    sys::mount_setattr(dev.as_fd(), false, MountAttr { set: RDONLY, ..Default::default() })
        .step(|| "make /dev read-only".into())
}

fn proc(root: BorrowedFd<'_>) -> Result<(), FailedStep> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV;
    let proc = new_mount("proc", &[], flags)?;
    put(root, proc.as_fd(), Path::new("/proc"), true)?;
    // Not one more namespace in here, also if the filter had a hole: this namespace's own limit is 0,
    // and whoever has no capability in it can't raise it.
    let limit = "sys/user/max_user_namespaces";
    let written = openat(&proc, limit, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::write(file, b"0"));
    written.step(|| format!("write 0 to /proc/{limit}"))?;
    for name in READ_ONLY {
        let Some(entry) = step_into(proc.as_fd(), Path::new(name), Path::new(name))? else { continue };
        let step = || format!("make /proc/{name} read-only");
        let tree = clone_of(entry.as_fd()).step(step)?;
        sys::mount_setattr(tree.as_fd(), false, MountAttr { set: RDONLY, ..Default::default() }).step(step)?;
        attach(tree.as_fd(), entry.as_fd()).step(step)?;
    }
    let null = step_into(root, Path::new("dev/null"), Path::new("/dev/null"))?
        .ok_or_else(|| FailedStep::new("find /dev/null", io::Error::from_raw_os_error(libc::ENOENT)))?;
    for name in MASKED {
        let Some(entry) = step_into(proc.as_fd(), Path::new(name), Path::new(name))? else { continue };
        let step = || format!("mask /proc/{name}");
        let stat = rustix::fs::fstat(&entry).step(step)?;
        let cover = if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            tmpfs(&[("size", "4k"), ("nr_inodes", "4"), ("mode", "0000")], MountAttrFlags::MOUNT_ATTR_RDONLY)?
        } else {
            clone_of(null.as_fd()).step(step)?
        };
        attach(cover.as_fd(), entry.as_fd()).step(step)?;
    }
    Ok(())
}

/// A detached copy of the mount at a place.
fn clone_of(place: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(place, c"", flags)
}

/// The most for podbayd's own state, logs included. It is beside what the sandbox may use, so that a full disk doesn't keep
/// podbayd from telling how commands ended; some thousand of them are remembered in the least of it.
fn state_size(disk: u64) -> u64 {
    (disk / 8).clamp(64 << 20, 320 << 20)
}

/// One tmpfs for everything temporary, so that one size bounds it all; its parts go to their places.
fn scratch(root: BorrowedFd<'_>, jail: &Jail) -> Result<Vec<PathBuf>, FailedStep> {
    let size = jail.limits.disk.unwrap_or(SCRATCH);
    let inodes = (size / 4096).clamp(4096, 1 << 20);
    let scratch = tmpfs(
        &[("size", &size.to_string()), ("nr_inodes", &inodes.to_string()), ("mode", "0755")],
        MountAttrFlags::empty(),
    )?;
    // Attached first: parts of a detached mount can't be copied before Linux 6.15.
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
        // The umask has no say here.
        rustix::fs::fchmod(&part, Mode::from_raw_mode(*mode)).step(step)?;
        parts.push((clone_of(part.as_fd()).step(step)?, Path::new(*place)));
    }
    // It stays under its part at /tmp, out of sight: an unmount would cost a tenth of the whole start.
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
