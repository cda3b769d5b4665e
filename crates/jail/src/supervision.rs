//! What the creator of a local sandbox and its supervisor agree on: files in the sandbox's directory, and a report.
//!
//! The directory is `HOME/sandboxes/NAME`. It is made whole in `HOME/new` and put there by one rename that replaces
//! nothing; it is taken away by [`retire`], under one lock. So a name has one sandbox at a time, and nobody removes
//! another's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{InForce, Jail};

/// The file that says what to make.
pub const SPEC: &str = "spec.json";

/// The file that says what was made, written by the supervisor.
pub const STARTED: &str = "started.json";

/// The socket of the sandbox's podbayd, which the creator has bound.
pub const SOCKET: &str = "podbayd.sock";

/// The supervisor's own socket. Whoever connects asks for the end of the sandbox; the connection closes when it is over.
pub const CONTROL: &str = "supervisor.sock";

/// Below the home: where sandboxes are.
pub const SANDBOXES: &str = "sandboxes";

/// Below the home: where they are made, and where they are taken apart.
pub const NEW: &str = "new";

/// Below the home: held while a sandbox's directory is taken away.
const LOCK: &str = "lock";

/// A local sandbox to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What it may see and use.
    pub jail: Jail,
    /// When it was asked for: milliseconds since 1970.
    pub created_ms: u64,
    /// What its users call it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Milliseconds until it ends.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
    /// Milliseconds without use until it ends.
    #[serde(default)]
    pub idle_ttl_ms: Option<u64>,
    /// It ends with its creator: when the leash is let go.
    #[serde(default)]
    pub leashed: bool,
    /// It ends if its creator lets go of the leash without a word. For one whose id nobody else knows: should the creator
    /// die or lose interest in the middle, nobody would ever find it.
    #[serde(default)]
    pub unconfirmed: bool,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    /// The supervisor's process id.
    pub supervisor: u32,
    /// The process id of the sandbox's first process.
    pub first: u32,
    /// When the kernel says that this process began, to tell it from a later one of the same id.
    pub first_began: Option<u64>,
    /// The control groups made for it.
    pub cgroups: Vec<PathBuf>,
    /// Which limits hold, and by what.
    pub limits: Vec<InForce>,
}

/// What the supervisor says on the leash: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The sandbox is there.
    Ready(Started),
    /// It couldn't be made.
    Failed {
        /// Why, and what to do.
        message: String,
    },
}

/// Which directory it is, whatever stands at its path later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64, u64);

impl Identity {
    /// The directory that is there now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(dir)?;
        Ok(Self(meta.dev(), meta.ino()))
    }
}

/// Marks a sandbox's directory as looked after, until the file is closed.
///
/// # Errors
/// When it can't be opened or locked.
pub fn hold(dir: &Path) -> io::Result<File> {
    let dir = File::open(dir)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&dir, FlockOperation::LockExclusive))?;
    Ok(dir)
}

/// Whether a supervisor looks after a sandbox's directory. One that is only just being made has none yet.
pub fn is_held(dir: &Path) -> bool {
    // The lock that this takes is gone again with the descriptor.
    let held = |dir: File| rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    File::open(dir).is_ok_and(held)
}

/// When a process began, in the kernel's own count; nothing when there is none of that id.
pub fn began(pid: u32) -> Option<u64> {
    crate::cgroup::start_time(pid)
}

/// Removes a sandbox's directory, if it is still the one that is meant; whether it was.
///
/// # Errors
/// When the home can't be locked, or the directory can't be removed.
pub fn retire(dir: &Path, identity: Identity) -> io::Result<bool> {
    let home = dir
        .parent()
        .and_then(Path::parent)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a sandbox's directory lies in a home"))?;
    let gone = home.join(NEW).join(format!("gone-{:x}-{:x}", identity.0, identity.1));
    {
        let lock = File::options().create(true).append(true).mode(0o600).open(home.join(LOCK))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))?;
        match Identity::of(dir) {
            Ok(there) if there == identity => fs::rename(dir, &gone)?,
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    match remove_tree(&gone) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

/// Removes a directory with all below it, also where a sandbox has closed directories of its own to its own user.
///
/// # Errors
/// When something can't be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_all(path)?;
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

/// Opens every directory of a tree to its owner. It goes by descriptors: whoever the tree belongs to may exchange a directory
/// for a link meanwhile, and a link is left alone.
fn open_all(path: &Path) -> io::Result<()> {
    let at = |dir: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut left = vec![rustix::fs::open(path, flags, Mode::empty())?];
    while let Some(dir) = left.pop() {
        fs::set_permissions(at(&dir), fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(at(&dir))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                match rustix::fs::openat(&dir, entry.file_name(), flags, Mode::empty()) {
                    Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
                    below => left.push(below?),
                }
            }
        }
    }
    Ok(())
}
