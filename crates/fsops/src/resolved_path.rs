//! A resolved path: an open directory and a name in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::errno::error_at;
use crate::identity::lstat;
use crate::rules::{Names, names};

/// An open directory and a name in it, on which an operation acts.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The deepest directory that exists.
    pub(crate) dir: OwnedFd,
    /// Directories that are missing between it and the name.
    pub(crate) missing: Names,
    /// The name. None when the path ends at the directory itself: `/`, `.`, or a final `..`.
    pub(crate) name: Option<Vec<u8>>,
    /// The path ends with a slash, so it can only mean a directory. If it exists, it is one.
    pub(crate) names_dir: bool,
    /// The path as the caller wrote it, for errors.
    pub(crate) asked: RawPath,
    /// The path as results show it: absolute, in the caller's view.
    pub(crate) shown: RawPath,
}

impl ResolvedPath {
    /// The name, or an error that the path has none.
    pub(crate) fn name(&self) -> Result<&[u8]> {
        self.name.as_deref().ok_or_else(|| {
            let message = "is '/', '.' or ends in '..', which can't be used here: name the entry itself";
            Error::at(ErrorCode::InvalidPath, &self.asked, message)
        })
    }

    /// The error for a failed system call on this path.
    pub(crate) fn error(&self, error: impl Into<io::Error>) -> Error {
        error_at(&self.asked, error)
    }

    /// The real path, for the rules: that of the open directory, not of a string that is opened later.
    pub(crate) fn real(&self) -> Result<Names> {
        let mut path = real_path(&self.dir).map_err(|error| Error::at(error.code, &self.asked, error.message))?;
        path.extend(self.missing.iter().cloned());
        path.extend(self.name.clone());
        Ok(path)
    }

    /// `lstat` of what is at the path.
    pub(crate) fn stat(&self) -> Result<Stat> {
        if !self.missing.is_empty() {
            return Err(self.error(Errno::NOENT));
        }
        match &self.name {
            Some(name) => lstat(&self.dir, name),
            None => rustix::fs::fstat(&self.dir),
        }
        .map_err(|error| self.error(error))
    }

    /// Opens what is at the path. A link that has appeared since isn't followed.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd> {
        if !self.missing.is_empty() {
            return Err(self.error(Errno::NOENT));
        }
        let name = self.name.as_deref().unwrap_or(b".");
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(&self.dir, name, flags, Mode::empty()).map_err(|error| self.error(error))
    }

    /// Opens the directory at the path, for reading.
    pub(crate) fn open_dir(&self) -> Result<OwnedFd> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Makes the missing directories.
    pub(crate) fn make_parents(&mut self) -> Result<()> {
        for name in std::mem::take(&mut self.missing) {
            match rustix::fs::mkdirat(&self.dir, &name[..], Mode::from_raw_mode(0o777)) {
                // Someone else may have made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(self.error(error)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.dir =
                rustix::fs::openat(&self.dir, &name[..], flags, Mode::empty()).map_err(|error| self.error(error))?;
        }
        Ok(())
    }

    /// Identifies this name in this directory, for locks.
    pub(crate) fn lock_key(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        if let Ok(stat) = rustix::fs::fstat(&self.dir) {
            (stat.st_dev, stat.st_ino).hash(&mut hasher);
        }
        self.name.hash(&mut hasher);
        hasher.finish()
    }
}

/// The path of an open directory.
pub(crate) fn real_path(dir: &impl AsFd) -> Result<Names> {
    Ok(names(&real_path_bytes(dir)?))
}

/// The path of an open directory, as the kernel writes it.
pub(crate) fn real_path_bytes(dir: &impl AsFd) -> Result<Vec<u8>> {
    let number = std::os::fd::AsRawFd::as_raw_fd(&dir.as_fd());
    let path = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new()).map_err(|error| {
        let message =
            format!("can't check path rules because /proc can't be read ({error}): mount it, or remove the rules");
        Error::new(ErrorCode::Unsupported, message)
    })?;
    Ok(path.into_bytes())
}
