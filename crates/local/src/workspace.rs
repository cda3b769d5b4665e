//! Creating a sandbox's workspace directory.
//!
//! Directories above it may belong to a user or to a sandbox, and be replaced at any time. So the path is created component by
//! component, by descriptor and without following links, and ownership is changed on the very directory that was checked.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Creates a directory and its missing parents. A new directory gets this owner.
///
/// # Errors
/// When it can't be created, its path contains a link, or another process replaced it meanwhile.
pub(crate) fn make(path: &Path, owner: Option<u32>) -> Result<()> {
    let fault = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => {
            let what = "can't create the workspace: a file or symbolic link is in its path; use the real path";
            Error::home(path, what)(error.into())
        }
        _ => Error::home(path, "can't create the workspace")(error.into()),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = openat(CWD, "/", flags, Mode::empty()).map_err(fault)?;
    let mut is_new = false;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::RootDir | Component::CurDir => continue,
            _ => return Err(Error::BadOptions(format!("workspace {}: remove the '..' from its path", path.display()))),
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
            give(&dir, owner).map_err(Error::home(path, "can't change the workspace's owner to the sandbox's user"))
        }
        None => Ok(()),
    }
}

/// Changes the owner of a new directory, which must still be empty and this user's.
fn give(dir: &OwnedFd, owner: u32) -> std::io::Result<()> {
    let dir = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let empty = std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.next().is_none();
    if fstat(&dir)?.st_uid != rustix::process::geteuid().as_raw() || !empty {
        return Err(std::io::Error::other("another process replaced it meanwhile"));
    }
    Ok(fchown(&dir, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// Root created the workspace through a link that a user had put there, and gave the link's target to that user.
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
        // An existing directory keeps its owner.
        make(&real.join("precious"), owner).unwrap();
        assert_eq!(std::fs::metadata(real.join("precious")).unwrap().uid(), us);
    }
}
