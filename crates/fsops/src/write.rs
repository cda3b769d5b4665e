//! Writing a file: bytes are collected, and become the file at the end.

use std::fs::File;
use std::io::{self, Seek, Write as _};
use std::os::fd::AsFd;

use podbay_proto::files::{Write, WriteOutput};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::{Access as Permission, AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::Files;
use crate::identity::{Identity, lstat, mode, modified, size};
use crate::read::expect_file;
use crate::resolve::{Access, Lookup};
use crate::resolved_path::ResolvedPath;
use crate::temporary::{Temporary, spool};

/// A write in progress. Its path doesn't change until [`commit`](Self::commit); dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub struct PendingWrite {
    files: Files,
    target: Target,
    length: Option<u64>,
    written: u64,
}

impl Files {
    /// Starts to write a file.
    ///
    /// # Errors
    /// When the path can't be written: then no byte needs to be sent.
    pub fn start_write(&self, request: &Write) -> Result<PendingWrite> {
        let resolver = self.resolver(&request.scope)?;
        let lookup = Lookup { follow: !request.create_only, parents: request.parents };
        let resolved = resolver.allowed(&request.path, lookup, Access::Change)?;
        let target = Target::new(resolved, request.create_only, request.mode, request.length)?;
        Ok(PendingWrite { files: self.clone(), target, length: request.length, written: 0 })
    }
}

impl PendingWrite {
    /// Adds bytes.
    ///
    /// # Errors
    /// When they can't be stored, or exceed the announced length.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        if self.length.is_some_and(|length| self.written > length) {
            return Err(self.wrong_length());
        }
        self.target.write(bytes)
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When there are fewer bytes than announced, or the file can't be put in its place. Nothing has changed then, unless the
    /// disk was full for a file that can only be overwritten in place.
    pub fn commit(self) -> Result<WriteOutput> {
        if self.length.is_some_and(|length| self.written != length) {
            return Err(self.wrong_length());
        }
        let _lock = self.files.lock(self.target.resolved.lock_key());
        let path = self.target.resolved.shown.clone();
        let done = self.target.commit(None)?;
        Ok(WriteOutput {
            path,
            size: size(&done.stat),
            created: done.created,
            in_place: done.in_place,
            mode: mode(&done.stat),
            modified: modified(&done.stat),
            line_breaks: None,
        })
    }

    fn wrong_length(&self) -> Error {
        let (written, length) = (self.written, self.length.unwrap_or(0));
        let message = format!("{length} bytes were announced but {written} arrived; nothing was written");
        Error::at(ErrorCode::BadMessage, &self.target.resolved.asked, message)
    }
}

/// The result of a commit.
pub(crate) struct Done {
    pub(crate) stat: Stat,
    pub(crate) created: bool,
    pub(crate) in_place: bool,
}

/// Where the bytes are until the commit.
#[derive(Debug)]
enum Waiting {
    /// In a temporary file beside the target, to be renamed.
    Beside(Temporary),
    /// In a file elsewhere, to be copied over the target.
    Elsewhere(File),
}

/// A file that is being written, new or replacing another.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) resolved: ResolvedPath,
    create_only: bool,
    mode: Option<u32>,
    waiting: Waiting,
}

impl Target {
    /// Prepares to write to a path; `length` bytes, if that is known.
    pub(crate) fn new(
        resolved: ResolvedPath,
        create_only: bool,
        mode: Option<u32>,
        length: Option<u64>,
    ) -> Result<Self> {
        let name = resolved.name()?.to_vec();
        if mode.is_some_and(|mode| mode > 0o7777) {
            let message = "invalid mode: only the bits 07777 can be set";
            return Err(Error::at(ErrorCode::InvalidArgument, &resolved.asked, message));
        }
        if resolved.names_dir {
            return Err(resolved.error(Errno::ISDIR));
        }
        let old = match lstat(&resolved.dir, &name) {
            // Its directory doesn't exist yet and is made at the end; until then the bytes are in the one above.
            _ if !resolved.missing.is_empty() => None,
            Ok(_) if create_only => return Err(resolved.error(Errno::EXIST)),
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(resolved.error(error)),
        };
        let waiting = match &old {
            None => {
                Waiting::Beside(Temporary::in_dir(&resolved.dir, 0o666, length).map_err(|error| resolved.error(error))?)
            }
            Some(stat) => {
                expect_file(&resolved, stat)?;
                // Renaming needs only permission on the directory, but a file that was made read-only is meant to stay.
                writable(&resolved, &name).map_err(|error| resolved.error(error))?;
                beside(&resolved, stat, length).map_err(|error| resolved.error(error))?
            }
        };
        Ok(Self { resolved, create_only, mode, waiting })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let file = match &mut self.waiting {
            Waiting::Beside(temporary) => &mut temporary.file,
            Waiting::Elsewhere(file) => file,
        };
        file.write_all(bytes).map_err(|error| self.resolved.error(error))
    }

    /// Puts the file in its place. With `expected`, only if the target is still that one.
    pub(crate) fn commit(self, expected: Option<Identity>) -> Result<Done> {
        let Self { mut resolved, create_only, mode: wanted_mode, waiting } = self;
        resolved.make_parents()?;
        let name = resolved.name()?;
        let old = match lstat(&resolved.dir, name) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(resolved.error(error)),
        };
        if expected.is_some() && old.as_ref().map(Identity::from) != expected {
            let message = "was changed by someone else during the edit, so nothing was written. Read it again and repeat the edit";
            return Err(Error::at(ErrorCode::Conflict, &resolved.asked, message));
        }
        if let Some(stat) = &old
            && !create_only
        {
            expect_file(&resolved, stat)?;
        }
        let failed = |error: Errno| resolved.error(error);
        let mut source = match waiting {
            Waiting::Beside(temporary) => {
                let file = temporary.file.try_clone().map_err(|error| resolved.error(error))?;
                let kept = match (&old, wanted_mode) {
                    (Some(old), _) => keep(&file, old, wanted_mode),
                    (None, Some(mode)) => rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map(|()| true),
                    (None, None) => Ok(true),
                };
                if kept.map_err(failed)? {
                    match temporary.name(&resolved.dir, name, !create_only) {
                        Ok(()) => {
                            let stat = rustix::fs::fstat(&file).map_err(failed)?;
                            return Ok(Done { stat, created: old.is_none(), in_place: false });
                        }
                        // A mount point, or another user's file in a directory like /tmp.
                        Err(Errno::BUSY | Errno::XDEV | Errno::PERM | Errno::ACCESS)
                            if old.is_some() && !create_only => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
                file
            }
            Waiting::Elsewhere(file) => file,
        };
        let stat = overwrite(&resolved, &mut source, wanted_mode)?;
        Ok(Done { stat, created: false, in_place: true })
    }
}

/// Whether this process may write to a file.
fn writable(resolved: &ResolvedPath, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::accessat(&resolved.dir, name, Permission::WRITE_OK, AtFlags::EACCESS) {
        // Older kernels can only ask for the real user, who is the effective one here.
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            rustix::fs::accessat(&resolved.dir, name, Permission::WRITE_OK, AtFlags::empty())
        }
        answer => answer,
    }
}

/// Where to keep the bytes that will replace the file `old`.
fn beside(resolved: &ResolvedPath, old: &Stat, length: Option<u64>) -> rustix::io::Result<Waiting> {
    let dir = rustix::fs::fstat(&resolved.dir)?;
    // A mount point can't be renamed over.
    if dir.st_dev != old.st_dev {
        return Ok(Waiting::Elsewhere(spool()?));
    }
    match Temporary::in_dir(&resolved.dir, 0o600, length) {
        Ok(temporary) => Ok(Waiting::Beside(temporary)),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(Waiting::Elsewhere(spool()?)),
        Err(error) => Err(error),
    }
}

/// Gives a new file the owner and mode of the one that it replaces. False if it can't have that owner.
fn keep(file: &File, old: &Stat, wanted_mode: Option<u32>) -> rustix::io::Result<bool> {
    let new = rustix::fs::fstat(file)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        match rustix::fs::fchown(file, Some(uid), Some(gid)) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    // After the owner, because changing the owner clears bits of the mode. Set-id bits aren't kept: a write in place clears
    // them too.
    let mode = wanted_mode.unwrap_or(mode(old) & 0o1777);
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    Ok(true)
}

/// Overwrites the file in place.
fn overwrite(resolved: &ResolvedPath, source: &mut File, wanted_mode: Option<u32>) -> Result<Stat> {
    let mut target = File::from(resolved.open(OFlags::WRONLY | OFlags::NONBLOCK)?);
    expect_file(resolved, &rustix::fs::fstat(target.as_fd()).map_err(|error| resolved.error(error))?)?;
    let copied: io::Result<Stat> = (|| {
        source.rewind()?;
        let length = io::copy(source, &mut target)?;
        target.set_len(length)?;
        if let Some(mode) = wanted_mode {
            rustix::fs::fchmod(&target, Mode::from_raw_mode(mode))?;
        }
        Ok(rustix::fs::fstat(&target)?)
    })();
    copied.map_err(|error| resolved.error(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    /// A target for `f` in a new directory, and what `f` was when it was made.
    fn target(content: &str) -> (tempfile::TempDir, Target, Identity) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, content).unwrap();
        let files = Files::new(Settings { workdir: dir.path().to_owned(), ..Settings::default() });
        let resolver = files.resolver(&podbay_proto::files::Scope::default()).unwrap();
        let resolved = resolver.allowed(&"f".into(), Lookup { follow: true, parents: true }, Access::Change).unwrap();
        let identity = Identity::from(&resolved.stat().unwrap());
        let mut target = Target::new(resolved, false, None, None).unwrap();
        target.write(b"new").unwrap();
        (dir, target, identity)
    }

    #[test]
    fn a_file_that_someone_else_changed_is_left_as_it_is() {
        type Change = fn(&std::path::Path);
        let changes: [(Change, Option<&str>); 4] = [
            (|path| std::fs::write(path, "theirs").unwrap(), Some("theirs")),
            // The same size, and another file of the same name.
            (|path| std::fs::write(path, "dlo").unwrap(), Some("dlo")),
            (
                |path| {
                    std::fs::write(path.with_extension("x"), "old").unwrap();
                    std::fs::rename(path.with_extension("x"), path).unwrap();
                },
                Some("old"),
            ),
            (|path| std::fs::remove_file(path).unwrap(), None),
        ];
        for (change, left) in changes {
            let (dir, target, identity) = target("old");
            // Time stamps have the resolution of the kernel's clock tick.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let path = dir.path().join("f");
            change(&path);
            assert_eq!(target.commit(Some(identity)).err().map(|error| error.code), Some(ErrorCode::Conflict));
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), left);
            assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 1, "nothing is left behind");
        }
        let (dir, target, identity) = target("old");
        assert!(target.commit(Some(identity)).is_ok());
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), "new");
    }
}
