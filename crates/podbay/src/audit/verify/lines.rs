//! The lines of all files of a log, in the order of their entries.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::super::chain::{Head, LONGEST, is_torn_from_a_log};
use super::{Torn, VerifyError};

/// How long a writer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A line, without its newline.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Which of the files.
    pub(super) file: usize,
    /// Its number in the file, from 1 on.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether a newline ends it.
    pub(super) terminated: bool,
}

impl Line {
    pub(super) fn torn(&self, files: &Files) -> Torn {
        Torn { path: files.path(self.file), line: self.number, bytes: self.bytes.len() as u64 }
    }

    /// Where it stands, without what it says.
    pub(super) fn located(mut self) -> Self {
        self.bytes = Vec::new();
        self
    }

    fn place(&self) -> (usize, u64) {
        (self.file, self.number)
    }

    pub(super) fn is_after(&self, other: &Self) -> bool {
        self.place() > other.place()
    }
}

/// The files of a log.
#[derive(Debug)]
pub(super) struct Files(Vec<Opened>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: RefCell<File>,
    /// What is appended after this isn't looked at.
    length: u64,
    identity: (u64, u64),
}

impl Files {
    pub(super) fn open(paths: &[impl AsRef<Path>]) -> Result<Self, VerifyError> {
        let mut opened: Vec<Opened> = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let one = Opened::open(path).map_err(|error| VerifyError::File { path: path.to_owned(), error })?;
            if opened.iter().all(|other| other.identity != one.identity) {
                opened.push(one);
            }
        }
        let mut keyed = Vec::with_capacity(opened.len());
        for one in opened {
            let seq = one.first_seq()?;
            if seq.is_none() && !one.may_be_torn()? {
                let error = io::Error::new(
                    io::ErrorKind::InvalidData,
                    "no entry of an audit log is in it; decompress it, or leave it out if it isn't part of the log",
                );
                return Err(VerifyError::File { path: one.path, error });
            }
            keyed.push((seq.unwrap_or(u64::MAX), one));
        }
        keyed.sort_by_key(|(seq, _)| *seq);
        Ok(Self(keyed.into_iter().map(|(_, one)| one).collect()))
    }

    pub(super) fn path(&self, file: usize) -> PathBuf {
        self.0[file].path.clone()
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|one| one.path.clone()).collect()
    }

    /// Gives all lines to `take`, until it has an answer.
    pub(super) fn each<T>(&self, mut take: impl FnMut(Line) -> Option<T>) -> Result<Option<T>, VerifyError> {
        for (index, file) in self.0.iter().enumerate() {
            let found = file.each(|line| take(Line { file: index, ..line }))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

impl Opened {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this isn't a regular file"));
        }
        // A writer may be at work: under the lock, its line is there or isn't. One that was stopped holds the lock for ever; then
        // its line may look incomplete.
        let until = Instant::now() + PATIENCE;
        let is_locked = loop {
            match file.try_lock_shared() {
                Ok(()) => break true,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() > until => break false,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let meta = file.metadata();
        if is_locked {
            file.unlock()?;
        }
        let meta = meta?;
        let identity = (meta.dev(), meta.ino());
        Ok(Self { path: path.to_owned(), file: RefCell::new(file), length: meta.len(), identity })
    }

    fn each<T>(&self, mut take: impl FnMut(Line) -> Option<T>) -> Result<Option<T>, VerifyError> {
        let failed = |error| VerifyError::File { path: self.path.clone(), error };
        let mut file = self.file.borrow_mut();
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 16, (&mut *file).take(self.length));
        for number in 1.. {
            let mut bytes = Vec::new();
            // What is longer than any entry comes in pieces, none of which is one.
            let read = reader.by_ref().take(LONGEST as u64).read_until(b'\n', &mut bytes).map_err(failed)?;
            if read == 0 {
                break;
            }
            let terminated = bytes.pop_if(|byte| *byte == b'\n').is_some();
            let found = take(Line { file: 0, number, bytes, terminated });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Whether it is empty, or has nothing but the beginning of an entry.
    fn may_be_torn(&self) -> Result<bool, VerifyError> {
        Ok(self.each(|line| (!is_torn_from_a_log(&line.bytes)).then_some(()))?.is_none())
    }

    fn first_seq(&self) -> Result<Option<u64>, VerifyError> {
        self.each(|line| Head::parse(&line.bytes).map(|head| head.seq))
    }
}
