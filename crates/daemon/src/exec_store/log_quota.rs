//! The quota of all logs together: 256 MiB. Logs of commands that have ended are emptied, oldest first.

use std::collections::BTreeSet;
use std::io;
use std::time::SystemTime;

use podbay_proto::exec::ExecId;
use rustix::fs::OFlags;

use super::directory::Directory;
use super::log::OUTPUT;
use super::record::{self, RECORD};

/// How much all logs may take together.
pub const ALL_LOGS: u64 = 256 << 20;

struct Kept<'a> {
    id: &'a ExecId,
    bytes: u64,
    ended: Option<SystemTime>,
}

/// Makes room among all logs. True if they still exceed their quota.
pub fn exceeds_quota(directory: &Directory, running: &BTreeSet<ExecId>) -> bool {
    // What can't be read can't be counted; each log's own bounds hold in any case.
    make_room(directory, running, ALL_LOGS).unwrap_or(false)
}

fn make_room(directory: &Directory, running: &BTreeSet<ExecId>, most: u64) -> io::Result<bool> {
    let ids = directory.ids()?;
    // A command's directory may be removed meanwhile.
    let mut logs: Vec<Kept> = ids.iter().filter_map(|id| measure(directory, id, running.contains(id)).ok()).collect();
    let mut total: u64 = logs.iter().map(|kept| kept.bytes).sum();
    logs.sort_by_key(|kept| kept.ended);
    for kept in logs.iter().filter(|kept| kept.ended.is_some() && kept.bytes > 0) {
        if total <= most {
            break;
        }
        empty(directory, kept.id)?;
        total -= kept.bytes;
    }
    Ok(total > most)
}

fn measure<'a>(directory: &Directory, id: &'a ExecId, running: bool) -> io::Result<Kept<'a>> {
    use std::os::unix::fs::MetadataExt;
    let output = directory.file(id, OUTPUT, OFlags::RDONLY)?.metadata()?;
    let record = directory.file(id, RECORD, OFlags::RDONLY)?.metadata()?;
    // Both files are sparse. The record's own space isn't part of the log.
    let bytes = (output.blocks() + record.blocks()) * 512;
    Ok(Kept {
        id,
        bytes: bytes.saturating_sub(record::SPACE as u64),
        ended: if running { None } else { Some(record.modified()?) },
    })
}

/// Empties a log. Readers get its bytes as lost.
fn empty(directory: &Directory, id: &ExecId) -> io::Result<()> {
    directory.file(id, OUTPUT, OFlags::WRONLY)?.set_len(0)?;
    directory.file(id, RECORD, OFlags::WRONLY)?.set_len(record::SPACE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec_store::directory::create;
    use std::io::Write;

    #[test]
    fn ended_logs_go_first_and_running_ones_stay() {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(state.path()).unwrap();
        let ids = ["old", "new", "running"].map(|name| ExecId::new(name).unwrap());
        const ONE: u64 = 1 << 20;
        for id in &ids {
            let dir = directory.make(id).unwrap().unwrap();
            create(&dir, OUTPUT).unwrap().write_all(&[b'x'; ONE as usize]).unwrap();
            create(&dir, RECORD).unwrap().write_all(&[b' '; record::SPACE]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let running = BTreeSet::from([ids[2].clone()]);
        let size = |at: usize| directory.file(&ids[at], OUTPUT, OFlags::RDONLY).unwrap().metadata().unwrap().len();
        assert!(!make_room(&directory, &running, 3 * ONE).unwrap());
        assert_eq!((size(0), size(1), size(2)), (ONE, ONE, ONE));
        assert!(!make_room(&directory, &running, 3 * ONE - 1).unwrap());
        assert_eq!((size(0), size(1), size(2)), (0, ONE, ONE));
        assert!(make_room(&directory, &running, ONE / 2).unwrap(), "a running command's log is more than the budget");
        assert_eq!((size(0), size(1), size(2)), (0, 0, ONE));
    }
}
