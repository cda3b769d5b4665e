//! The Landlock domain that all commands of a sandbox share, and that podbayd stays out of.
//!
//! A command has podbayd's user, so file modes and user ids don't keep the two apart. The domain does: whoever is in it can
//! signal, trace and inspect others in it, and nobody outside. It is entered once, by the process that all commands descend
//! from: each call would make a domain of its own.

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

/// Why commands that may gain privileges aren't confined.
pub const ESCALATION: &str = "this container allows privilege escalation (allowPrivilegeEscalation), so that programs such \
                              as sudo work; set it to false to wall commands off";

/// What commands are kept from. Plain data, which can be handed to another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// podbayd's own directory, absolute and without links: nothing in it can be changed from inside the domain.
    pub closed: Option<PathBuf>,
    /// Entries of that directory that can be.
    pub open: Vec<PathBuf>,
}

/// What the kernel enforces of a [`Domain`]; each error says why it doesn't.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The ABI of Landlock in use; 0 without it.
    pub abi: i32,
    /// Processes outside can't be traced or inspected.
    pub domain: Result<(), String>,
    /// Processes outside can't be signalled.
    pub signals: Result<(), String>,
    /// podbayd's directory can't be changed.
    pub directory: Result<(), String>,
}

impl Domain {
    /// Enters, with everything that this thread starts from now on, for good. Where the kernel enforces less, so does this.
    pub fn enter(&self) -> Entered {
        let abi = landlock::abi();
        let nothing =
            |why: String| Entered { abi, domain: Err(why.clone()), signals: Err(why.clone()), directory: Err(why) };
        if abi < REFER {
            return nothing(landlock::lacking(abi, REFER));
        }
        // Without it the kernel lets nobody in, and with it no program gains privileges: it must not be set here, because
        // a container that hasn't set it may be one whose user relies on `sudo`.
        if !rustix::thread::no_new_privs().unwrap_or(false) {
            return nothing(ESCALATION.into());
        }
        let around = match &self.closed {
            Some(closed) => around(closed).and_then(|around| Ok((around, self.opened(closed)?))),
            None => Err("podbayd's directory is protected by other means".into()),
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
        existing.map(|path| look_at(&path).map_err(|error| format!("{}: {error}", path.display()))).collect()
    }
}

/// Every place beside the way to a directory. Landlock grants whole subtrees and leaves no holes, so each entry of each
/// directory on the way is granted, except the next step.
///
/// Nothing new can be made directly in those directories then. Where commands otherwise could, that would break more than
/// it protects (a web server's `/run/nginx.pid`, `mkdir /data` in a root container), and the directory is left open.
fn around(closed: &Path) -> Result<Vec<OwnedFd>, String> {
    let mut places = Vec::new();
    let mut dir = PathBuf::from("/");
    for step in closed.components().filter(|component| matches!(component, Component::Normal(_))) {
        if rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok() {
            return Err(format!(
                "it is in {}, where commands can create files, and Landlock can't allow that and protect {}",
                dir.display(),
                closed.display(),
            ));
        }
        let unreadable = |error: io::Error| format!("{} can't be listed: {error}", dir.display());
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.file_name() == step.as_os_str() {
                continue;
            }
            // What can't even be looked at can't be written to either.
            places.extend(look_at(&entry.path()).ok());
        }
        dir.push(step);
    }
    Ok(places)
}

fn look_at(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Enters a domain in which only these places can be written, or all without them.
fn restrict(places: Option<Vec<OwnedFd>>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let abi = landlock::known();
    let write = AccessFs::from_write(abi);
    // A domain that handles no access to files at all would forbid moving them, on kernels before Linux 6.13.
    let handled: BitFlags<AccessFs> = if places.is_some() { write } else { AccessFs::Refer.into() };
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(handled)?;
    if landlock::abi() >= landlock::SCOPED {
        rules = rules.scope(Scope::Signal)?;
    }
    let mut rules = rules.create()?;
    match places {
        None => rules = rules.add_rule(PathBeneath::new(look_at(Path::new("/"))?, handled))?,
        Some(places) => {
            for place in places {
                let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
                    FileType::Directory => write,
                    // Where it leads is granted by its own name.
                    FileType::Symlink => continue,
                    _ => write & AccessFs::from_file(abi),
                };
                rules = rules.add_rule(PathBeneath::new(place, access))?;
            }
        }
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        other => Err(format!("it is {other:?}").into()),
    }
}
