//! How long commands that have ended are remembered.
//!
//! A command's directory is what keeps its id from being run a second time, so it must outlast every retry; it costs a few
//! inodes, so it can't stay for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use super::control;

/// This many are kept however old they are.
const KEEP: usize = 4_096;

/// Nobody sends a request again after this long.
const RETRY_WINDOW: Duration = Duration::from_secs(600);

/// More than this many are never kept: a sandbox that runs commands this fast doesn't wait ten minutes for one.
const MOST: usize = 65_536;

/// More than this many are not kept when the disk is full: without room no new one could be remembered at all.
const WHEN_FULL: usize = 512;

/// Looking is cheap when done seldom.
const EVERY: u32 = 512;

/// Forgets old commands, every so many calls, and when the disk is full.
pub(super) fn sweep(root: &Path) {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    let full = calls.is_multiple_of(EVERY / 16) && fs::File::open(root).is_ok_and(super::reserve::is_short);
    if full || calls.is_multiple_of(EVERY) {
        let most = if full { WHEN_FULL } else { MOST };
        let root = root.to_owned();
        tokio::task::spawn_blocking(move || forget(&root, SystemTime::now(), KEEP, most));
    }
}

fn forget(root: &Path, now: SystemTime, keep: usize, most: usize) {
    let mut ended: Vec<(SystemTime, PathBuf)> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.path();
            Some((fs::metadata(dir.join(control::ENDED)).ok()?.modified().ok()?, dir))
        })
        .collect();
    ended.sort();
    let count = ended.len();
    for (at, (time, dir)) in ended.into_iter().enumerate() {
        let newer = count - at - 1;
        let settled = now.duration_since(time).is_ok_and(|age| age > RETRY_WINDOW);
        // A shim that still looks after background processes holds the directory's lock.
        if (newer >= most || (newer >= keep && settled)) && !is_locked(&dir) {
            // What can't be removed now is tried again the next time.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

fn is_locked(dir: &Path) -> bool {
    fs::File::open(dir).is_ok_and(|file| {
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared)
            == Err(rustix::io::Errno::WOULDBLOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_ones_go_but_not_while_they_may_be_asked_for_again() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "running", "locked"] {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            if name != "running" {
                fs::write(dir.join(control::ENDED), "{}").unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let lock = fs::File::open(root.path().join("locked")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let left = || {
            let mut names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        forget(root.path(), SystemTime::now(), 1, 10);
        assert_eq!(left().len(), 5, "all are young");
        forget(root.path(), SystemTime::now(), 1, 3);
        assert_eq!(left(), ["b", "c", "locked", "running"], "too many");
        forget(root.path(), SystemTime::now() + RETRY_WINDOW * 2, 0, 10);
        assert_eq!(left(), ["locked", "running"]);
    }
}
