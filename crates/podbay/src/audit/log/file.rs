//! Opening and locking the file.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens the file to append to it; creates it when it isn't there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let wrong = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned()));
    // Opening a FIFO would wait for a reader.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return wrong("the audit log can't be a symbolic link; name the file itself");
        }
        opened => opened?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return wrong("the audit log must be a regular file; choose another");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return wrong("this file belongs to another user, who could change the audit log; choose another");
    }
    if meta.nlink() > 1 {
        return wrong(
            "this file has a second name (a hard link), by which the audit log could be changed; choose another",
        );
    }
    Ok(file)
}

/// Takes the file from everybody else.
pub(super) fn hide(file: &File) -> io::Result<()> {
    match file.metadata()?.mode() & 0o7777 {
        0o600 => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(0o600)),
    }
}

/// The file, locked until this is dropped.
#[derive(Debug)]
pub(super) struct Locked(Arc<File>);

impl Locked {
    /// Takes the exclusive lock, and waits for it until then.
    pub(super) fn acquire(file: Arc<File>, until: Instant) -> io::Result<Self> {
        let mut pause = Duration::from_micros(20);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    let reason = "another process holds the log's lock; 'lslocks' shows which one";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(1));
                }
            }
        }
    }
}

impl Locked {
    /// The file, to be locked again later.
    pub(super) fn file(&self) -> Arc<File> {
        self.0.clone()
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the audit log couldn't be unlocked");
        }
    }
}
