//! `/dev` and `/proc` of the jail.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat, symlinkat};
use rustix::mount::MountAttrFlags;

use super::mounts::{attach, clone_of, new_mount, place_for, put, step_into, tmpfs};
use crate::error::{FailedStep, Step};
use crate::host_mounts::HostMounts;
use crate::sys::{self, MountAttr, RDONLY};

/// Entries of /proc that are about the whole machine. No program needs them.
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
/// Entries of /proc that programs read, but never need to write.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "pressure", "sys"];

/// Mounts `/dev`: the host's harmless devices, and terminals of its own.
pub(super) fn devices(root: BorrowedFd<'_>, sources: &HostMounts) -> Result<(), FailedStep> {
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
        symlinkat(target, &dev, name).step(|| format!("create the link /dev/{name}"))?;
    }
    sys::mount_setattr(dev.as_fd(), false, MountAttr { set: RDONLY, ..Default::default() })
        .step(|| "make /dev read-only".into())
}

/// Mounts `/proc`, without what tells about the machine or changes it.
pub(super) fn proc(root: BorrowedFd<'_>) -> Result<(), FailedStep> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV;
    let proc = new_mount("proc", &[], flags)?;
    put(root, proc.as_fd(), Path::new("/proc"), true)?;
    // No further user namespace can be made in this one, even if the filter had a hole: the limit is 0, and raising it takes a
    // capability that no process in here has.
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
