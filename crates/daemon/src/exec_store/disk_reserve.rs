//! Room on the disk for what must be written at a command's end, however full the disk is by then.
//!
//! The space of each command's record is written before the command starts. Where the disk is full already, that space is
//! taken from a file that podbayd filled when there was room.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};

use super::record::SPACE;

/// The file, below the state directory.
const STORE: &str = "reserve";

/// How much it holds: for this many commands that are started on a full disk.
const STORED: u64 = 64 * SPACE as u64;

/// The space that podbayd keeps back.
#[derive(Debug)]
pub struct DiskReserve {
    /// Whether some of it was given away, or couldn't be had.
    short: AtomicBool,
}

impl Default for DiskReserve {
    fn default() -> Self {
        Self { short: AtomicBool::new(true) }
    }
}

impl DiskReserve {
    /// Fills it as far as there is room: where there is none now there may be later.
    pub fn fill(&self, state: impl AsFd) {
        if self.short.load(Ordering::Relaxed) && fill(state).is_ok() {
            self.short.store(false, Ordering::Relaxed);
        }
    }

    /// Does something that needs a record's space, on a full disk with space that was kept back.
    ///
    /// # Errors
    /// When it fails even so.
    pub fn with_room<T>(&self, state: impl AsFd, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..4 {
            match attempt() {
                // Somebody else may be faster than we at using what was just given back.
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
        false => Err(io::Error::other("podbayd's reserve isn't a file")),
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

/// Gives the space for one more back to the disk.
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

/// Whether so little is left that output, which can be dropped, has to leave it to what can't.
pub fn is_short(file: impl AsFd) -> bool {
    const MOST: u64 = 1 << 20;
    // Where nothing is known of the file system, writing itself tells.
    let Ok(disk) = rustix::fs::fstatvfs(file) else { return false };
    let wanted = (disk.f_blocks.saturating_mul(disk.f_frsize) / 8).min(MOST);
    disk.f_bavail.saturating_mul(disk.f_frsize) < wanted
}
