//! What listings and searches leave out.

use std::os::fd::AsFd;

use rustix::fs::Stat;

use crate::identity::{lstat, same_file};
use crate::resolve::leads_on;
use crate::rules::{Names, Rules, names};

/// What a listing leaves out: the daemon's own directories, and what the rules forbid.
pub(crate) struct Visibility<'a> {
    pub(crate) rules: Option<&'a Rules>,
    /// The real path of the start; only set if there are rules.
    pub(crate) start: Names,
    /// The hidden directories: their last names and what identifies them.
    pub(crate) hidden: Vec<(Vec<u8>, Stat)>,
}

impl Visibility<'_> {
    /// Whether the entry `name` of `dir`, at the path `below` relative to the start, is left out.
    pub(crate) fn hides(&self, dir: impl AsFd, name: &[u8], below: &[u8]) -> bool {
        if crate::temporary::is_temporary(name) {
            return true;
        }
        if let Some(rules) = self.rules {
            let path = [&self.start[..], &names(below)].concat();
            let shown = rules.allows(&path) || (rules.shows(&path) && leads_on(lstat(dir.as_fd(), name).ok()));
            if !shown {
                return true;
            }
        }
        // Comparing names first saves a system call for nearly every entry.
        self.hidden
            .iter()
            .any(|(hidden, stat)| hidden == name && lstat(dir.as_fd(), name).is_ok_and(|found| same_file(&found, stat)))
    }

    /// Whether the content of the file at `below` may be read. A path that leads to something allowed may be listed without
    /// being allowed itself.
    pub(crate) fn allows_reading(&self, below: &[u8]) -> bool {
        self.rules.is_none_or(|rules| rules.allows(&[&self.start[..], &names(below)].concat()))
    }
}
