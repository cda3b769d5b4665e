//! All logs together: 256 MiB. The logs of commands that have ended make room first, oldest first.
//!
//! Each shim looks at this by itself when its own log has grown by a segment: shims outlive podbayd, so nobody else could.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::{control, log};

/// The most that all logs take.
pub const ALL_LOGS: u64 = 256 << 20;

struct Kept {
    dir: OwnedFd,
    bytes: u64,
    ended: Option<SystemTime>,
}

/// Makes room among all logs, and tells whether they are too large even so. `dir` is one command's directory.
pub fn is_used_up(dir: BorrowedFd<'_>) -> bool {
    // What can't be looked at can't be counted; the log's own bounds hold in any case.
    open_dir(dir, "..").and_then(|root| make_room(&root, ALL_LOGS)).unwrap_or(false)
}

fn make_room(root: &OwnedFd, most: u64) -> io::Result<bool> {
    let mut logs = Vec::new();
    for entry in Dir::read_from(root)? {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(b".") {
            continue;
        }
        // A command's directory may go away while this looks.
        if let Ok(kept) = open_dir(root, entry.file_name()).and_then(measure) {
            logs.push(kept);
        }
    }
    let mut total: u64 = logs.iter().map(|kept| kept.bytes).sum();
    logs.sort_by_key(|kept| kept.ended);
    for kept in logs.iter().filter(|kept| kept.ended.is_some() && kept.bytes > 0) {
        if total <= most {
            break;
        }
        remove_log(&kept.dir)?;
        total -= kept.bytes;
    }
    Ok(total > most)
}

fn open_dir(at: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

fn is_log_file(name: &[u8]) -> bool {
    name.starts_with(log::HEAD.as_bytes()) || name.starts_with(b"index.")
}

fn measure(dir: OwnedFd) -> io::Result<Kept> {
    let mut bytes = 0;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if is_log_file(entry.file_name().to_bytes()) {
            bytes += rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64;
        }
    }
    let ended = rustix::fs::statat(&dir, control::ENDED, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| {
        SystemTime::UNIX_EPOCH + std::time::Duration::new(stat.st_mtime.max(0) as u64, stat.st_mtime_nsec as u32)
    });
    Ok(Kept { dir, bytes, ended })
}

fn remove_log(dir: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if is_log_file(entry.file_name().to_bytes()) {
            match rustix::fs::unlinkat(dir, entry.file_name(), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn ended_logs_go_first_and_running_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        for (name, ended) in [("old", true), ("new", true), ("running", false)] {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("output"), [0; 100]).unwrap();
            if ended {
                fs::write(dir.join(control::ENDED), "{}").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        let fd: OwnedFd = fs::File::open(root.path()).unwrap().into();
        let exists = |name: &str| root.path().join(name).join("output").exists();
        assert!(!make_room(&fd, 300).unwrap());
        assert!(exists("old"));
        assert!(!make_room(&fd, 250).unwrap());
        assert!(!exists("old") && exists("new") && exists("running"));
        assert!(make_room(&fd, 50).unwrap(), "a running command's log is more than the budget");
        assert!(!exists("new") && exists("running"));
    }
}
