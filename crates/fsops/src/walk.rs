//! Walking a tree by open directories, in a fixed order.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use podbay_proto::files::Kind;
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::budget::{Cancel, Deadline, Gaps};
use crate::errno::error_at;
use crate::identity::{kind, kind_of, lstat, same_file};
use crate::visibility::Visibility;

/// Each level of a walk holds one descriptor. Deeper levels are reported as unreadable.
const MAX_DEPTH: usize = 400;

/// The order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the whole paths sort, byte by byte: `a-b` before `a/c`.
    Path,
    /// As the paths sort name by name: `a/c` before `a-b`, and a directory directly before what it contains.
    Name,
}

/// One entry of a walk.
#[derive(Debug)]
pub(crate) struct Found {
    /// The directory it is in.
    pub(crate) dir: Arc<OwnedFd>,
    /// Its path below the start.
    pub(crate) path: Vec<u8>,
    /// Where the name begins in that path.
    pub(crate) name_at: usize,
    /// What it is.
    pub(crate) kind: Kind,
}

impl Found {
    pub(crate) fn name(&self) -> &[u8] {
        &self.path[self.name_at..]
    }
}

struct Level {
    dir: Arc<OwnedFd>,
    /// The directory's path below the start, with a slash at the end; empty at the start.
    prefix: Vec<u8>,
    /// The remaining entries, the next one last.
    names: Vec<(Vec<u8>, Kind)>,
}

/// A walk through a tree. It never follows a link, and enters a directory only when told to.
pub(crate) struct Walk<'a> {
    levels: Vec<Level>,
    order: Order,
    visibility: &'a Visibility<'a>,
    deadline: &'a Deadline,
    cancel: &'a Cancel,
    /// Names at the start that are left out: kernel file systems.
    skipped: &'static [&'static [u8]],
    steps: u32,
    start: RawPath,
    /// The directory that was visited first, as a path relative to the start.
    visited: Option<Vec<u8>>,
    pub(crate) gaps: Gaps,
    over: bool,
}

impl<'a> Walk<'a> {
    /// Starts at `dir`, which errors name `start`.
    pub(crate) fn new(
        dir: OwnedFd,
        start: &RawPath,
        order: Order,
        visibility: &'a Visibility<'a>,
        deadline: &'a Deadline,
        cancel: &'a Cancel,
    ) -> Result<Self> {
        let is_root = match (rustix::fs::fstat(&dir), rustix::fs::stat("/")) {
            (Ok(dir), Ok(root)) => same_file(&dir, &root),
            _ => false,
        };
        let skipped: &[&[u8]] = if is_root { &[b"proc", b"sys", b"dev"] } else { &[] };
        let mut walk = Self {
            levels: Vec::new(),
            order,
            visibility,
            deadline,
            cancel,
            skipped,
            steps: 0,
            start: start.clone(),
            visited: None,
            gaps: Gaps::default(),
            over: false,
        };
        // A start that can't be read is an error, not a gap.
        walk.push(Arc::new(dir), Vec::new()).map_err(|error| error_at(start, error))?;
        Ok(walk)
    }

    /// Visits the directory at `below` before everything else, so that it is covered when the time runs out. `wanted` says for
    /// each directory on the path whether this walk would enter it. One that can't be entered is left for its turn, when the
    /// error is reported.
    pub(crate) fn begin_with(&mut self, below: &[Vec<u8>], wanted: impl Fn(&[u8]) -> bool) {
        let Some(mut dir) = self.levels.first().map(|level| Arc::clone(&level.dir)) else { return };
        let mut path = Vec::new();
        for (depth, name) in below.iter().enumerate() {
            path.extend_from_slice(name);
            let skipped = depth == 0 && self.skipped.contains(&&name[..]);
            if skipped || self.visibility.hides(&*dir, name, &path) || !wanted(&path) {
                return;
            }
            let access = if depth + 1 == below.len() { OFlags::RDONLY } else { OFlags::PATH };
            let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(next) = rustix::fs::openat(&*dir, &name[..], flags, Mode::empty()) else { return };
            dir = Arc::new(next);
            path.push(b'/');
        }
        if self.push(dir, path.clone()).is_ok() {
            path.pop();
            self.visited = Some(path);
        }
    }

    /// The next entry; nothing at the end or when the time is up.
    pub(crate) fn next(&mut self) -> Result<Option<Found>> {
        loop {
            self.steps = self.steps.wrapping_add(1);
            if self.steps.is_multiple_of(128) {
                self.cancel.check()?;
                if self.deadline.is_over() {
                    self.over = true;
                    self.gaps.limit(self.deadline.detail());
                }
            }
            let Some(level) = self.levels.last_mut().filter(|_| !self.over) else { return Ok(None) };
            let Some((name, kind)) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let name_at = level.prefix.len();
            let dir = Arc::clone(&level.dir);
            let path = [&level.prefix[..], &name[..]].concat();
            if name_at == 0 && self.skipped.contains(&&name[..]) || self.visibility.hides(&*dir, &name, &path) {
                continue;
            }
            return Ok(Some(Found { dir, path, name_at, kind }));
        }
    }

    /// Continues with the content of the directory that was found last.
    pub(crate) fn enter(&mut self, found: &Found) {
        if self.visited.as_ref() == Some(&found.path) {
            return;
        }
        if self.levels.len() >= MAX_DEPTH {
            let path = self.named(&found.path);
            let message = format!("is more than {MAX_DEPTH} levels below the start: start in a subdirectory");
            self.gaps.unreadable(&Error::at(ErrorCode::Unsupported, &path, message));
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entered = rustix::fs::openat(&*found.dir, found.name(), flags, Mode::empty())
            .and_then(|dir| self.push(Arc::new(dir), [&found.path[..], b"/"].concat()));
        match entered {
            Ok(()) => {}
            // It was removed or replaced since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => self.gaps.unreadable(&error_at(&self.named(&found.path), error)),
        }
    }

    /// A path relative to the start, as results show it.
    pub(crate) fn named(&self, below: &[u8]) -> RawPath {
        join(&self.start, below)
    }

    fn push(&mut self, dir: Arc<OwnedFd>, prefix: Vec<u8>) -> rustix::io::Result<()> {
        let mut names = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut listing = RawDir::new(&*dir, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems don't say.
                FileType::Unknown => match lstat(&*dir, name) {
                    Ok(stat) => kind_of(&stat),
                    Err(_) => continue,
                },
                known => kind(known),
            };
            names.push((name.to_vec(), kind));
        }
        match self.order {
            Order::Name => names.sort_unstable_by(|one, other| other.0.cmp(&one.0)),
            Order::Path => {
                // A directory's name is followed by a slash in the paths of what it contains.
                for (name, _) in names.iter_mut().filter(|(_, kind)| *kind == Kind::Dir) {
                    name.push(b'/');
                }
                names.sort_unstable_by(|one, other| other.0.cmp(&one.0));
                for (name, _) in names.iter_mut().filter(|(_, kind)| *kind == Kind::Dir) {
                    name.pop();
                }
            }
        }
        self.levels.push(Level { dir, prefix, names });
        Ok(())
    }
}

/// A directory's path joined with what is below it.
pub(crate) fn join(dir: &RawPath, below: &[u8]) -> RawPath {
    let slash: &[u8] = if dir.as_bytes().ends_with(b"/") { b"" } else { b"/" };
    [dir.as_bytes(), slash, below].concat().into()
}
