//! podbayd's own files in its state directory. A command may have replaced one by a pipe or a lock that would block podbayd,
//! by a link, or by a file without end. So nothing here blocks for long, follows links, or reads more than a bound.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};

fn open(path: &Path, options: &mut std::fs::OpenOptions) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.mode(0o600).custom_flags(careful.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} isn't a regular file", path.display()))),
    }
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// When it isn't there, isn't a regular file, or is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, File::options().read(true))?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Replaces a file, so that it is there whole or not at all.
///
/// # Errors
/// When it can't be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open(&new, File::options().write(true).create_new(true))?.write_all(bytes)?;
    std::fs::rename(&new, path)
}

/// Opens a file for writing and empties it.
///
/// # Errors
/// When something else is in its place.
pub fn emptied(path: &Path) -> io::Result<File> {
    open(path, File::options().write(true).create(true).truncate(true))
}

/// Locks a file, waiting for at most `patience`. False when somebody else holds the lock.
///
/// # Errors
/// When the file can't be opened, or the kernel can't lock it.
pub fn lock(path: &Path, patience: Duration) -> io::Result<(File, bool)> {
    let file = open(path, File::options().read(true).write(true).create(true).truncate(false))?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((file, true)),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() >= patience => return Ok((file, false)),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(read(&path, 4).is_err());
        for how in ["mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd", "mkdir"] {
            let _ = std::fs::remove_file(&path);
            let line = format!("{how} {}", path.display());
            assert!(std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success());
            assert!(read(&path, 5).is_err(), "{how}");
            assert!(lock(&path, Duration::ZERO).is_err(), "{how}");
            assert!(emptied(&path).is_err(), "{how}");
        }
    }

    /// Any process that can read a file can lock it, and podbayd once waited for such a lock forever.
    #[test]
    fn a_lock_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (held, taken) = lock(&path, Duration::ZERO).unwrap();
        assert!(taken);
        assert!(!lock(&path, Duration::from_millis(20)).unwrap().1);
        drop(held);
        assert!(lock(&path, Duration::ZERO).unwrap().1);
    }
}
