//! The parts of the host's file system that a jail sees, as detached mounts.
//!
//! Each mount is held by descriptor and gets its flags before it is attached anywhere, and no path is resolved twice. For root
//! this runs outside, before the clone, because only there can an id map be set; for an ordinary user it runs in the new
//! namespaces.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::{FailedStep, Step};
use crate::etc;
use crate::ids::{Ids, apply_idmap};
use crate::jail::{Jail, STATE, WORKSPACE};
use crate::sys::{self, MountAttr, NODEV, NOEXEC, NOSUID, RDONLY};

/// Top-level directories of programs. On hosts with a merged /usr most of them are links, also in the jail.
pub const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Device nodes that programs expect, with major and minor number.
/// <https://www.kernel.org/doc/Documentation/admin-guide/devices.txt>
pub(crate) const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// A detached mount and its path in the jail.
pub(crate) struct HostMount {
    pub(crate) tree: OwnedFd,
    pub(crate) inside: PathBuf,
    pub(crate) directory: bool,
}

/// Everything of the host that a jail sees.
pub(crate) struct HostMounts {
    /// Mounts of programs and of /etc, read-only.
    pub(crate) system: Vec<HostMount>,
    /// Links to create: path and target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Small files to write: path and contents.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
    /// Devices by their name in /dev.
    pub(crate) devices: Vec<(&'static str, OwnedFd)>,
    /// The workspace, podbayd's state and the caller's mounts, outermost first.
    pub(crate) given: Vec<HostMount>,
}

impl HostMounts {
    /// Opens all of it.
    pub(crate) fn open(jail: &Jail, ids: &Ids) -> Result<Self, FailedStep> {
        let mut sources =
            Self { system: Vec::new(), links: Vec::new(), files: Vec::new(), devices: Vec::new(), given: Vec::new() };
        sources.programs()?;
        etc::add(&mut sources, jail)?;
        for (name, major, minor) in DEVICES {
            sources.devices.push((name, device(name, major, minor)?));
        }
        let own = [(&jail.workspace, WORKSPACE), (&jail.state, STATE)];
        for (host, inside) in own {
            if let Some(host) = host {
                sources.given.push(given(host, Path::new(inside), true, ids)?);
            }
        }
        for mount in &jail.mounts {
            sources.given.push(given(&mount.host, &mount.inside, mount.writable, ids)?);
        }
        // A mount inside another must come after it, whatever their order in the description.
        sources.given.sort_by_key(|source| source.inside.components().count());
        Ok(sources)
    }

    fn programs(&mut self) -> Result<(), FailedStep> {
        for name in PROGRAMS {
            let host = Path::new("/").join(name);
            match fs::symlink_metadata(&host) {
                Ok(meta) if meta.is_symlink() => {
                    let target = fs::read_link(&host).step(|| format!("read the link {}", host.display()))?;
                    self.links.push((host, target));
                }
                Ok(_) => self.read_only(&host, &host)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(FailedStep::new(format!("stat {}", host.display()), error)),
            }
        }
        Ok(())
    }

    /// Adds a read-only mount of a trusted path.
    pub(crate) fn read_only(&mut self, host: &Path, inside: &Path) -> Result<(), FailedStep> {
        let step = || format!("open {} for the sandbox", host.display());
        let tree = detached(host).step(step)?;
        let attr = MountAttr { set: RDONLY | NOSUID | NODEV, propagation: PRIVATE, ..Default::default() };
        sys::mount_setattr(tree.as_fd(), true, attr).step(|| format!("make {} read-only", host.display()))?;
        let directory = is_directory(&tree).step(step)?;
        self.system.push(HostMount { tree, inside: inside.to_owned(), directory });
        Ok(())
    }
}

/// A detached copy of what is mounted at a trusted path.
pub(crate) fn detached(host: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, host, flags)
}

/// Later mounts on the host don't appear in the jail, nor the reverse.
const PRIVATE: u64 = libc::MS_PRIVATE;

fn is_directory(fd: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode).is_dir())
}

/// Opens the caller's path on the host without following links: a sandbox may be able to write to a directory in it, and could
/// put a link there.
pub(crate) fn open_without_links(host: &Path) -> Result<OwnedFd, FailedStep> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, host, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).map_err(|error| {
        let failure = FailedStep::new(format!("open {} for the sandbox", host.display()), error);
        match error {
            rustix::io::Errno::LOOP => failure.fix("it is or contains a symbolic link: use the real path"),
            rustix::io::Errno::NOENT => failure.fix("create it first"),
            _ => failure,
        }
    })
}

fn given(host: &Path, inside: &Path, writable: bool, ids: &Ids) -> Result<HostMount, FailedStep> {
    let found = open_without_links(host)?;
    let stat = fstat(&found).step(|| format!("stat {}", host.display()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !kind.is_dir() && !kind.is_file() && !kind.is_socket() {
        let failure = FailedStep::new(format!("mount {}", host.display()), io::Error::from_raw_os_error(libc::EINVAL));
        return Err(failure.fix("only directories, files and sockets can be mounted in a sandbox"));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&found, c"", flags).step(|| format!("open {} for the sandbox", host.display()))?;
    if let Some(namespace) = ids.idmap(stat.st_uid, stat.st_gid)? {
        apply_idmap(&tree, &namespace).map_err(|error| {
            let fix = match error.raw_os_error() {
                Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                    "its file system (or one mounted below it) doesn't support id mapping: use a directory on ext4, \
                     xfs, btrfs or tmpfs, or run as an ordinary user"
                }
                _ => "only root outside of containers can map ids: run as an ordinary user, or without this directory",
            };
            FailedStep::new(format!("map the owner of {} to the sandbox", host.display()), error).fix(fix)
        })?;
    }
    let set = NOSUID | NODEV | if writable { 0 } else { RDONLY };
    sys::mount_setattr(tree.as_fd(), true, MountAttr { set, propagation: PRIVATE, ..Default::default() })
        .step(|| format!("set the mount flags of {}", host.display()))?;
    Ok(HostMount { tree, inside: inside.to_owned(), directory: kind.is_dir() })
}

/// A device of the host, after checking that it is what its name says: a container's /dev can contain anything.
fn device(name: &'static str, major: u32, minor: u32) -> Result<OwnedFd, FailedStep> {
    let path = Path::new("/dev").join(name);
    let meta = fs::symlink_metadata(&path).step(|| format!("stat {}", path.display()))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, &path, flags).step(|| format!("open {}", path.display()))?;
    let stat = fstat(&tree).step(|| format!("stat {}", path.display()))?;
    let (found_major, found_minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let right = FileType::from_raw_mode(stat.st_mode).is_char_device() && (found_major, found_minor) == (major, minor);
    if !right || !meta.file_type().is_char_device() || meta.rdev() != stat.st_rdev {
        let failure = FailedStep::new(format!("use {}", path.display()), io::Error::from_raw_os_error(libc::ENODEV));
        return Err(failure.fix(format!("it isn't the character device {major}:{minor}: repair the host's /dev")));
    }
    let attr = MountAttr { set: NOSUID | NOEXEC, propagation: PRIVATE, ..Default::default() };
    sys::mount_setattr(tree.as_fd(), false, attr).step(|| format!("set the mount flags of {}", path.display()))?;
    Ok(tree)
}
