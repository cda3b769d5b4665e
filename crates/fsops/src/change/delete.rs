//! Deleting, by open directories: nothing outside of the tree can be reached by swapping a directory for a link.

use std::os::fd::{AsFd, OwnedFd};

use podbay_proto::files::{Delete, DeleteOutput, Kind};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::identity::kind_of;
use crate::place::Place;
use crate::view::{Access, Way};
use crate::{Cancel, Files};

/// How deep directories are followed. What lies deeper is moved up first, so that a tree of any depth needs few descriptors.
const MAX_DEPTH: usize = 64;

impl Files {
    /// Deletes a file, a link or a directory.
    ///
    /// # Errors
    /// When it can't be deleted. A directory may have lost a part of its contents then; the message says how much.
    pub fn delete(&self, request: &Delete, cancel: &Cancel) -> Result<DeleteOutput> {
        let view = self.view(&request.scope)?;
        let way = Way { follow: false, parents: request.missing_ok };
        let place = view.allowed(&request.path, way, Access::Remove)?;
        let name = place.name()?;
        let nothing = || DeleteOutput { path: place.shown.clone(), kind: None, removed: 0 };
        let stat = match place.stat() {
            Err(error) if error.code == ErrorCode::NotFound && request.missing_ok => return Ok(nothing()),
            stat => stat?,
        };
        let kind = kind_of(&stat);
        let mut removal = Removal { cancel, removed: 0 };
        let done = match kind {
            Kind::Dir => removal.directory(&place, name, request.recursive),
            _ => unlink(&place.dir, name, AtFlags::empty())
                .map_err(|error| place.fault(error))
                .map(|()| removal.removed += 1),
        };
        done.map_err(|error| removal.explain(error))?;
        Ok(DeleteOutput { path: place.shown, kind: Some(kind), removed: removal.removed })
    }
}

struct Removal<'a> {
    cancel: &'a Cancel,
    removed: u64,
}

impl Removal<'_> {
    fn directory(&mut self, place: &Place, name: &[u8], recursive: bool) -> Result<()> {
        let fault = |error: Errno| place.fault(error);
        match unlink(&place.dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed += 1;
                return Ok(());
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
            Err(Errno::EXIST) => return Err(fault(Errno::NOTEMPTY)),
            Err(error) => return Err(fault(error)),
        }
        let top = place.open_dir()?;
        loop {
            // Each round takes what the one before has moved up.
            let moved = self.contents(place, &top, &top, 0)?;
            if moved == 0 {
                break;
            }
        }
        unlink(&place.dir, name, AtFlags::REMOVEDIR).map_err(fault)?;
        self.removed += 1;
        Ok(())
    }

    /// Empties a directory. How many directories were moved to the top, because they lie too deep.
    fn contents(&mut self, place: &Place, top: &OwnedFd, dir: &OwnedFd, depth: usize) -> Result<u64> {
        let fault = |error: Errno| place.fault(error);
        let mut moved = 0;
        // Read whole before anything is removed: some file systems lose their place in a directory that changes.
        for (name, kind) in listing(dir).map_err(fault)? {
            self.cancel.check()?;
            if kind != FileType::Directory {
                match unlink(dir, &name, AtFlags::empty()) {
                    Ok(()) => self.removed += 1,
                    Err(Errno::NOENT) => {}
                    // It has become a directory since.
                    Err(Errno::ISDIR) => moved += 1,
                    Err(error) => return Err(fault(error)),
                }
                continue;
            }
            if depth >= MAX_DEPTH {
                let up =
                    format!(".podbay-deleted-{}-{moved}-{}", self.removed, rustix::process::getpid().as_raw_nonzero());
                rustix::fs::renameat(dir, &name[..], top, up).map_err(fault)?;
                moved += 1;
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(dir, &name[..], flags, Mode::empty()) {
                Ok(inner) => moved += self.contents(place, top, &inner, depth + 1)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(fault(error)),
            }
            match unlink(dir, &name, AtFlags::REMOVEDIR) {
                Ok(()) => self.removed += 1,
                Err(Errno::NOENT) => {}
                // It was swapped for something else meanwhile, which goes as what it is.
                Err(Errno::NOTDIR) => {
                    unlink(dir, &name, AtFlags::empty()).map(|()| self.removed += 1).map_err(fault)?
                }
                Err(error) => return Err(fault(error)),
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
