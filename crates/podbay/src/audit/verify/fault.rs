//! What is wrong with a log, and where it begins.

use std::path::PathBuf;

use serde::Serialize;

use super::super::chain::{Head, Link};
use super::VerifyError;
use super::lines::{Files, Line};

/// What was done to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// An entry isn't as it was written.
    Changed,
    /// Entries are missing.
    Removed,
    /// There is a line that no writer put there.
    Inserted,
    /// Entries have changed places.
    Reordered,
    /// The entry with the expected hash isn't there: the end was cut off, or everything from some entry on was rewritten.
    NotFound,
}

impl FaultKind {
    /// Its name, as in the report: `changed`, `removed`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Inserted => "inserted",
            Self::Reordered => "reordered",
            Self::NotFound => "not found",
        }
    }
}

/// The first thing that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What was done.
    pub kind: FaultKind,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1 on, at which it shows.
    pub line: u64,
    /// The number of the entry that was changed, is missing first, was inserted or is out of place; none for a line without one.
    pub seq: Option<u64>,
    /// What is wrong, in a sentence for people.
    pub message: String,
}

impl Fault {
    /// The expected hash isn't in the log.
    pub(super) fn not_found(path: PathBuf, entries: u64) -> Self {
        let message = format!(
            "none of the {entries} entries has the expected hash: the log's end was cut off, its entries were rewritten, or older \
             files are missing here"
        );
        Self { kind: FaultKind::NotFound, path, line: 0, seq: None, message }
    }
}

/// Why a line can't be the next entry.
#[derive(Debug)]
pub(super) enum Cause {
    /// It isn't an entry at all.
    NoEntry,
    /// Its hash isn't its own.
    WrongHash,
    /// It doesn't follow the entry before.
    WrongLink(Head),
    /// It is the first, but no file begins with it.
    NoBeginning(Head),
}

/// A line that can't be the next entry.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) cause: Cause,
    pub(super) line: Line,
    /// Where the entry before stands.
    pub(super) before: Option<Line>,
    /// The entry before.
    pub(super) link: Option<Link>,
}

impl Suspect {
    /// Finds out what was done, by looking at the rest of the log.
    pub(super) fn explain(self, files: &Files) -> Result<Fault, VerifyError> {
        let fault = |kind, line: &Line, seq, message| {
            Ok(Fault { kind, path: files.path(line.file), line: line.number, seq, message })
        };
        let next = self.link.as_ref().map_or(1, |link| link.seq.saturating_add(1));
        // The entry that belongs here may stand further down.
        let displaced = files.each(|line| {
            let head = Head::parse(&line.bytes).filter(|head| head.fits(&line.bytes))?;
            let fits_here = match &self.link {
                Some(link) => head.follows(link),
                None => head.file.is_some() && line.file == self.line.file,
            };
            (fits_here && line.is_after(&self.line)).then_some(head)
        })?;
        match (&self.cause, displaced) {
            (Cause::NoEntry | Cause::WrongHash, Some(_)) => {
                let message = format!("this line was inserted before entry {next}");
                fault(FaultKind::Inserted, &self.line, None, message)
            }
            (Cause::NoEntry, None) => {
                let message = format!("this line should be entry {next}, and isn't an entry");
                fault(FaultKind::Changed, &self.line, Some(next), message)
            }
            (Cause::WrongHash, None) => {
                let message = format!("entry {next} was changed: its content doesn't match its hash");
                let next = self.link.is_some().then_some(next);
                fault(FaultKind::Changed, &self.line, next.or_else(|| self.own_seq()), message)
            }
            (Cause::NoBeginning(head), _) if head.seq > 1 => {
                let last = head.seq - 1;
                let message =
                    format!("no file begins with entry {}: entry {last} and perhaps more were removed", head.seq);
                fault(FaultKind::Removed, &self.line, Some(last), message)
            }
            (Cause::NoBeginning(head), _) => {
                let message = format!("entry {} can't be the first of a log", head.seq);
                fault(FaultKind::Changed, &self.line, Some(head.seq), message)
            }
            (Cause::WrongLink(head), Some(_)) if head.seq > next && !self.is_repeated(head, files)? => {
                let message = format!("entry {} comes before entry {next}", head.seq);
                fault(FaultKind::Reordered, &self.line, Some(head.seq), message)
            }
            (Cause::WrongLink(head), None) if head.seq > next => {
                let message = match head.seq - next {
                    1 => format!("entry {next} is missing"),
                    _ => format!("entries {next} to {} are missing", head.seq - 1),
                };
                fault(FaultKind::Removed, &self.line, Some(next), message)
            }
            (Cause::WrongLink(head), None) if head.seq == next => {
                let at = self.before.as_ref().unwrap_or(&self.line);
                let message = format!(
                    "entry {} was changed and its hash recomputed: the hash that entry {next} has for it differs",
                    next.saturating_sub(1)
                );
                fault(FaultKind::Changed, at, Some(next.saturating_sub(1)), message)
            }
            (Cause::WrongLink(head), _) => {
                // Where two entries follow the same one, the first of them is where the log went wrong.
                let twin = files.each(|line| {
                    let twin =
                        Head::parse(&line.bytes).filter(|twin| twin.seq == head.seq && twin.prev == head.prev)?;
                    (!line.is_after(&self.line) && twin.hash != head.hash).then(|| line.located())
                })?;
                let message = match twin {
                    Some(_) => {
                        format!("two entries have number {} and the same predecessor: one was inserted", head.seq)
                    }
                    None => format!("entry {} was inserted before entry {next}", head.seq),
                };
                fault(FaultKind::Inserted, twin.as_ref().unwrap_or(&self.line), Some(head.seq), message)
            }
        }
    }

    /// Whether the same entry comes again further down.
    fn is_repeated(&self, head: &Head, files: &Files) -> Result<bool, VerifyError> {
        let again = files.each(|line| {
            let same = Head::parse(&line.bytes).is_some_and(|other| other.hash == head.hash);
            (same && line.is_after(&self.line)).then_some(())
        })?;
        Ok(again.is_some())
    }

    /// The number that the line gives itself.
    fn own_seq(&self) -> Option<u64> {
        Head::parse(&self.line.bytes).map(|head| head.seq)
    }
}
