//! The Landlock domain that all commands of a sandbox share, and podbayd isn't in.
//!
//! Commands run as podbayd's user, so file modes and user ids don't separate the two. The domain does: its processes can
//! signal, trace and inspect each other, and no process outside. The ancestor of all commands enters it once, because each call
//! makes a new domain.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use ::landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::landlock::{self, REFER};

/// Why commands that may gain privileges aren't in a domain.
pub const ESCALATION: &str = "this container allows privilege escalation (for programs such as sudo); set \
                              allowPrivilegeEscalation to false to protect podbayd from commands";

/// What commands are kept from. Plain data, which can be passed to another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// podbayd's directory, as an absolute path without links. Processes in the domain can't change anything in it.
    pub closed: Option<PathBuf>,
    /// Entries of that directory that they can change.
    pub open: Vec<PathBuf>,
}

/// What the kernel enforces of a [`Domain`]. Each error says why it doesn't enforce that part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The Landlock ABI in use; 0 without Landlock.
    pub abi: i32,
    /// Processes outside can't be traced or inspected.
    pub domain: Result<(), String>,
    /// Processes outside can't be signalled.
    pub signals: Result<(), String>,
    /// podbayd's directory can't be changed.
    pub directory: Result<(), String>,
}

impl Domain {
    /// Puts this thread, and everything that it starts from now on, into a new domain for good. An older kernel enforces less.
    pub fn enter(&self) -> Entered {
        let abi = landlock::abi();
        let nothing =
            |why: String| Entered { abi, domain: Err(why.clone()), signals: Err(why.clone()), directory: Err(why) };
        if abi < REFER {
            return nothing(landlock::lacking(abi, REFER));
        }
        // The kernel requires no_new_privs, with which no program gains privileges. It isn't set here: the user of a container
        // that doesn't set it may rely on `sudo`.
        if !rustix::thread::no_new_privs().unwrap_or(false) {
            return nothing(ESCALATION.into());
        }
        let around = match &self.closed {
            Some(closed) => around(closed).and_then(|around| Ok((around, self.opened(closed)?))),
            None => Err("the jail protects podbayd's directory by other means".into()),
        };
        let signals = match abi {
            landlock::SCOPED.. => Ok(()),
            _ => Err(landlock::lacking(abi, landlock::SCOPED)),
        };
        let (directory, places) = match around {
            Ok((mut around, open)) => {
                around.extend(open);
                (Ok(()), Some(around))
            }
            Err(why) => (Err(why), None),
        };
        match restrict(places) {
            Ok(()) => Entered { abi, domain: Ok(()), signals, directory },
            Err(error) => nothing(format!("the kernel refused the Landlock domain: {error}")),
        }
    }

    fn opened(&self, closed: &Path) -> Result<Vec<OwnedFd>, String> {
        let existing = self.open.iter().map(|name| closed.join(name)).filter(|path| path.exists());
        existing.map(|path| open_path(&path).map_err(|error| format!("{}: {error}", path.display()))).collect()
    }
}

/// Everything that isn't above or below a directory. Landlock grants whole subtrees without exceptions, so for each directory
/// above the closed one, this returns all entries but the one that leads to it.
///
/// Commands then can't create new entries in the directories above, and can't even write to entries that someone else creates
/// there later. Where they otherwise could, that would break more than it protects (`mkdir /data` or `git clone … /repo` in a
/// root container, a web server's `/run/nginx.pid`), so the directory stays open. A grant on `/` that allows creating but not
/// writing wouldn't help: new files would stay empty.
fn around(closed: &Path) -> Result<Vec<OwnedFd>, String> {
    let mut places = Vec::new();
    let mut dir = PathBuf::from("/");
    for step in closed.components().filter(|component| matches!(component, Component::Normal(_))) {
        if rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok() {
            return Err(format!(
                "it is below {}, where commands can create files; Landlock can't allow that and protect {}",
                dir.display(),
                closed.display(),
            ));
        }
        let unreadable = |error: io::Error| format!("can't list {}: {error}", dir.display());
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_name() == step.as_os_str() {
                continue;
            }
            // What can't be opened as a path can't be written to either.
            places.extend(open_path(&entry.path()).ok());
        }
        dir.push(step);
    }
    Ok(places)
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Enters a domain in which only these paths are writable, or all if there are none.
fn restrict(places: Option<Vec<OwnedFd>>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let abi = landlock::known();
    let write = AccessFs::from_write(abi);
    // Before Linux 6.13, a domain that handles no file access at all would forbid moving files.
    let handled: BitFlags<AccessFs> = if places.is_some() { write } else { AccessFs::Refer.into() };
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(handled)?;
    if landlock::abi() >= landlock::SCOPED {
        rules = rules.scope(Scope::Signal)?;
    }
    let mut rules = rules.create()?;
    match places {
        None => rules = rules.add_rule(PathBeneath::new(open_path(Path::new("/"))?, handled))?,
        Some(places) => {
            for place in places {
                let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
                    FileType::Directory => write,
                    // Its target is granted under its own path.
                    FileType::Symlink => continue,
                    _ => write & AccessFs::from_file(abi),
                };
                rules = rules.add_rule(PathBeneath::new(place, access))?;
            }
        }
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        other => Err(format!("it is only {other:?}").into()),
    }
}
