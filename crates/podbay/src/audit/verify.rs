//! Checking a log: which is the first entry that was changed, removed or inserted?
//!
//! The hashes have no key. Whoever can write the file can compute them anew from any entry to the end, or cut the end off; that is
//! found only by comparing with a hash that was kept elsewhere.

mod fault;
mod lines;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use podbay_proto::RawPath;
use serde::{Deserialize, Deserializer, Serialize};

use super::chain::{GENESIS, Head, LOST, Link, RECOVERED, Recovered, is_hash, is_torn, is_torn_from_a_log};
use super::digest::Digest;
use fault::{Cause, Suspect};
pub use fault::{Fault, FaultKind};
use lines::{Files, Line};

/// How many operations without an end, and how many gaps, are listed.
const LISTED: usize = 100;

/// Why a log can't be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A file can't be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The expected hash isn't one.
    #[error("{0:?} isn't a hash: 64 digits 0-9a-f, as 'podbay audit verify' prints them")]
    NotAHash(String),
}

/// What was found in a log.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Whether every entry is as it was written, and the expected hash was found if there was one.
    pub intact: bool,
    /// The files, in the order of their entries.
    pub files: Vec<PathBuf>,
    /// How many entries are in order, up to the first fault.
    pub entries: u64,
    /// The first entry's number. Above 1, older files weren't given.
    pub first: Option<u64>,
    /// The last entry's number.
    pub last: Option<u64>,
    /// The last entry's hash. Kept elsewhere, it shows later whether entries were cut off the end.
    pub last_hash: Option<String>,
    /// The number of the entry with the expected hash.
    pub expected: Option<u64>,
    /// Lines that a writer left incomplete if it was interrupted. A line that somebody else wrote to look like that is here too.
    pub torn: Vec<Torn>,
    /// How many entries writers couldn't write, by their own account.
    pub lost_count: u64,
    /// The first hundred of these gaps.
    pub lost: Vec<Lost>,
    /// How many operations have begun and not ended: their client was killed, or they are still under way.
    pub unfinished_count: u64,
    /// The first hundred of these.
    pub unfinished: Vec<Unfinished>,
    /// The first thing that is wrong.
    pub fault: Option<Fault>,
}

/// A line that a writer left incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1 on.
    pub line: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Entries that a writer couldn't write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The number of the entry that says so.
    pub seq: u64,
    /// When it could write again: milliseconds since 1970.
    pub time_ms: u64,
    /// When the first of them should have been written.
    pub since_ms: u64,
    /// The process that should have written them.
    pub pid: u32,
    /// How many they are.
    pub count: u64,
    /// Why the first of them couldn't be written.
    pub reason: String,
}

/// An operation that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The number of the entry.
    pub seq: u64,
    /// When it began: milliseconds since 1970.
    pub time_ms: u64,
    /// The process that performed it.
    pub pid: u32,
    /// The operation's id.
    pub operation: String,
    /// The sandbox.
    #[serde(deserialize_with = "beginning")]
    pub sandbox: String,
    /// The operation.
    pub op: String,
    /// What it was about.
    pub target: String,
}

/// As much of a text as an entry has.
fn beginning<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Recorded {
        Whole(RawPath),
        Cut { head: RawPath },
    }
    Ok(match Recorded::deserialize(text)? {
        Recorded::Whole(text) => text.to_string(),
        Recorded::Cut { head } => format!("{head}…"),
    })
}

/// Checks a log of one or more files, which may be given in any order.
///
/// With `expect`, an entry with that hash has to be in the log.
///
/// # Errors
/// When a file can't be read. What is wrong with the log is in the report.
pub fn verify(paths: &[impl AsRef<Path>], expect: Option<&str>) -> Result<VerifyReport, VerifyError> {
    if let Some(expect) = expect.filter(|expect| !is_hash(expect)) {
        return Err(VerifyError::NotAHash(expect.to_owned()));
    }
    let files = Files::open(paths)?;
    let mut walk = Walk { expect, ..Walk::default() };
    let suspect = files.each(|line| walk.take(line, &files))?.or_else(|| walk.finish(&files));
    let mut report = walk.report;
    report.files = files.paths();
    report.fault = suspect.map(|suspect| suspect.explain(&files)).transpose()?;
    if report.fault.is_none() && expect.is_some() && report.expected.is_none() {
        report.fault = Some(Fault::not_found(report.files.last().cloned().unwrap_or_default(), report.entries));
    }
    let mut unfinished: Vec<_> = walk.open.into_values().collect();
    unfinished.sort_unstable_by_key(|begun| begun.seq);
    report.unfinished_count = unfinished.len() as u64;
    unfinished.truncate(LISTED);
    report.unfinished = unfinished;
    report.intact = report.fault.is_none();
    Ok(report)
}

/// Goes from entry to entry.
#[derive(Default)]
struct Walk<'a> {
    expect: Option<&'a str>,
    report: VerifyReport,
    /// The last good entry, and where it stands.
    last: Option<(Link, Line)>,
    /// A line that isn't an entry. The next one tells whether a writer left it so.
    pending: Option<Line>,
    open: HashMap<String, Unfinished>,
}

impl Walk<'_> {
    fn link(&self) -> Option<Link> {
        self.last.as_ref().map(|(link, _)| link.clone())
    }

    fn suspect(&self, cause: Cause, line: Line) -> Option<Suspect> {
        let before = self.last.as_ref().map(|(_, line)| line.clone());
        Some(Suspect { cause, line, before, link: self.link() })
    }

    fn take(&mut self, line: Line, files: &Files) -> Option<Suspect> {
        let Some(head) = Head::parse(&line.bytes) else {
            if let Some(pending) = self.pending.take() {
                return self.suspect(Cause::NoEntry, pending);
            }
            self.pending = Some(line);
            return None;
        };
        if let Some(pending) = self.pending.take() {
            match self.was_recovered(&pending, &head, &line) {
                true => self.report.torn.push(pending.torn(files)),
                false => return self.suspect(Cause::NoEntry, pending),
            }
        }
        if !head.fits(&line.bytes) {
            return self.suspect(Cause::WrongHash, line);
        }
        match &self.last {
            Some((link, _)) if !head.follows(link) => return self.suspect(Cause::WrongLink(head), line),
            None if head.file.is_none()
                || (head.seq == 1) != (head.prev == GENESIS)
                || (head.file == Some(1) && head.seq != 1) =>
            {
                return self.suspect(Cause::NoBeginning(head), line);
            }
            _ => {}
        }
        self.count(&head, &line);
        self.last = Some((head.link(), line.located()));
        None
    }

    fn count(&mut self, head: &Head, line: &Line) {
        let report = &mut self.report;
        report.entries += 1;
        report.first.get_or_insert(head.seq);
        report.last = Some(head.seq);
        report.last_hash = Some(head.hash.clone());
        if self.expect == Some(&head.hash) {
            report.expected = Some(head.seq);
        }
        #[derive(Deserialize)]
        struct Ended {
            operation: String,
        }
        match &*head.event {
            "begun" => {
                if let Ok(begun) = serde_json::from_slice::<Unfinished>(&line.bytes) {
                    self.open.insert(begun.operation.clone(), begun);
                }
            }
            LOST => {
                if let Ok(lost) = serde_json::from_slice::<Lost>(&line.bytes) {
                    report.lost_count = report.lost_count.saturating_add(lost.count);
                    report.lost.extend((report.lost.len() < LISTED).then_some(lost));
                }
            }
            "ended" => {
                if let Ok(ended) = serde_json::from_slice::<Ended>(&line.bytes) {
                    self.open.remove(&ended.operation);
                }
            }
            _ => {}
        }
    }

    /// Whether a line was found incomplete by the writer of the next one, and is what a killed writer leaves.
    fn was_recovered(&self, pending: &Line, head: &Head, line: &Line) -> bool {
        let link = self.link().unwrap_or_else(|| before(head));
        let Ok(note) = serde_json::from_slice::<Recovered>(&line.bytes) else { return false };
        let digest = Digest { bytes: note.bytes, sha256: note.sha256 };
        head.event == RECOVERED && digest == Digest::of(&pending.bytes) && is_torn(&pending.bytes, &link)
    }

    /// What is left when all lines have been taken.
    fn finish(&mut self, files: &Files) -> Option<Suspect> {
        let pending = self.pending.take()?;
        let link = self.link().unwrap_or_else(Link::genesis);
        // A file that begins with an incomplete line may follow one that wasn't given.
        let is_torn = match self.last {
            Some(_) => is_torn(&pending.bytes, &link),
            None => is_torn_from_a_log(&pending.bytes),
        };
        if !pending.terminated && is_torn {
            self.report.torn.push(pending.torn(files));
            return None;
        }
        self.suspect(Cause::NoEntry, pending)
    }
}

/// What comes before an entry, by its own account.
fn before(head: &Head) -> Link {
    Link { seq: head.seq.saturating_sub(1), hash: head.prev.clone() }
}
