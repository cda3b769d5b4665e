//! What is remembered of a cluster: enough to use it from another process, and to clean up after a crash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::addon::AddOn;

const FILE: &str = "cluster.json";

/// Written before anything is made, and again with each thing that is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    /// The host's port of the API server.
    pub(super) port: u16,
    pub(super) cgroups: Vec<PathBuf>,
    /// PID 1 of the cluster.
    pub(super) init: Option<Process>,
    /// Whether the start came to its end. If not, its process was killed meanwhile.
    pub(super) is_complete: bool,
    pub(super) add_ons: BTreeSet<AddOn>,
    /// Where this is kept.
    #[serde(skip)]
    pub(super) directory: PathBuf,
}

impl State {
    /// The state in `directory`; `None` when there is no such directory. A directory without a readable state is what
    /// a crash in the very first moment leaves: nothing but files.
    pub(super) fn load(directory: &Path) -> Result<Option<Self>> {
        if !directory.is_dir() {
            return Ok(None);
        }
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let nothing = Self {
            name,
            port: 0,
            cgroups: Vec::new(),
            init: None,
            is_complete: false,
            add_ons: BTreeSet::new(),
            directory: directory.to_owned(),
        };
        let file = directory.join(FILE);
        match fs::read(&file) {
            Ok(bytes) => {
                let state: Self =
                    serde_json::from_slice(&bytes).with_context(|| format!("cannot parse {}", file.display()))?;
                Ok(Some(Self { directory: directory.to_owned(), ..state }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Some(nothing)),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Writes the state; a reader sees the old or the new one, never a part.
    pub(super) fn save(&self) -> Result<()> {
        let draft = self.directory.join(format!(".{FILE}"));
        fs::write(&draft, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&draft, self.directory.join(FILE)))
            .with_context(|| format!("cannot write the state of cluster {}", self.name))
    }

    /// Whether the cluster can be used.
    pub(super) fn is_up(&self) -> bool {
        self.is_complete && self.is_running()
    }

    pub(super) fn is_running(&self) -> bool {
        self.init.as_ref().is_some_and(Process::is_alive)
    }
}

/// A process that can't be mistaken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In clock ticks since the machine started, as `/proc/PID/stat` has it.
    started: u64,
}

impl Process {
    /// The process that now has this number.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the name in parentheses, may hold anything; the rest is fields 3 and on.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, started })
    }

    pub(super) fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Its only child, when it has just one.
    pub(super) fn child(pid: i32) -> Option<Self> {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Self::of(children.split_whitespace().next()?.parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_and_its_number_alone_does_not_count() {
        let mut sleep = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::of(sleep.id() as i32).unwrap();
        assert!(process.is_alive());
        assert!(!Process { started: process.started + 1, ..process.clone() }.is_alive());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn a_state_comes_back_as_it_was_saved() {
        let place = tempfile::tempdir().unwrap();
        assert!(State::load(&place.path().join("none")).unwrap().is_none());
        let empty = State::load(place.path()).unwrap().unwrap();
        assert!(!empty.is_running());
        State { port: 7, add_ons: [AddOn::Gvisor].into(), ..empty }.save().unwrap();
        let loaded = State::load(place.path()).unwrap().unwrap();
        assert_eq!((loaded.port, loaded.add_ons.len()), (7, 1));
        fs::write(place.path().join(FILE), "{").unwrap();
        assert!(State::load(place.path()).unwrap_err().to_string().contains("cannot parse"));
    }
}
