//! A workspace that is made for a sandbox.
//!
//! Directories above it may belong to a user or to a sandbox, who can exchange them at any time. So it is made step by step, by
//! descriptors and through no link, and what is given away is the directory that was looked at.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Makes a directory and what is missing above it; if it is new, it gets this owner.
///
/// # Errors
/// When it can't be made, leads through a link, or was exchanged meanwhile.
pub(crate) fn make(path: &Path, owner: Option<u32>) -> Result<()> {
    let fault = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => {
            let what = "the workspace can't be made: a file or a symbolic link is in the way; give its real path";
            Error::home(path, what)(error.into())
        }
        _ => Error::home(path, "the workspace can't be made")(error.into()),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = openat(CWD, "/", flags, Mode::empty()).map_err(fault)?;
    let mut is_new = false;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::RootDir | Component::CurDir => continue,
            _ => return Err(Error::BadOptions(format!("workspace {}: it can't have '..' in it", path.display()))),
        };
        is_new = false;
        dir = match openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => is_new = true,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(fault(error)),
                }
                openat(&dir, name, flags, Mode::empty()).map_err(fault)?
            }
            found => found.map_err(fault)?,
        };
    }
    match owner.filter(|_| is_new) {
        Some(owner) => {
            give(&dir, owner).map_err(Error::home(path, "the workspace can't be given to the sandbox's user"))
        }
        None => Ok(()),
    }
}

/// Gives a new directory to a user: one that is ours and empty, whoever may have exchanged it.
fn give(dir: &OwnedFd, owner: u32) -> std::io::Result<()> {
    let dir = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let empty = std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.next().is_none();
    if fstat(&dir)?.st_uid != rustix::process::geteuid().as_raw() || !empty {
        return Err(std::io::Error::other("somebody exchanged it meanwhile"));
    }
    Ok(fchown(&dir, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// Root made the workspace through a link that its owner had put there, and gave away what the link led to.
    #[test]
    fn no_link_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("precious")).unwrap();
        symlink(real.join("precious"), real.join("link")).unwrap();
        symlink(real.join("nowhere"), real.join("dangling")).unwrap();
        let owner = rustix::process::geteuid().is_root().then_some(54_321);
        for path in ["link", "link/w", "dangling", "dangling/w", "a/../b"] {
            assert!(make(&real.join(path), owner).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_dir(real.join("precious")).unwrap().count(), 0);
        assert!(!real.join("nowhere").exists());
        let us = rustix::process::geteuid().as_raw();
        assert_eq!(std::fs::metadata(real.join("precious")).unwrap().uid(), us);
        make(&real.join("a/b"), owner).unwrap();
        assert_eq!(std::fs::metadata(real.join("a/b")).unwrap().uid(), owner.unwrap_or(us));
        // One that was there stays whose it is.
        make(&real.join("precious"), owner).unwrap();
        assert_eq!(std::fs::metadata(real.join("precious")).unwrap().uid(), us);
    }
}
