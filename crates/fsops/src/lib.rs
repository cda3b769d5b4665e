//! File operations and path rules of a sandbox. No network.
//!
//! [`Files`] has one method for each operation of [`podbay_proto::files`]. They block, so a server calls them on threads of
//! their own. Each works in three steps: the request's path becomes a *place*, an open directory and a name in
//! it; the rules are decided on that directory; and the operation acts on it. Nothing is looked up twice by its path.

mod budget;
mod change;
mod content;
mod edit;
mod errno;
mod glob;
mod grep;
mod identity;
mod list;
pub mod pattern;
mod read;
mod resolve;
mod resolved_path;
mod rules;
mod temporary;
mod visibility;
mod walk;
mod write;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podbay_proto::RawPath;
use rules::{Names, absolute, names};

pub use budget::Cancel;
pub use content::Content;
pub use edit::PendingEdit;
pub use read::OpenFile;
pub use write::PendingWrite;

/// What the daemon knows and its clients don't decide.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base of relative paths, and where glob and grep start, when the request doesn't say.
    pub workdir: PathBuf,
    /// Directories that listings and searches leave out, and that can't be deleted or moved: the daemon's own.
    pub hidden: Vec<PathBuf>,
    /// Absolute prefixes that really live elsewhere: the first path stands for the second. Virtual paths mean what they
    /// mean.
    pub reroots: Vec<(PathBuf, PathBuf)>,
}

impl Settings {
    /// Where a path really leads that begins with a prefix which lives elsewhere.
    fn reroot(&self, path: &[Vec<u8>]) -> Option<Names> {
        self.reroots.iter().find_map(|(prefix, target)| {
            let rest = path.strip_prefix(&names(prefix.as_os_str().as_bytes())[..])?;
            let target = names(target.as_os_str().as_bytes());
            // What climbs out again means what it always meant, and a real path means itself: the place may lie below
            // the very prefix that stands for it.
            let other = !rest.iter().any(|name| name == b"..") && !path.starts_with(&target);
            other.then(|| [target, rest.to_vec()].concat())
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { workdir: PathBuf::from("/"), hidden: Vec::new(), reroots: Vec::new() }
    }
}

/// The file operations. One for the whole daemon; clones are the same one.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    /// Operations that read a file and then replace it take the lock of their file's stripe, so that two of them never
    /// undo each other.
    stripes: [Mutex<()>; 64],
}

impl Files {
    /// File operations with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { shared: Arc::new(Shared { settings, stripes: std::array::from_fn(|_| Mutex::new(())) }) }
    }

    /// Where an absolute path really leads.
    pub fn rerooted(&self, path: RawPath) -> RawPath {
        let bytes = path.as_bytes();
        let elsewhere = bytes.starts_with(b"/").then(|| self.shared.settings.reroot(&names(bytes))).flatten();
        elsewhere.map_or(path, |names| absolute(&names).into())
    }

    /// Waits until nobody else in this process replaces the file that `key` stands for.
    fn lock(&self, key: u64) -> MutexGuard<'_, ()> {
        let stripes = &self.shared.stripes;
        let stripe = &stripes[(key % stripes.len() as u64) as usize];
        // The lock guards no data, so a panic elsewhere has left nothing broken.
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
