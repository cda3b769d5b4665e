//! podbayd's program in the home: the one that this build carries, and nothing else.
//!
//! Sandboxes run it from this file, not from a sealed copy in memory as pods do: a copy would cost every start the time and
//! memory of the whole program, and commands can't change the file anyway. In namespaces they don't see it, and without
//! namespaces Landlock doesn't let them open it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::trusted_dir;

/// podbayd's file, held open: the file that runs is the one that was checked.
pub(crate) struct Program {
    file: OwnedFd,
    path: PathBuf,
}

impl Program {
    /// A path that runs it while this value lives.
    pub(crate) fn to_run(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Its path in the home, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens podbayd in the directory of programs, and writes it first where this build's isn't there.
pub(crate) fn open_or_write(programs: BorrowedFd<'_>, dir: &Path) -> Result<Program> {
    let arch = std::env::consts::ARCH;
    let bytes = podbay_embed::daemon(arch).ok_or(Error::NoDaemon(arch))?;
    let digest = podbay_embed::digest(arch).ok_or(Error::NoDaemon(arch))?;
    let name = format!("podbayd-{}", &digest[..16]);
    let path = dir.join(&name);
    if let Some(file) = existing(programs, &name, bytes) {
        return Ok(Program { file, path });
    }
    let temporary = format!("{name}.{:08x}", rand::random::<u32>());
    write(programs, &temporary, bytes)
        .and_then(|()| Ok(rustix::fs::renameat(programs, &temporary, programs, &name)?))
        .map_err(Error::home(&path, "can't write podbayd"))?;
    let changed = || io::Error::new(io::ErrorKind::InvalidData, "another process replaced it");
    let file = existing(programs, &name, bytes).ok_or_else(changed);
    Ok(Program { file: file.map_err(Error::home(&path, "can't use podbayd"))?, path })
}

fn existing(programs: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(programs, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    (trusted_dir::is_own_file(&stat) && holds(&file, bytes)).then_some(file)
}

fn write(programs: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Root's sandboxes have user ids of their own, and run it again when one of podbayd's processes is killed.
    let mode = Mode::from_raw_mode(0o755);
    let mut file = File::from(rustix::fs::openat(programs, name, flags, mode)?);
    // Whatever the umask.
    rustix::fs::fchmod(&file, mode)?;
    file.write_all(bytes)
}

/// A file as it was when it was read. The change time is the kernel's: whoever changes a file can't set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// Whether an open file holds exactly these bytes. It compares byte for byte, which is faster than any digest, and this
/// process reads an unchanged file only once.
fn holds(file: impl AsFd, bytes: &[u8]) -> bool {
    static KNOWN: Mutex<Option<Seen>> = Mutex::new(None);
    let look = || -> io::Result<bool> {
        let file = File::from(file.as_fd().try_clone_to_owned()?);
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let seen = Seen { device: meta.dev(), inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) };
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if *known() == Some(seen) {
            return Ok(true);
        }
        let same = same(&file, bytes)?;
        // File times tick in milliseconds: a file that changed just now could change again within the same tick.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if same && now.saturating_sub(meta.ctime().unsigned_abs()) > 1 {
            *known() = Some(seen);
        }
        Ok(same)
    };
    look().unwrap_or(false)
}

fn same(file: &File, bytes: &[u8]) -> io::Result<bool> {
    let mut piece = vec![0; 256 << 10];
    let mut offset = 0;
    loop {
        match file.read_at(&mut piece, offset as u64)? {
            0 => return Ok(offset == bytes.len()),
            count => match bytes.get(offset..offset + count) {
                Some(expected) if *expected == piece[..count] => offset += count,
                _ => return Ok(false),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// podbayd was compared by its length only, so another program of the same length would have run.
    #[test]
    fn a_file_of_the_same_length_is_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("podbayd");
        let holds = |text: &str| {
            fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            (holds(&file, b"12345"), holds(&file, b"12345"))
        };
        assert_eq!(holds("12345"), (true, true));
        assert_eq!(holds("12346"), (false, false));
        assert_eq!(holds("123456"), (false, false));
        assert_eq!(holds(""), (false, false));
        assert!(!super::holds(File::open(dir.path()).unwrap(), b""));
    }
}
