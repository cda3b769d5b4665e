//! podbayd's program in the home: the one that this build carries, and nothing else.
//!
//! Sandboxes run it from this file, not from a sealed copy in memory as pods do: a copy would cost every start the time and
//! memory of the whole program, and commands can't change the file anyway. In namespaces they don't see it, and without
//! namespaces Landlock doesn't let them open it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::trusted_dir;

/// podbayd's file, held open: the file that runs is the one that was checked.
pub(crate) struct PodbaydProgram {
    file: OwnedFd,
    path: PathBuf,
}

impl PodbaydProgram {
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
pub(crate) fn open_or_write(programs: BorrowedFd<'_>, dir: &Path) -> Result<PodbaydProgram> {
    let arch = std::env::consts::ARCH;
    let bytes = podbay_embed::daemon(arch).ok_or(Error::NoDaemon(arch))?;
    let digest = podbay_embed::digest(arch).ok_or(Error::NoDaemon(arch))?;
    let name = format!("podbayd-{}", &digest[..16]);
    let path = dir.join(&name);
    if let Some(file) = existing(programs, &name, bytes) {
        return Ok(PodbaydProgram { file, path });
    }
    let temporary = temporary(&name);
    write(programs, &temporary, bytes)
        .and_then(|()| Ok(rustix::fs::renameat(programs, &temporary, programs, &name)?))
        .map_err(Error::home(&path, "can't write podbayd"))?;
    let changed = || io::Error::new(io::ErrorKind::InvalidData, "another process replaced it");
    let file = existing(programs, &name, bytes).ok_or_else(changed);
    Ok(PodbaydProgram { file: file.map_err(Error::home(&path, "can't use podbayd"))?, path })
}

fn existing(programs: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Option<OwnedFd> {
    let file = open_own(programs, name)?;
    holds(programs, name, &file, bytes).then(|| file.into())
}

/// Opens a file in the directory of programs, if only this user can have written it.
fn open_own(programs: BorrowedFd<'_>, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(programs, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    trusted_dir::is_own_file(&stat).then(|| file.into())
}

fn write(programs: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    // Root's sandboxes have user ids of their own, and run it again when one of podbayd's processes is killed.
    let mut file = create(programs, name, Mode::from_raw_mode(0o755))?;
    file.write_all(bytes)?;
    // Once it was compared it isn't read again, so it has to survive a power failure whole.
    file.sync_all()
}

fn create(programs: BorrowedFd<'_>, name: &str, mode: Mode) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(programs, name, flags, mode)?);
    // Whatever the umask.
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}

/// Whether an open file holds exactly these bytes. It compares byte for byte, which is faster than any digest, and notes that beside
/// the file: reading three megabytes would take a third of the time in which a sandbox starts. Whoever could forge the note could as
/// well change this user's own programs.
fn holds(programs: BorrowedFd<'_>, name: &str, file: &File, bytes: &[u8]) -> bool {
    let look = || -> io::Result<bool> {
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() != bytes.len() as u64 {
            return Ok(false);
        }
        // The change time is the kernel's: whoever changes a file can't set it back.
        let seen = format!("{} {} {} {}\n", meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec());
        let note = format!("{name}.compared");
        if read_note(programs, &note).is_some_and(|noted| noted == seen) {
            return Ok(true);
        }
        let same = same(file, bytes)?;
        // File times tick in milliseconds: a file that changed just now could change again within the same tick.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if same && now.saturating_sub(meta.ctime().unsigned_abs()) > 1 {
            // Without a note it is compared again.
            let _ = write_note(programs, &note, &seen);
        }
        Ok(same)
    };
    look().unwrap_or(false)
}

fn read_note(programs: BorrowedFd<'_>, name: &str) -> Option<String> {
    let mut noted = String::new();
    open_own(programs, name)?.take(LONGEST_NOTE).read_to_string(&mut noted).ok()?;
    Some(noted)
}

fn write_note(programs: BorrowedFd<'_>, name: &str, note: &str) -> io::Result<()> {
    let temporary = temporary(name);
    create(programs, &temporary, Mode::from_raw_mode(0o600))?.write_all(note.as_bytes())?;
    Ok(rustix::fs::renameat(programs, &temporary, programs, name)?)
}

/// A name for a file that gets its own when it is complete.
fn temporary(name: &str) -> String {
    format!("{name}.{:08x}", rand::random::<u32>())
}

/// More than four numbers take.
const LONGEST_NOTE: u64 = 128;

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
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    /// podbayd was compared by its length only, so another program of the same length would have run.
    #[test]
    fn a_file_of_the_same_length_is_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("podbayd");
        let programs = File::open(dir.path()).unwrap();
        let holds = |text: &str| {
            fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            let holds = || holds(programs.as_fd(), "podbayd", &file, b"12345");
            (holds(), holds())
        };
        assert_eq!(holds("12345"), (true, true));
        assert_eq!(holds("12346"), (false, false));
        assert_eq!(holds("123456"), (false, false));
        assert_eq!(holds(""), (false, false));
        assert!(!super::holds(programs.as_fd(), "podbayd", &programs, b""));
    }

    #[test]
    fn a_file_is_compared_once_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let programs = File::open(dir.path()).unwrap();
        let (path, note) = (dir.path().join("podbayd"), dir.path().join("podbayd.compared"));
        let holds = || existing(programs.as_fd(), "podbayd", b"12345").is_some();
        fs::write(&path, "12345").unwrap();
        assert!(holds() && !note.exists(), "a file that has just changed isn't trusted unread");
        std::thread::sleep(std::time::Duration::from_millis(2100));
        assert!(holds() && note.exists());
        let noted = fs::read_to_string(&note).unwrap();
        assert!(holds());

        // Other contents with the same times: the change time tells.
        let times = fs::metadata(&path).unwrap();
        fs::write(&path, "54321").unwrap();
        let set = fs::FileTimes::new().set_modified(times.modified().unwrap());
        File::options().write(true).open(&path).unwrap().set_times(set).unwrap();
        assert!(!holds());

        // A note from somebody else, or a link, counts for nothing.
        let meta = fs::metadata(&path).unwrap();
        let forged = format!("{} {} {} {}\n", meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec());
        assert_ne!(forged, noted);
        fs::write(&note, &forged).unwrap();
        fs::set_permissions(&note, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!holds());
        fs::remove_file(&note).unwrap();
        fs::write(dir.path().join("elsewhere"), &forged).unwrap();
        std::os::unix::fs::symlink("elsewhere", &note).unwrap();
        assert!(!holds());
    }
}
