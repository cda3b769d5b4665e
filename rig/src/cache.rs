//! Where everything slow is kept: compiled programs, image layers, and the state of running clusters.
//!
//! Nothing below the repository is written, so a fresh clone finds everything warm. Entries are named by a hash of what
//! they were made from: a changed input makes a new entry, and an old one can be deleted at any time.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The cache directory: `PODBAY_CACHE`, else `podbay` in the user's cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the cache, making the directory when it isn't there.
    pub fn open() -> Result<Self> {
        Self::at(Self::place()?)
    }

    /// Where the cache is, or would be.
    pub fn place() -> Result<PathBuf> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = from("PODBAY_CACHE")
            .or_else(|| from("XDG_CACHE_HOME").map(|directory| directory.join("podbay")))
            .or_else(|| from("HOME").map(|directory| directory.join(".cache/podbay")))
            .context("no directory for the cache: set PODBAY_CACHE to a directory")?;
        std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))
    }

    fn at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("cannot create the cache directory {}", root.display()))?;
        Ok(Self { root })
    }

    /// A directory below the cache, made when it isn't there.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Waits until this process alone may make or change what `name` stands for.
    pub(crate) fn lock(&self, name: &str) -> Result<Lock> {
        Lock::acquire(self.directory("locks")?.join(name))
    }

    /// The directory `kind/name-key`, filled by `make` when it isn't there yet. `make` gets a fresh directory that
    /// takes its final name only when all went well, so a killed build leaves nothing that looks finished.
    pub(crate) fn entry(
        &self,
        kind: &str,
        name: &str,
        key: &Key,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let id = format!("{name}-{}", key.short());
        let directory = self.directory(kind)?;
        let finished = directory.join(&id);
        if finished.is_dir() {
            return Ok(finished);
        }
        let _lock = self.lock(&format!("{kind}-{id}"))?;
        if finished.is_dir() {
            return Ok(finished);
        }
        let draft = directory.join(format!(".{id}.draft"));
        remove_tree(&draft)?;
        fs::create_dir(&draft).with_context(|| format!("cannot create {}", draft.display()))?;
        make(&draft)?;
        fs::rename(&draft, &finished).with_context(|| format!("cannot name {}", finished.display()))?;
        Ok(finished)
    }
}

/// Removes a directory and everything in it; one that isn't there is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A hash of the inputs from which something is made.
#[derive(Clone)]
pub(crate) struct Key(Sha256);

impl Key {
    /// The key of nothing yet. `recipe` is raised by hand when the way of making changes.
    pub(crate) fn new(recipe: &str) -> Self {
        Self(Sha256::new()).with(recipe)
    }

    /// Adds one input. Its length goes in too, so that two inputs can't run into each other.
    pub(crate) fn with(mut self, input: impl AsRef<[u8]>) -> Self {
        let input = input.as_ref();
        self.0.update((input.len() as u64).to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds the content of a file.
    pub(crate) fn with_file(self, path: &Path) -> Result<Self> {
        Ok(self.with(fs::read(path).with_context(|| format!("cannot read {}", path.display()))?))
    }

    /// Enough of the hash to name a cache entry.
    pub(crate) fn short(&self) -> String {
        hex(&self.0.clone().finalize())[..16].to_owned()
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An exclusive lock between processes, on a file that is gone when the lock is.
pub(crate) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    fn acquire(path: PathBuf) -> Result<Self> {
        loop {
            let file = File::create(&path).with_context(|| format!("cannot create the lock {}", path.display()))?;
            // Most are held for a moment only; the person at the terminal hears of the others.
            let patience = Instant::now() + Duration::from_secs(1);
            while file.try_lock().is_err() {
                if Instant::now() > patience {
                    crate::progress::say(&format!("waiting for another process that holds {}", path.display()));
                    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            // The holder before us removed the file when it was done: then ours is a lock on nothing.
            let ours = file.metadata()?;
            match fs::metadata(&path) {
                Ok(now) if now.ino() == ours.ino() && now.dev() == ours.dev() => return Ok(Self { _file: file, path }),
                _ => continue,
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked here; a failure leaves an empty file that the next holder uses.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_leaves_no_entry_and_a_finished_one_is_not_made_again() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(place.path().join("cache")).unwrap();
        let key = Key::new("1").with("input");

        let failed = cache.entry("bin", "tool", &key, |_| anyhow::bail!("compiler says no"));
        assert_eq!(failed.unwrap_err().to_string(), "compiler says no");

        let write = |text: &'static str| move |path: &Path| Ok(fs::write(path.join("tool"), text)?);
        let first = cache.entry("bin", "tool", &key, write("one")).unwrap();
        let again = cache.entry("bin", "tool", &key, write("two")).unwrap();
        assert_eq!(first, again);
        assert_eq!(fs::read_to_string(again.join("tool")).unwrap(), "one");
        assert_eq!(fs::read_dir(place.path().join("cache/locks")).unwrap().count(), 0);
    }

    #[test]
    fn inputs_do_not_run_into_each_other() {
        let key = |inputs: &[&str]| inputs.iter().fold(Key::new("1"), |key, input| key.with(input)).short();
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(place.path().to_owned()).unwrap();
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _lock = cache.lock("one").unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
        });
    }
}
