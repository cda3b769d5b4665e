//! The files of a sandbox's directory, and how the directory is claimed and removed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The socket of the sandbox's podbayd. The creator binds it.
pub use podbay_proto::layout::SOCKET;

/// The file that describes the sandbox to create: a [`Spec`](crate::Spec).
pub const SPEC: &str = "spec.json";

/// The file that describes the sandbox that was started: a [`Started`](crate::Started).
pub const STARTED: &str = "started.json";

/// The supervisor's socket. A connection asks it to end the sandbox, and closes when nothing of the sandbox is left.
pub const CONTROL: &str = "supervisor.sock";

/// The supervisor's standard error.
pub const LOG: &str = "supervisor.log";

/// In the home: the directory of all sandboxes.
pub const SANDBOXES: &str = "sandboxes";

/// In the home: the directory in which sandboxes' directories are assembled and taken apart.
pub const NEW: &str = "new";

/// In the home: locked while a sandbox's directory is taken away.
const LOCK: &str = "lock";

/// Tells a directory from any other that is at its path later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryIdentity {
    device: u64,
    inode: u64,
}

impl DirectoryIdentity {
    /// The directory that is at this path now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(dir)?;
        Ok(Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// Marks a sandbox's directory as supervised until the returned file is closed.
///
/// # Errors
/// When the directory can't be opened or locked.
pub fn mark_supervised(dir: &Path) -> io::Result<File> {
    let dir = File::open(dir)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&dir, FlockOperation::LockExclusive))?;
    Ok(dir)
}

/// Whether a sandbox's directory has a supervisor. While the sandbox is being created, it has none yet.
pub fn is_supervised(dir: &Path) -> bool {
    // Closing the descriptor releases the lock that this takes.
    let locked = |dir: File| rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    File::open(dir).is_ok_and(locked)
}

/// Removes a sandbox's directory unless another has taken its place. Returns whether it was still there.
///
/// # Errors
/// When the home can't be locked, or the directory can't be removed.
pub fn remove_sandbox(dir: &Path, identity: DirectoryIdentity) -> io::Result<bool> {
    let home = dir
        .parent()
        .and_then(Path::parent)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the directory of a sandbox in a home"))?;
    let gone = home.join(NEW).join(format!("gone-{:x}-{:x}", identity.device, identity.inode));
    {
        let lock = File::options().create(true).append(true).mode(0o600).open(home.join(LOCK))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))?;
        match DirectoryIdentity::of(dir) {
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

/// Removes a directory and everything in it, including directories that a sandbox made inaccessible to its own user.
///
/// # Errors
/// When something can't be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_accessible(path)?;
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

/// Gives the owner full access to every directory of a tree. It works by descriptor and leaves links alone, because the owner
/// may replace a directory by a link meanwhile.
fn make_accessible(path: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A home with one sandbox.
    fn sandbox() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join(SANDBOXES).join("pb-1");
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir(home.path().join(NEW)).unwrap();
        (home, dir)
    }

    #[test]
    fn only_the_directory_that_was_meant_is_removed() {
        let (home, dir) = sandbox();
        let first = DirectoryIdentity::of(&dir).unwrap();
        // Kept, so that its inode can't be used again.
        fs::rename(&dir, home.path().join("kept")).unwrap();
        assert!(!remove_sandbox(&dir, first).unwrap());
        fs::create_dir(&dir).unwrap();
        assert!(!remove_sandbox(&dir, first).unwrap());
        assert!(dir.exists(), "a later sandbox of the same name stays");
        assert!(remove_sandbox(&dir, DirectoryIdentity::of(&dir).unwrap()).unwrap());
        assert!(!dir.exists());
        assert_eq!(fs::read_dir(home.path().join(NEW)).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_is_supervised_until_its_mark_is_closed() {
        let (_home, dir) = sandbox();
        assert!(!is_supervised(&dir));
        let mark = mark_supervised(&dir).unwrap();
        assert!(is_supervised(&dir));
        drop(mark);
        assert!(!is_supervised(&dir));
    }

    /// Runs as root too, who needs no access: then it only shows that nothing breaks.
    #[test]
    fn closed_directories_are_removed_and_links_are_left_alone() {
        let (home, dir) = sandbox();
        let outside = home.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::create_dir_all(dir.join("closed/below")).unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("closed/below/link")).unwrap();
        fs::set_permissions(dir.join("closed/below"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        make_accessible(&dir).unwrap();
        assert_eq!(fs::metadata(dir.join("closed/below")).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&dir).unwrap();
        assert!(!dir.exists() && outside.join("file").exists());
    }
}
