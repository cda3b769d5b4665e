//! How long commands that have ended are kept.
//!
//! A command's directory keeps its id from being run a second time, so it must outlast every retry; it costs a few inodes,
//! so it can't stay forever.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use podbay_proto::exec::ExecId;
use rustix::fs::OFlags;

use super::directory::Directory;
use super::record::RECORD;

/// This many are kept, however old they are.
const KEEP: usize = 4_096;

/// No client retries a request after this long.
const RETRY_WINDOW: Duration = Duration::from_secs(600);

/// The most that are ever kept: a sandbox that runs commands this fast doesn't retry one after ten minutes.
const MOST: usize = 65_536;

/// The most that are kept when the disk is full: without room no new command could be recorded at all.
const WHEN_FULL: usize = 512;

/// How many commands are started between two clean-ups.
const EVERY: u32 = 512;

/// How many commands to keep at most, if it is time to [remove](forget) old ones: every so many calls, and when the disk is
/// full.
pub fn is_due(directory: &Directory) -> Option<usize> {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    if calls.is_multiple_of(EVERY / 16) && super::disk_reserve::is_short(directory.state()) {
        return Some(WHEN_FULL);
    }
    calls.is_multiple_of(EVERY).then_some(MOST)
}

/// Removes old commands, except running ones.
pub fn forget(directory: &Directory, running: &BTreeSet<ExecId>, most: usize) {
    forget_at(directory, running, SystemTime::now(), KEEP, most);
}

fn forget_at(directory: &Directory, running: &BTreeSet<ExecId>, now: SystemTime, keep: usize, most: usize) {
    let ids = directory.ids().unwrap_or_default();
    let mut ended: Vec<(SystemTime, ExecId)> = ids
        .into_iter()
        .filter(|id| !running.contains(id))
        .filter_map(|id| {
            let written = directory.file(&id, RECORD, OFlags::RDONLY).and_then(|file| file.metadata()?.modified());
            Some((written.ok()?, id))
        })
        .collect();
    ended.sort();
    let count = ended.len();
    for (at, (time, id)) in ended.into_iter().enumerate() {
        let newer = count - at - 1;
        let is_old = now.duration_since(time).is_ok_and(|age| age > RETRY_WINDOW);
        if newer >= most || (newer >= keep && is_old) {
            // What can't be removed now is tried again next time.
            let _ = directory.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec_store::directory::create;

    #[test]
    fn old_ones_go_but_not_while_they_may_be_asked_for_again() {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(state.path()).unwrap();
        for name in ["a", "b", "c", "running"] {
            let dir = directory.make(&ExecId::new(name).unwrap()).unwrap().unwrap();
            create(&dir, RECORD).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let running = BTreeSet::from([ExecId::new("running").unwrap()]);
        let left = || {
            let mut names: Vec<_> = directory.ids().unwrap().iter().map(ToString::to_string).collect();
            names.sort();
            names
        };
        forget_at(&directory, &running, SystemTime::now(), 1, 10);
        assert_eq!(left().len(), 4, "all are young");
        forget_at(&directory, &running, SystemTime::now(), 1, 2);
        assert_eq!(left(), ["b", "c", "running"], "too many");
        forget_at(&directory, &running, SystemTime::now() + RETRY_WINDOW * 2, 0, 10);
        assert_eq!(left(), ["running"]);
    }
}
