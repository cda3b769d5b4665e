//! Directories that nobody else can exchange.
//!
//! A program that runs from a directory, or a file that is written there, is only as safe as every directory above it: whoever
//! may rename an entry of one can put another in its place between a check and a use. So a path is followed step by step, by
//! descriptors, and each directory and link on the way must belong to root or to this user and be writable by no one else. A
//! sticky directory like `/tmp` is writable by all, but only the owner of an entry can move it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;

/// Opens a directory of this user's, and makes it, and what is missing above it, for this user alone. Gives its real path as
/// well, which leads to the same directory as long as root and this user leave it there.
///
/// # Errors
/// When it, or a directory on the way, could be exchanged by somebody else; or can't be opened or made.
pub(crate) fn open(path: &Path) -> Result<(OwnedFd, PathBuf)> {
    let whole = path;
    let fault = |at: &Path, what| {
        let at = at.to_owned();
        move |error: Errno| Error::home(at, what)(error.into())
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut real = PathBuf::from("/");
    let mut dirs = vec![openat(CWD, "/", flags, Mode::empty()).map_err(fault(&real, "it can't be opened"))?];
    let root = fstat(&dirs[0]).map_err(fault(&real, "it can't be looked at"))?;
    // In a user namespace, the machine's root may have no number here, but `/` is still root's.
    let us =
        Us { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), root: root.st_uid };
    let mut left: VecDeque<OsString> = VecDeque::new();
    prepend(&mut left, whole);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            if dirs.len() > 1 {
                dirs.pop();
                real.pop();
            }
            continue;
        }
        let (dir, at) = (dirs[dirs.len() - 1].as_fd(), real.join(&name));
        let found = match openat(dir, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) => make(dir, &name).map_err(fault(&at, "the directory can't be made"))?,
            found => found.map_err(fault(&at, "it can't be opened"))?,
        };
        let stat = fstat(&found).map_err(fault(&at, "it can't be looked at"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if links < MOST_LINKS => {
                links += 1;
                us.trust_owner(whole, &at, &stat)?;
                let to = readlinkat(&found, "", Vec::new()).map_err(fault(&at, "the link can't be read"))?;
                let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
                if to.is_absolute() {
                    dirs.truncate(1);
                    real = PathBuf::from("/");
                }
                prepend(&mut left, &to);
            }
            FileType::Symlink => return Err(fault(&at, "it can't be followed")(Errno::LOOP)),
            FileType::Directory => {
                us.trust_as_parent(whole, &at, &stat)?;
                dirs.push(found);
                real = at;
            }
            _ => return Err(fault(&at, "it isn't a directory")(Errno::NOTDIR)),
        }
    }
    let dir = &dirs[dirs.len() - 1];
    us.trust_as_own(whole, &real, &fstat(dir).map_err(fault(&real, "it can't be looked at"))?)?;
    let opened = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    Ok((opened.map_err(fault(&real, "it can't be opened"))?, real))
}

/// Opens a directory in one that [`open`] has opened; makes it if need be.
///
/// # Errors
/// When it isn't this user's alone, or can't be opened or made.
pub(crate) fn open_in(dir: BorrowedFd<'_>, path: &Path, name: &str) -> Result<OwnedFd> {
    let at = path.join(name);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => make(dir, OsStr::new(name)).and_then(|_| openat(dir, name, flags, Mode::empty())),
        opened => opened,
    };
    let opened = opened.map_err(|error| Error::home(&at, "the directory can't be opened")(error.into()))?;
    let stat = fstat(&opened).map_err(|error| Error::home(&at, "it can't be looked at")(error.into()))?;
    let uid = rustix::process::geteuid().as_raw();
    Us { uid, gid: rustix::process::getegid().as_raw(), root: 0 }.trust_as_own(path, &at, &stat)?;
    Ok(opened)
}

/// Makes a directory for this user alone. Somebody else may have been first: who it belongs to is looked at afterwards.
fn make(dir: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    match mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn prepend(left: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => left.push_front(name.to_owned()),
            Component::ParentDir => left.push_front("..".into()),
            _ => {}
        }
    }
}

/// Whom this process trusts.
struct Us {
    uid: u32,
    gid: u32,
    /// Who owns `/`.
    root: u32,
}

impl Us {
    fn trust_owner(&self, whole: &Path, at: &Path, stat: &Stat) -> Result<()> {
        match [self.uid, self.root, 0].contains(&stat.st_uid) {
            true => Ok(()),
            false => Err(untrusted(whole, at, format!("belongs to {}, who could exchange it", user(stat.st_uid)))),
        }
    }

    fn trust_as_parent(&self, whole: &Path, at: &Path, stat: &Stat) -> Result<()> {
        self.trust_owner(whole, at, stat)?;
        let sticky = stat.st_mode & 0o1000 != 0;
        if self.others_write(stat) && !sticky {
            return Err(untrusted(whole, at, "can be written by other users, who could exchange what is in it".into()));
        }
        Ok(())
    }

    fn trust_as_own(&self, whole: &Path, at: &Path, stat: &Stat) -> Result<()> {
        if stat.st_uid != self.uid {
            return Err(untrusted(
                whole,
                at,
                format!("belongs to {} and not to {}", user(stat.st_uid), user(self.uid)),
            ));
        }
        if stat.st_mode & 0o022 != 0 {
            let why = format!("can be written by other users; close it with 'chmod go-w {}'", at.display());
            return Err(untrusted(whole, at, why));
        }
        Ok(())
    }

    /// Whether somebody besides the owner may change a directory's entries. A user's own group, which by custom has the
    /// user's number, has nobody else in it, and root's only root. (An access control list shows in the group's bits.)
    fn others_write(&self, stat: &Stat) -> bool {
        let own_group = stat.st_gid == 0 || (stat.st_gid == self.gid && self.gid == self.uid);
        stat.st_mode & 0o002 != 0 || (stat.st_mode & 0o020 != 0 && !own_group)
    }
}

fn user(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
}

fn untrusted(whole: &Path, at: &Path, why: String) -> Error {
    Error::Untrusted { path: whole.to_owned(), at: at.to_owned(), why }
}

/// Whether a file that was opened from a trusted directory is this user's alone.
pub(crate) fn is_own_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    use super::*;

    /// Somebody else.
    const OTHER: u32 = 54_321;

    fn scratch() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("pb").tempdir_in("/tmp").unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        match open(path) {
            Err(error @ Error::Untrusted { .. }) => error.to_string(),
            other => panic!("{}: {other:?}", path.display()),
        }
    }

    #[test]
    fn a_directory_is_made_and_found_by_its_real_path() {
        let scratch = scratch();
        let real = scratch.path().canonicalize().unwrap();
        symlink("made/below", scratch.path().join("link")).unwrap();
        for path in ["made/below/x", "link/x", "link/../below/x", "made/./below/x/"] {
            let (dir, path) = open(&scratch.path().join(path)).unwrap();
            assert_eq!(path, real.join("made/below/x"));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
            assert_eq!(fstat(dir).unwrap().st_ino, fs::metadata(&path).unwrap().ino());
        }
        fs::write(scratch.path().join("file"), "").unwrap();
        symlink("around", scratch.path().join("around")).unwrap();
        for path in ["file", "file/x", "around/x"] {
            assert!(matches!(open(&scratch.path().join(path)), Err(Error::Home { .. })), "{path}");
        }
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let scratch = scratch();
        let (parent, home) = (scratch.path().join("parent"), scratch.path().join("parent/home"));
        fs::create_dir_all(&home).unwrap();
        set_mode(&home, 0o700);
        for (mode, trusted) in [(0o755, true), (0o777, false), (0o1777, true)] {
            set_mode(&parent, mode);
            assert_eq!(open(&home).is_ok(), trusted, "{mode:o}");
        }
        assert!(open(&parent).is_err(), "the home itself may not even be sticky");
        set_mode(&home, 0o770);
        let refusal = refusal(&home);
        assert!(refusal.contains("chmod go-w") && refusal.contains("PODBAY_HOME"), "{refusal}");
    }

    #[test]
    fn what_belongs_to_others_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let scratch = scratch();
        let (theirs, home) = (scratch.path().join("theirs"), scratch.path().join("theirs/home"));
        fs::create_dir_all(&home).unwrap();
        set_mode(&home, 0o700);
        chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
        let text = refusal(&home);
        assert!(text.contains("belongs to user 54321") && text.contains(theirs.to_str().unwrap()), "{text}");
        refusal(&theirs.join("new"));
        assert!(!theirs.join("new").exists(), "nothing was made there");
        // A link of theirs in a directory where everybody may make one.
        let (link, good) = (scratch.path().join("link"), scratch.path().join("good"));
        fs::create_dir(&good).unwrap();
        set_mode(scratch.path(), 0o1777);
        symlink(&good, &link).unwrap();
        open(&link.join("x")).unwrap();
        lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        refusal(&link.join("x"));
        // A group that others may be in.
        set_mode(scratch.path(), 0o770);
        open(&good.join("x")).unwrap();
        chown(scratch.path(), None, Some(OTHER)).unwrap();
        refusal(&good.join("x"));
    }
}
