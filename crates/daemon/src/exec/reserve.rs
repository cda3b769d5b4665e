//! Room on the disk for what must be written at a command's end, however full the disk is by then.
//!
//! Each shim lays in the space of its command's final file before the command starts. Where the disk is full already, it
//! takes that space from a file that podbayd filled when there was room.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The space of one command's final file: its summary, its log's path and numbers.
const ONE: usize = 8 << 10;

/// podbayd's file, below its state directory.
const STORE: &str = "reserve";

/// The same, as a shim in its command's directory sees it.
const STORE_OF_SHIM: &str = "../../reserve";

/// How much it holds: for this many commands that are started on a full disk.
const STORED: u64 = 64 * ONE as u64;

/// Fills the store as far as there is room. `state` is the state directory.
///
/// # Errors
/// When there is none; then commands that are started on a full disk can't be told of later.
pub fn fill(state: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).open(state.join(STORE))?;
    let mut length = file.metadata()?.len();
    while length < STORED {
        (&file).write_all(&[0; ONE])?;
        length += ONE as u64;
    }
    Ok(())
}

/// Lays in the space of a file in the current directory, which is a command's; until it is written it has this content, with
/// blanks behind it. Tells whether it could.
pub fn lay_in(name: &str, content: &[u8]) -> bool {
    let mut padded = content.to_vec();
    padded.resize(content.len().max(ONE), b' ');
    let attempt = || -> io::Result<()> { File::create(name)?.write_all(&padded) };
    match attempt() {
        // Somebody else may be faster than we at using what was just given back.
        Err(error) if is_full(&error) => (0..4).any(|_| release().is_ok() && attempt().is_ok()),
        done => done.is_ok(),
    }
}

/// Writes a file whose space was laid in, whole: what is longer than the space may fail on a full disk.
///
/// # Errors
/// When it can't be written.
pub fn write(name: &str, bytes: &[u8]) -> io::Result<()> {
    // Not truncated first: that would give the space away.
    let file = File::options().write(true).create(true).truncate(false).open(name)?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Gives the space for one more back to the disk.
fn release() -> io::Result<()> {
    let store = File::options().write(true).open(STORE_OF_SHIM)?;
    match store.metadata()?.len().checked_sub(2 * ONE as u64) {
        Some(left) => store.set_len(left),
        None => Err(io::ErrorKind::StorageFull.into()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether so little is left that output, which can be dropped, has to leave it to what can't.
pub fn is_short(dir: impl std::os::fd::AsFd) -> bool {
    const MOST: u64 = 1 << 20;
    // Where nothing is known of the file system, writing itself tells.
    let Ok(disk) = rustix::fs::fstatvfs(dir) else { return false };
    let wanted = (disk.f_blocks.saturating_mul(disk.f_frsize) / 8).min(MOST);
    disk.f_bavail.saturating_mul(disk.f_frsize) < wanted
}
