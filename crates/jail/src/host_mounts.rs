//! What of the host goes into the jail, opened and closed off before it is put anywhere.
//!
//! Everything is a detached mount held by descriptor: its flags are set while nothing can reach it,
//! and no path is looked up a second time. For root this runs outside, before the clone, because
//! only there may an id map be set; for an ordinary user it runs inside the new namespaces.

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

/// Top-level directories of programs. On hosts with a merged /usr most are links, and stay links.
pub(crate) const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Device nodes that every program may expect, by major and minor number.
/// <https://www.kernel.org/doc/Documentation/admin-guide/devices.txt>
pub(crate) const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// A detached mount and the place for it.
pub(crate) struct HostMount {
    pub(crate) tree: OwnedFd,
    pub(crate) inside: PathBuf,
    pub(crate) directory: bool,
}

/// Everything of the host's that a jail will see.
pub(crate) struct HostMounts {
    /// Mounts of programs and of /etc, read-only.
    pub(crate) system: Vec<HostMount>,
    /// Links to make: place and target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Small files to write: place and contents.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
    /// Devices by name below /dev.
    pub(crate) devices: Vec<(&'static str, OwnedFd)>,
    /// The workspace, podbayd's state and what the caller asked for, outermost first.
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
        // A mount inside another must come after it, whatever the order in which they were given.
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
                Err(error) => return Err(FailedStep::new(format!("look at {}", host.display()), error)),
            }
        }
        Ok(())
    }

    /// Adds a read-only view of a trusted part of the host.
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

/// A copy of what is mounted at a trusted path, attached nowhere.
pub(crate) fn detached(host: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, host, flags)
}

/// Nothing mounted on the host later shows up inside, and the reverse.
const PRIVATE: u64 = libc::MS_PRIVATE;

fn is_directory(fd: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode).is_dir())
}

/// Opens a host path that the caller named, through no link at all: a part of it may be writable
/// for a sandbox, and a link there would be that sandbox's choice.
pub(crate) fn open_without_links(host: &Path) -> Result<OwnedFd, FailedStep> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, host, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).map_err(|error| {
        let failure = FailedStep::new(format!("open {} for the sandbox", host.display()), error);
        match error {
            rustix::io::Errno::LOOP => failure.fix("it is a symbolic link or leads through one: give its real path"),
            rustix::io::Errno::NOENT => failure.fix("make it first"),
            _ => failure,
        }
    })
}

fn given(host: &Path, inside: &Path, writable: bool, ids: &Ids) -> Result<HostMount, FailedStep> {
    let found = open_without_links(host)?;
    let stat = fstat(&found).step(|| format!("look at {}", host.display()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !kind.is_dir() && !kind.is_file() && !kind.is_socket() {
        let failure = FailedStep::new(format!("mount {}", host.display()), io::Error::from_raw_os_error(libc::EINVAL));
        return Err(failure.fix("only directories, files and sockets can be given to a sandbox"));
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
                    "its file system (or one mounted below it) can't map ids: choose a directory on ext4, xfs, btrfs \
                     or tmpfs, or run as an ordinary user"
                }
                _ => "mapping ids needs a real root: run as an ordinary user, or without this directory",
            };
            FailedStep::new(format!("map the owner of {} to the sandbox", host.display()), error).fix(fix)
        })?;
    }
    let set = NOSUID | NODEV | if writable { 0 } else { RDONLY };
    sys::mount_setattr(tree.as_fd(), true, MountAttr { set, propagation: PRIVATE, ..Default::default() })
        .step(|| format!("set the mount flags of {}", host.display()))?;
    Ok(HostMount { tree, inside: inside.to_owned(), directory: kind.is_dir() })
}

/// A device of the host, which must be the one that its name says: /dev of a container can be anything.
fn device(name: &'static str, major: u32, minor: u32) -> Result<OwnedFd, FailedStep> {
    let path = Path::new("/dev").join(name);
    let meta = fs::symlink_metadata(&path).step(|| format!("look at {}", path.display()))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, &path, flags).step(|| format!("open {}", path.display()))?;
    let stat = fstat(&tree).step(|| format!("look at {}", path.display()))?;
    let (found_major, found_minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let right = FileType::from_raw_mode(stat.st_mode).is_char_device() && (found_major, found_minor) == (major, minor);
    if !right || !meta.file_type().is_char_device() || meta.rdev() != stat.st_rdev {
        let failure = FailedStep::new(format!("use {}", path.display()), io::Error::from_raw_os_error(libc::ENODEV));
        return Err(failure.fix(format!("it is not the character device {major}:{minor}: repair the host's /dev")));
    }
    let attr = MountAttr { set: NOSUID | NOEXEC, propagation: PRIVATE, ..Default::default() };
    sys::mount_setattr(tree.as_fd(), false, attr).step(|| format!("set the mount flags of {}", path.display()))?;
    Ok(tree)
}
