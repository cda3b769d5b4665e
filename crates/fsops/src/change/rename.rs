//! Moving and renaming.

use std::fs::File;
use std::io;

use podbay_proto::files::{Kind, Move, MoveOutput};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use crate::Files;
use crate::identity::{Identity, kind_of, mode, same_file, size};
use crate::resolve::{Access, Lookup};
use crate::resolved_path::ResolvedPath;
use crate::temporary::rename_new;
use crate::write::Target;

impl Files {
    /// Moves or renames.
    ///
    /// # Errors
    /// When either path can't be used, when something is at the new one and isn't to be replaced, and when a directory
    /// would have to go to another file system.
    pub fn mv(&self, request: &Move) -> Result<MoveOutput> {
        let resolver = self.resolver(&request.scope)?;
        let from = resolver.allowed(&request.from, Lookup { follow: false, parents: false }, Access::Remove)?;
        let from_name = from.name()?;
        let stat = from.stat()?;
        let kind = kind_of(&stat);
        let mut to =
            resolver.allowed(&request.to, Lookup { follow: false, parents: request.parents }, Access::Remove)?;
        let to_name = to.name()?.to_vec();
        if to.names_dir && kind != Kind::Dir {
            return Err(to.error(Errno::NOTDIR));
        }
        to.make_parents()?;
        let output = |copied| MoveOutput { from: from.shown.clone(), to: to.shown.clone(), kind, copied };
        // By the standard, renaming a file to another hard link of itself does nothing; callers expect the old name to go.
        if let Ok(there) = to.stat() {
            if !request.overwrite {
                return Err(to.error(Errno::EXIST));
            }
            if kind != Kind::Dir && kind_of(&there) == Kind::Dir {
                return Err(to.error(Errno::ISDIR));
            }
            if kind == Kind::Dir && kind_of(&there) != Kind::Dir {
                return Err(to.error(Errno::NOTDIR));
            }
            if same_file(&stat, &there) && !self.same_name(&from, &to)? {
                rustix::fs::unlinkat(&from.dir, from_name, AtFlags::empty()).map_err(|error| from.error(error))?;
                return Ok(output(false));
            }
        }
        let renamed = match request.overwrite {
            true => rustix::fs::renameat(&from.dir, from_name, &to.dir, &to_name[..]),
            false => rename_new(&from.dir, from_name, &to.dir, &to_name),
        };
        match renamed {
            Ok(()) => Ok(output(false)),
            Err(Errno::XDEV) => {
                let done = output(true);
                self.copy(&from, to, kind, !request.overwrite)?;
                Ok(done)
            }
            Err(Errno::INVAL) => {
                let message = format!("can't be moved into itself, to '{}'", request.to);
                Err(Error::at(ErrorCode::InvalidArgument, &from.asked, message))
            }
            Err(error @ (Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR)) => Err(to.error(error)),
            Err(error) => Err(from.error(error)),
        }
    }

    /// Whether both places are the same name in the same directory.
    fn same_name(&self, one: &ResolvedPath, other: &ResolvedPath) -> Result<bool> {
        let one_dir = rustix::fs::fstat(&one.dir).map_err(|error| one.error(error))?;
        let other_dir = rustix::fs::fstat(&other.dir).map_err(|error| other.error(error))?;
        Ok(same_file(&one_dir, &other_dir) && one.name == other.name)
    }

    /// Moves to another file system: makes a copy, which gets its name atomically, and then removes the old name.
    fn copy(&self, from: &ResolvedPath, to: ResolvedPath, kind: Kind, create_only: bool) -> Result<()> {
        let name = from.name()?;
        match kind {
            Kind::File => {
                let mut source = File::from(from.open(OFlags::RDONLY | OFlags::NONBLOCK)?);
                let stat = rustix::fs::fstat(&source).map_err(|error| from.error(error))?;
                let mut target = Target::new(to, create_only, Some(mode(&stat)), Some(size(&stat)))?;
                io::copy(&mut source, &mut Sink(&mut target)).map_err(|error| from.error(error))?;
                // What was written to the old file meanwhile would be lost.
                if Identity::from(&from.stat()?) != Identity::from(&stat) {
                    let message =
                        "was changed by someone else while it was copied to another file system, so nothing was moved";
                    return Err(Error::at(ErrorCode::Conflict, &from.asked, message));
                }
                target.commit(None)?;
            }
            Kind::Link => {
                let text = rustix::fs::readlinkat(&from.dir, name, Vec::new()).map_err(|error| from.error(error))?;
                if !create_only && to.stat().is_ok() {
                    rustix::fs::unlinkat(&to.dir, to.name()?, AtFlags::empty()).map_err(|error| to.error(error))?;
                }
                rustix::fs::symlinkat(text, &to.dir, to.name()?).map_err(|error| to.error(error))?;
            }
            _ => {
                let message = format!(
                    "is a directory and '{}' is on another file system: only files and links can be moved there; copy it instead",
                    to.asked
                );
                return Err(Error::at(ErrorCode::Unsupported, &from.asked, message));
            }
        }
        rustix::fs::unlinkat(&from.dir, name, AtFlags::empty()).map_err(|error| from.error(error))
    }
}

struct Sink<'a>(&'a mut Target);

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
