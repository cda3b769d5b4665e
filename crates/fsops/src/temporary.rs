//! A temporary file, which gets its name atomically at the end.

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Gid, MemfdFlags, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

/// The prefix of temporary files' names.
const PREFIX: &[u8] = b".podbay-";
/// Their suffix.
const SUFFIX: &[u8] = b".tmp";
/// The number of hexadecimal digits between.
const DIGITS: usize = 16;

/// Files up to this size are soon written, so they have a name from the beginning: a file without one (O_TMPFILE) costs the
/// file system more, and needs a name before it can replace another.
const BRIEF: u64 = 64 << 10;

/// Whether a name is that of one of our temporary files, which listings leave out.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

fn temporary_name() -> rustix::io::Result<Vec<u8>> {
    let mut random = [0; DIGITS / 2];
    let length = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    if length < random.len() {
        return Err(Errno::AGAIN);
    }
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([PREFIX, digits.as_bytes(), SUFFIX].concat())
}

/// A file that gets its name at the end. Dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Temporary {
    dir: OwnedFd,
    /// The open file.
    pub(crate) file: File,
    /// Its temporary name, if it has one.
    name: Option<Vec<u8>>,
}

impl Temporary {
    /// Makes a file in `dir`, for `length` bytes if that is known.
    pub(crate) fn in_dir(dir: impl AsFd, mode: u32, length: Option<u64>) -> rustix::io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        // Kept by itself, for the directory of a place is only a path to the kernel and can't be kept open otherwise.
        let dir = dir.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        if length.is_some_and(|length| length <= BRIEF) {
            match make(&dir, mode) {
                // Some file systems return this if no file can be made there; the attempt below tells why.
                Err(Errno::NOENT) => {}
                made => return made.map(|(file, name)| Self { dir, file, name: Some(name) }),
            }
        }
        match rustix::fs::openat(&dir, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(file) => return Ok(Self { dir, file: file.into(), name: None }),
            // Not every file system has them.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
        Self::named(dir, mode)
    }

    /// Makes a file with a temporary name.
    fn named(dir: OwnedFd, mode: Mode) -> rustix::io::Result<Self> {
        let (file, name) = make(&dir, mode)?;
        Ok(Self { dir, file, name: Some(name) })
    }

    /// Gives the file its name, in a directory of the same file system. With `replace`, it replaces what has that name.
    pub(crate) fn name(mut self, dir: impl AsFd, name: &[u8], replace: bool) -> rustix::io::Result<()> {
        if self.name.is_none() {
            match self.link(dir.as_fd(), name) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if !replace => return Err(Errno::EXIST),
                // A link can't replace, so the file gets a temporary name first.
                Err(_) => self.take_name()?,
            }
        }
        let Some(own) = &self.name else { return Err(Errno::NOENT) };
        if replace {
            rustix::fs::renameat(&self.dir, &own[..], dir, name)?;
        } else {
            match rustix::fs::renameat_with(&self.dir, &own[..], &dir, name, RenameFlags::NOREPLACE) {
                // Some file systems can't, and many of these can link: then the other name goes with this value.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    match rustix::fs::linkat(&self.dir, &own[..], &dir, name, AtFlags::empty()) {
                        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => rename_new(&self.dir, own, dir, name)?,
                        linked => return linked,
                    }
                }
                renamed => renamed?,
            }
        }
        self.name = None;
        Ok(())
    }

    /// Gives the file a temporary name.
    fn take_name(&mut self) -> rustix::io::Result<()> {
        let own = temporary_name()?;
        if self.link(self.dir.as_fd(), &own).is_ok() {
            self.name = Some(own);
            return Ok(());
        }
        // Some kernels and sandboxes make files without a name and then don't allow linking them.
        let dir = self.dir.try_clone().map_err(|_| Errno::MFILE)?;
        let mut copy = Self::named(dir, Mode::RUSR | Mode::WUSR)?;
        let copied = self.file.rewind().and_then(|()| std::io::copy(&mut self.file, &mut copy.file));
        copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let (old, new) = (rustix::fs::fstat(&self.file)?, rustix::fs::fstat(&copy.file)?);
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) {
            rustix::fs::fchown(&copy.file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
        }
        rustix::fs::fchmod(&copy.file, Mode::from_raw_mode(old.st_mode & 0o7777))?;
        *self = copy;
        Ok(())
    }

    fn link(&self, dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
        let number = self.file.as_raw_fd();
        let path = format!("/proc/self/fd/{number}");
        match rustix::fs::linkat(CWD, &path[..], dir, name, AtFlags::SYMLINK_FOLLOW) {
            // Without /proc this is the only way; it needs a capability.
            Err(Errno::NOENT) => rustix::fs::linkat(&self.file, c"", dir, name, AtFlags::EMPTY_PATH),
            done => done,
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // There is nobody to report an error to.
            let _ = rustix::fs::unlinkat(&self.dir, &name[..], AtFlags::empty());
        }
    }
}

/// Makes a file with a name that nobody else has.
fn make(dir: &OwnedFd, mode: Mode) -> rustix::io::Result<(File, Vec<u8>)> {
    let name = temporary_name()?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok((rustix::fs::openat(dir, &name[..], flags, mode)?.into(), name))
}

/// A file without a name, for bytes that can't be kept beside their target.
pub(crate) fn spool() -> rustix::io::Result<File> {
    for dir in [c"/tmp", c"/var/tmp", c"/dev/shm"] {
        if let Ok(file) =
            rustix::fs::openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        {
            return Ok(file.into());
        }
    }
    Ok(rustix::fs::memfd_create(c"podbay", MemfdFlags::CLOEXEC)?.into())
}

/// Renames, and fails if the new name exists.
pub(crate) fn rename_new(from_dir: impl AsFd, from: &[u8], to_dir: impl AsFd, to: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(&from_dir, from, &to_dir, to, RenameFlags::NOREPLACE) {
        // Some file systems can't. Then someone else may take the name between check and rename.
        Err(Errno::INVAL | Errno::NOSYS) => match crate::identity::lstat(&to_dir, to) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(from_dir, from, to_dir, to),
            Err(error) => Err(error),
        },
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both kinds of temporary files: with and without a name of their own.
    fn both(dir: &std::path::Path) -> [Temporary; 2] {
        let open = || rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let named = Temporary::named(open(), Mode::RUSR | Mode::WUSR).unwrap();
        [Temporary::in_dir(open(), 0o600, None).unwrap(), named]
    }

    #[test]
    fn a_file_takes_its_name_at_the_end_or_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| !is_temporary(name.as_encoded_bytes())).collect::<Vec<_>>()
        };
        let open = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        drop(both(dir.path()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        for temporary in both(dir.path()) {
            assert!(names().is_empty());
            temporary.name(&open, b"f", false).unwrap();
            assert_eq!(names(), ["f"]);
            for again in both(dir.path()) {
                assert_eq!(again.name(&open, b"f", false), Err(Errno::EXIST));
            }
            for mut again in both(dir.path()) {
                std::io::Write::write_all(&mut again.file, b"x").unwrap();
                again.name(&open, b"f", true).unwrap();
                assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"x");
            }
            std::fs::remove_file(dir.path().join("f")).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn temporary_names_are_known_again() {
        assert!(is_temporary(&temporary_name().unwrap()));
        for name in
            [&b".podbay"[..], b".podbay-.tmp", b".podbay-0123456789abcdeg.tmp", b"x.podbay-0123456789abcdef.tmp"]
        {
            assert!(!is_temporary(name));
        }
    }
}
