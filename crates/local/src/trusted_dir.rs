//! Directories that no other user can replace.
//!
//! A program or file in a directory is only as safe as every directory above it: whoever may rename an entry of one can replace
//! it between a check and a use. So a path is resolved component by component, by descriptor, and each directory and link in it
//! must belong to root or to this user and be writable by nobody else. In a sticky directory such as `/tmp` everybody can write,
//! but only the owner of an entry can rename it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The kernel's limit on links in one path.
const MOST_LINKS: u32 = 40;

/// Opens this user's directory, creating it and its missing parents with mode 0700. Also returns its real path, which leads to
/// the same directory until root or this user changes that.
///
/// # Errors
/// When another user could replace it or a directory above it, or when it can't be opened or created.
pub(crate) fn open(path: &Path) -> Result<(OwnedFd, PathBuf)> {
    let whole = path;
    let fault = |at: &Path, what| {
        let at = at.to_owned();
        move |error: Errno| Error::home(at, what)(error.into())
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut real = PathBuf::from("/");
    let mut dirs = vec![openat(CWD, "/", flags, Mode::empty()).map_err(fault(&real, "can't open it"))?];
    let root = fstat(&dirs[0]).map_err(fault(&real, "can't stat it"))?;
    // In a user namespace the machine's root may be unmapped, but it still owns `/`.
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
            Err(Errno::NOENT) => make(dir, &name).map_err(fault(&at, "can't create the directory"))?,
            found => found.map_err(fault(&at, "can't open it"))?,
        };
        let stat = fstat(&found).map_err(fault(&at, "can't stat it"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if links < MOST_LINKS => {
                links += 1;
                us.trust_owner(whole, &at, &stat)?;
                let to = readlinkat(&found, "", Vec::new()).map_err(fault(&at, "can't read the link"))?;
                let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
                if to.is_absolute() {
                    dirs.truncate(1);
                    real = PathBuf::from("/");
                }
                prepend(&mut left, &to);
            }
            FileType::Symlink => return Err(fault(&at, "can't follow the link")(Errno::LOOP)),
            FileType::Directory => {
                us.trust_as_parent(whole, &at, &stat)?;
                dirs.push(found);
                real = at;
            }
            _ => return Err(fault(&at, "not a directory")(Errno::NOTDIR)),
        }
    }
    let dir = &dirs[dirs.len() - 1];
    us.trust_as_own(whole, &real, &fstat(dir).map_err(fault(&real, "can't stat it"))?)?;
    let opened = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    Ok((opened.map_err(fault(&real, "can't open it"))?, real))
}

/// Opens a subdirectory of one that [`open`] has opened, creating it if necessary.
///
/// # Errors
/// When another user owns it or can write to it, or when it can't be opened or created.
pub(crate) fn open_in(dir: BorrowedFd<'_>, path: &Path, name: &str) -> Result<OwnedFd> {
    let at = path.join(name);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => make(dir, OsStr::new(name)).and_then(|_| openat(dir, name, flags, Mode::empty())),
        opened => opened,
    };
    let opened = opened.map_err(|error| Error::home(&at, "can't open the directory")(error.into()))?;
    let stat = fstat(&opened).map_err(|error| Error::home(&at, "can't stat it")(error.into()))?;
    let uid = rustix::process::geteuid().as_raw();
    Us { uid, gid: rustix::process::getegid().as_raw(), root: 0 }.trust_as_own(path, &at, &stat)?;
    Ok(opened)
}

/// Creates a directory with mode 0700. Another user may have created it first, so the caller checks the owner.
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

/// The users that this process trusts.
struct Us {
    uid: u32,
    gid: u32,
    /// The owner of `/`.
    root: u32,
}

impl Us {
    fn trust_owner(&self, whole: &Path, at: &Path, stat: &Stat) -> Result<()> {
        match [self.uid, self.root, 0].contains(&stat.st_uid) {
            true => Ok(()),
            false => Err(untrusted(whole, at, format!("belongs to {}, who could replace it", user(stat.st_uid)))),
        }
    }

    fn trust_as_parent(&self, whole: &Path, at: &Path, stat: &Stat) -> Result<()> {
        self.trust_owner(whole, at, stat)?;
        let sticky = stat.st_mode & 0o1000 != 0;
        if self.others_write(stat) && !sticky {
            return Err(untrusted(whole, at, "is writable by other users, who could replace what is in it".into()));
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
            let why = format!("is writable by other users; run 'chmod go-w {}'", at.display());
            return Err(untrusted(whole, at, why));
        }
        Ok(())
    }

    /// Whether users other than the owner can change a directory's entries. By convention a user's private group has the user's
    /// number and no other members, and root's group has only root. (Access control lists show in the group bits.)
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

/// Whether a file in a trusted directory belongs to this user and is writable by nobody else.
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

    /// Another user.
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
        // Another user's link in a directory where everybody may create one.
        let (link, good) = (scratch.path().join("link"), scratch.path().join("good"));
        fs::create_dir(&good).unwrap();
        set_mode(scratch.path(), 0o1777);
        symlink(&good, &link).unwrap();
        open(&link.join("x")).unwrap();
        lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        refusal(&link.join("x"));
        // A group that other users may be in.
        set_mode(scratch.path(), 0o770);
        open(&good.join("x")).unwrap();
        chown(scratch.path(), None, Some(OTHER)).unwrap();
        refusal(&good.join("x"));
    }
}
