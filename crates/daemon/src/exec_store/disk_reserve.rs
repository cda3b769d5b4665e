//! Disk space held back for what must be written when a command starts and ends, however full the disk is.
//!
//! The space of a command's record is written before the command starts. If the disk is full by then, podbayd frees space in a
//! file that it filled earlier.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};

use super::record::SPACE;

/// The file, below the state directory.
const STORE: &str = "reserve";

/// Its size: enough for this many commands that are started on a full disk.
const STORED: u64 = 64 * SPACE as u64;

/// The space that podbayd holds back.
#[derive(Debug)]
pub struct DiskReserve {
    /// Whether it isn't full.
    short: AtomicBool,
}

impl Default for DiskReserve {
    fn default() -> Self {
        Self { short: AtomicBool::new(true) }
    }
}

impl DiskReserve {
    /// Fills it as far as there is room; what is missing is tried again next time.
    pub fn fill(&self, state: impl AsFd) {
        if self.short.load(Ordering::Relaxed) && fill(state).is_ok() {
            self.short.store(false, Ordering::Relaxed);
        }
    }

    /// Does something that needs a record's space; on a full disk, with space from the reserve.
    ///
    /// # Errors
    /// When it fails anyway.
    pub fn with_room<T>(&self, state: impl AsFd, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..4 {
            match attempt() {
                // Somebody else may use the freed space first.
                Err(error) if is_full(&error) => {
                    self.short.store(true, Ordering::Relaxed);
                    release(&state)?;
                }
                done => return done,
            }
        }
        attempt()
    }
}

fn open(state: impl AsFd) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(state, STORE, flags, Mode::from_raw_mode(0o600))?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("podbayd's disk reserve isn't a regular file")),
    }
}

fn fill(state: impl AsFd) -> io::Result<()> {
    let mut file = open(state)?;
    let mut length = file.metadata()?.len();
    while length < STORED {
        file.write_all(&[0; SPACE])?;
        length += SPACE as u64;
    }
    Ok(())
}

/// Frees the space for one more record.
fn release(state: impl AsFd) -> io::Result<()> {
    let store = open(state)?;
    match store.metadata()?.len().checked_sub(2 * SPACE as u64) {
        Some(left) => store.set_len(left),
        None => Err(io::ErrorKind::StorageFull.into()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether so little space is left that output, which can be dropped, must leave it to records, which can't.
pub fn is_short(file: impl AsFd) -> bool {
    const MOST: u64 = 1 << 20;
    // If the file system can't be queried, writing fails by itself.
    let Ok(disk) = rustix::fs::fstatvfs(file) else { return false };
    let wanted = (disk.f_blocks.saturating_mul(disk.f_frsize) / 8).min(MOST);
    disk.f_bavail.saturating_mul(disk.f_frsize) < wanted
}
