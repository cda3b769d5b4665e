//! File operations and path rules of a sandbox. No network.
//!
//! [`Files`] has one method for each operation of [`podbay_proto::files`]. They block, so a server calls them on threads of
//! their own. Each works in three steps: the request's path is resolved to an open directory and a name in it; the rules are
//! checked against that directory; and the operation acts on it. No path is looked up twice.

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
mod real_names;
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
pub use content::FileContent;
pub use edit::PendingEdit;
pub use read::OpenFile;
pub use write::PendingWrite;

/// Settings of the daemon, which its clients can't change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base of relative paths, and where glob and grep start unless the request says otherwise.
    pub workdir: PathBuf,
    /// Directories that listings and searches leave out, and that can't be deleted, moved or written to: the daemon's own.
    pub hidden: Vec<PathBuf>,
    /// Absolute prefixes that stand for another path: the first of each pair for the second. Virtual paths aren't affected.
    pub reroots: Vec<(PathBuf, PathBuf)>,
}

impl Settings {
    /// The real path, if a path begins with a prefix that stands for another.
    fn reroot(&self, path: &[Vec<u8>]) -> Option<Names> {
        self.reroots.iter().find_map(|(prefix, target)| {
            let rest = path.strip_prefix(&names(prefix.as_os_str().as_bytes())[..])?;
            let target = names(target.as_os_str().as_bytes());
            // A path with `..` isn't changed, and neither is a real path: that may itself begin with the prefix.
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

/// The file operations. One for the whole daemon; clones share their state.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    /// Operations that read a file and then replace it take their file's lock, so that two of them never undo each other.
    stripes: [Mutex<()>; 64],
}

impl Files {
    /// File operations with these settings.
    pub fn new(mut settings: Settings) -> Self {
        // Each change of a file is compared with them.
        for hidden in &mut settings.hidden {
            if let Ok(real) = hidden.canonicalize() {
                *hidden = real;
            }
        }
        Self { shared: Arc::new(Shared { settings, stripes: std::array::from_fn(|_| Mutex::new(())) }) }
    }

    /// The real path of an absolute path.
    pub fn rerooted(&self, path: RawPath) -> RawPath {
        let bytes = path.as_bytes();
        let elsewhere = bytes.starts_with(b"/").then(|| self.shared.settings.reroot(&names(bytes))).flatten();
        elsewhere.map_or(path, |names| absolute(&names).into())
    }

    /// Locks the file that `key` stands for against other edits in this process.
    fn lock(&self, key: u64) -> MutexGuard<'_, ()> {
        let stripes = &self.shared.stripes;
        let stripe = &stripes[(key % stripes.len() as u64) as usize];
        // The lock guards no data, so a panic elsewhere has left nothing broken.
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
