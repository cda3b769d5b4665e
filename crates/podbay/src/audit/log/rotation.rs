//! Beginning a new file when one is full.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::tail;

/// When a new file is begun, and how many full ones are kept.
///
/// A full file is renamed to its number in the sequence: `audit.jsonl.1` is the oldest, and no file is renamed twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The most bytes of one file; no bound when there is none. An entry that is larger has a file for itself.
    pub max_bytes: Option<u64>,
    /// How many full files are kept, at least one because the chain continues from it; all when there is none.
    pub keep: Option<u64>,
}

impl Rotation {
    /// The most bytes of one file where the settings don't say.
    pub const DEFAULT_MAX_BYTES: u64 = 64 << 20;

    pub(super) fn is_due(self, length: u64) -> bool {
        self.max_bytes.is_some_and(|most| length > most)
    }
}

/// Renames a full file, and removes those that are too many.
pub(super) fn rotate(path: &Path, number: u64, keep: Option<u64>) -> io::Result<()> {
    let rotated = rotated(path)?;
    let mut ours = Vec::new();
    for (number, path) in &rotated {
        match tail::begins_a_file_of_a_log(path) {
            Ok(true) => ours.push((*number, path)),
            Ok(false) => {}
            // It isn't removed, and the log goes on.
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "can't tell whether this is part of the audit log")
            }
        }
    }
    // Nothing is ever replaced, also where somebody has removed files or put others there.
    let newest = ours.last().map_or(0, |(number, _)| *number);
    let is_taken = |number| rotated.binary_search_by_key(&number, |(taken, _)| *taken).is_ok();
    let Some(number) = (number.max(newest.saturating_add(1))..u64::MAX).find(|number| !is_taken(*number)) else {
        return Err(io::Error::other("no number is left for the full log; move its older files away"));
    };
    rename(path, &named(path, number))?;
    let Some(keep) = keep else { return Ok(()) };
    // The one that has just been renamed is kept too.
    let others = usize::try_from(keep.max(1) - 1).unwrap_or(usize::MAX);
    for (_, path) in &ours[..ours.len().saturating_sub(others)] {
        match std::fs::remove_file(path) {
            // Another writer has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Renames a file unless there is one of the new name, where the file system can do that.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

fn named(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The full files of a log with their numbers, oldest first.
pub(super) fn rotated(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let mut prefix = name.as_encoded_bytes().to_vec();
    prefix.push(b'.');
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.as_encoded_bytes().strip_prefix(&prefix[..]).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            digits.parse::<u64>().ok().filter(|number| number.to_string() == digits)
        });
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}
