//! Deleting, by open directories: nothing outside of the tree can be reached by swapping a directory for a link.

use std::os::fd::{AsFd, OwnedFd};

use podbay_proto::files::{Delete, DeleteOutput, Kind};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::identity::kind_of;
use crate::resolve::{Access, Lookup};
use crate::resolved_path::ResolvedPath;
use crate::{Cancel, Files};

/// How deep directories are followed. Deeper ones are moved up first, so that a tree of any depth needs few descriptors.
const MAX_DEPTH: usize = 64;

impl Files {
    /// Deletes a file, a link or a directory.
    ///
    /// # Errors
    /// When it can't be deleted. A directory may then have lost some of its contents; the message says how many entries.
    pub fn delete(&self, request: &Delete, cancel: &Cancel) -> Result<DeleteOutput> {
        let resolver = self.resolver(&request.scope)?;
        let lookup = Lookup { follow: false, parents: request.missing_ok };
        let resolved = resolver.allowed(&request.path, lookup, Access::Remove)?;
        let name = resolved.name()?;
        let nothing = || DeleteOutput { path: resolved.shown.clone(), kind: None, removed: 0 };
        let stat = match resolved.stat() {
            Err(error) if error.code == ErrorCode::NotFound && request.missing_ok => return Ok(nothing()),
            stat => stat?,
        };
        let kind = kind_of(&stat);
        let mut removal = Removal { cancel, removed: 0 };
        let done = match kind {
            Kind::Dir => removal.directory(&resolved, name, request.recursive),
            _ => unlink(&resolved.dir, name, AtFlags::empty())
                .map_err(|error| resolved.error(error))
                .map(|()| removal.removed += 1),
        };
        done.map_err(|error| removal.explain(error))?;
        Ok(DeleteOutput { path: resolved.shown, kind: Some(kind), removed: removal.removed })
    }
}

struct Removal<'a> {
    cancel: &'a Cancel,
    removed: u64,
}

impl Removal<'_> {
    fn directory(&mut self, resolved: &ResolvedPath, name: &[u8], recursive: bool) -> Result<()> {
        let failed = |error: Errno| resolved.error(error);
        match unlink(&resolved.dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed += 1;
                return Ok(());
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
            Err(Errno::EXIST) => return Err(failed(Errno::NOTEMPTY)),
            Err(error) => return Err(failed(error)),
        }
        let top = resolved.open_dir()?;
        loop {
            // Each round deletes what the previous one moved up.
            let moved = self.contents(resolved, &top, &top, 0)?;
            if moved == 0 {
                break;
            }
        }
        unlink(&resolved.dir, name, AtFlags::REMOVEDIR).map_err(failed)?;
        self.removed += 1;
        Ok(())
    }

    /// Empties a directory. Returns how many directories were moved to the top because they are too deep.
    fn contents(&mut self, resolved: &ResolvedPath, top: &OwnedFd, dir: &OwnedFd, depth: usize) -> Result<u64> {
        let failed = |error: Errno| resolved.error(error);
        let mut moved = 0;
        // Read completely before anything is removed: some file systems skip entries of a directory that changes.
        for (name, kind) in listing(dir).map_err(failed)? {
            self.cancel.check()?;
            if kind != FileType::Directory {
                match unlink(dir, &name, AtFlags::empty()) {
                    Ok(()) => self.removed += 1,
                    Err(Errno::NOENT) => {}
                    // It was replaced by a directory meanwhile.
                    Err(Errno::ISDIR) => moved += 1,
                    Err(error) => return Err(failed(error)),
                }
                continue;
            }
            if depth >= MAX_DEPTH {
                let up =
                    format!(".podbay-deleted-{}-{moved}-{}", self.removed, rustix::process::getpid().as_raw_nonzero());
                rustix::fs::renameat(dir, &name[..], top, up).map_err(failed)?;
                moved += 1;
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(dir, &name[..], flags, Mode::empty()) {
                Ok(inner) => moved += self.contents(resolved, top, &inner, depth + 1)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(failed(error)),
            }
            match unlink(dir, &name, AtFlags::REMOVEDIR) {
                Ok(()) => self.removed += 1,
                Err(Errno::NOENT) => {}
                // It was replaced by something else meanwhile, which is deleted.
                Err(Errno::NOTDIR) => {
                    unlink(dir, &name, AtFlags::empty()).map(|()| self.removed += 1).map_err(failed)?
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(moved)
    }

    fn explain(&self, mut error: Error) -> Error {
        if self.removed > 0 {
            error.message = format!("{} ({} entries below it were deleted before that)", error.message, self.removed);
        }
        error
    }
}

fn unlink(dir: impl AsFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(dir, name, flags)
}

fn listing(dir: &OwnedFd) -> rustix::io::Result<Vec<(Vec<u8>, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match crate::identity::lstat(dir, name) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            },
            known => known,
        };
        names.push((name.to_vec(), kind));
    }
    Ok(names)
}
