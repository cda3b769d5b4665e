//! The log file: several writers, one chain.
//!
//! Every append happens under an exclusive lock on the file, which is held by processes and threads alike. Under the lock a writer
//! looks whether the file is still the one that the path names (another may have rotated it), finds the last entry's hash,
//! and appends in one write. The last hash is remembered as long as the file's length says that nobody else has written.

mod file;
mod rotation;
mod tail;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::chain::{LOST, Link, LostNote, RECOVERED, Recovered};
use super::details::shown;
use super::digest::Digest;
use super::entry::AuditEntry;
use super::{Observer, now_ms};
use file::Locked;
pub use rotation::Rotation;
use tail::Tail;

/// How often an append begins anew because another writer has rotated the file meanwhile.
const ATTEMPTS: usize = 100;

/// How long an entry waits for other writers. They hold the lock for microseconds; one that was stopped holds it for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the next entries wait after one has waited in vain: a process may have one thread for all that it does.
const IMPATIENCE: Duration = Duration::from_millis(100);

/// An audit log: a file with one line of JSON for each entry, chained by hashes.
///
/// Any number of these may write to one file, in any number of threads and processes. Entries that can't be written are counted, and
/// the count is written with the next one that can.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    rotation: Rotation,
    pub(super) patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    last: Option<Last>,
    lost: Option<Lost>,
    /// Whether the last entry waited in vain for the lock.
    timed_out: bool,
}

/// Entries that couldn't be written.
#[derive(Debug)]
struct Lost {
    count: u64,
    since_ms: u64,
    /// Why the first of them couldn't.
    reason: String,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    /// A forked child has the parent's open file, and with it the parent's lock: it opens the file anew.
    pid: u32,
}

/// The last entry that this writer knows of.
#[derive(Debug, Clone)]
struct Last {
    link: Link,
    /// The number of its file in the sequence of rotated files.
    number: u64,
    /// The file that it is in, and that file's length behind it.
    device: u64,
    inode: u64,
    length: u64,
}

impl AuditLog {
    /// Opens a log to append to it; it is created if it doesn't exist.
    ///
    /// A symbolic link is refused, and so is everything that isn't a regular file of this user, or has a second name. Nobody else
    /// may read or write it (mode 0600).
    ///
    /// # Errors
    /// When it can't be opened, or isn't an audit log.
    pub fn open(path: impl AsRef<Path>, rotation: Rotation) -> io::Result<Self> {
        // The working directory may change while the log is in use, and so may a link on the way to it.
        let path = std::path::absolute(path)?;
        let path = match (path.parent(), path.file_name()) {
            (Some(directory), Some(name)) => std::fs::canonicalize(directory)?.join(name),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "this isn't the name of a file")),
        };
        let log = Self { path, rotation, patience: PATIENCE, state: Mutex::default() };
        log.locked(&mut State::default(), Instant::now() + PATIENCE)?;
        Ok(log)
    }

    /// Appends an entry, and before it how many are missing.
    fn append(&self, state: &mut State, entry: &AuditEntry) -> io::Result<()> {
        let until = Instant::now() + if state.timed_out { IMPATIENCE } else { self.patience };
        for _ in 0..ATTEMPTS {
            let (locked, tail) = self.locked(state, until)?;
            match self.append_locked(&locked, &tail, state.lost.as_ref(), entry)? {
                Appended::Done(last) => {
                    state.last = Some(last);
                    return Ok(());
                }
                Appended::Recovered(last) => state.last = Some(last),
                Appended::Lost(last) => (state.last, state.lost) = (Some(last), None),
                Appended::Rotated => state.open = None,
            }
        }
        Err(io::Error::other("other writers rotate the log faster than an entry can be appended"))
    }

    /// The open file, locked, and what is at its end.
    fn locked(&self, state: &mut State, until: Instant) -> io::Result<(Locked, Tail)> {
        for _ in 0..ATTEMPTS {
            let pid = std::process::id();
            let (file, is_new) = match &state.open {
                Some(open) if open.pid == pid => (open.file.clone(), false),
                _ => (Arc::new(file::open(&self.path)?), true),
            };
            let locked = Locked::acquire(file, until)?;
            let of_file = locked.metadata()?;
            match std::fs::symlink_metadata(&self.path) {
                Ok(of_path) if (of_path.dev(), of_path.ino()) == (of_file.dev(), of_file.ino()) => {
                    let tail = Tail::find(&locked, &of_file, &self.path, state.last.as_ref())?;
                    if is_new {
                        if tail.is_foreign() {
                            let reason =
                                "this file isn't an audit log with hashes; move it away, or choose another file";
                            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                        }
                        // Only now: what somebody has named by mistake stays as it is.
                        file::hide(&locked)?;
                        state.open = Some(Open { file: locked.file(), pid });
                    }
                    return Ok((locked, tail));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Rotated or removed since it was opened.
                _ => state.open = None,
            }
        }
        Err(io::Error::other("the log is replaced faster than it can be opened"))
    }

    fn append_locked(&self, file: &File, tail: &Tail, lost: Option<&Lost>, entry: &AuditEntry) -> io::Result<Appended> {
        let (link, number) = (tail.link(), tail.number());
        if !tail.unreadable.is_empty() {
            let Digest { bytes, sha256 } = Digest::of(tail.unreadable_line());
            let note = Recovered { time_ms: now_ms(), event: RECOVERED.to_owned(), bytes, sha256 };
            let (line, link) = link.seal(tail.has_no_entry().then_some(number), &note)?;
            return Ok(Appended::Recovered(tail.write(file, line, link)?));
        }
        // The first line of a file says so: then nobody can remove the first lines unnoticed.
        let first = tail.has_no_entry().then_some(number);
        let (line, link) = match lost {
            Some(Lost { count, since_ms, reason }) => {
                let (time_ms, pid) = (now_ms(), std::process::id());
                let (count, since_ms) = (*count, *since_ms);
                link.seal(first, &LostNote { time_ms, event: LOST, pid, count, since_ms, reason })?
            }
            None => link.seal(first, &entry.fields())?,
        };
        if tail.length > 0 && self.rotation.is_due(tail.length + line.len() as u64) {
            rotation::rotate(&self.path, number, self.rotation.keep)?;
            return Ok(Appended::Rotated);
        }
        let last = tail.write(file, line, link)?;
        Ok(if lost.is_some() { Appended::Lost(last) } else { Appended::Done(last) })
    }
}

enum Appended {
    /// The entry was written.
    Done(Last),
    /// An incomplete line was closed off first.
    Recovered(Last),
    /// It was told first how many entries are missing.
    Lost(Last),
    /// The file was full, and a new one is begun.
    Rotated,
}

impl Observer for AuditLog {
    fn observe(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let appended = self.append(&mut state, entry);
        state.timed_out = appended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        appended.map_err(|error| {
            let first = || Lost { count: 0, since_ms: now_ms(), reason: shown(error.to_string()) };
            state.lost.get_or_insert_with(first).count += 1;
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }
}
