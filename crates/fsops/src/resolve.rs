//! Resolving a request's paths within its scope, to an open directory and a name.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use podbay_proto::files::{Kind, Scope};
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::errno::{error_at, error_code};
use crate::identity::{kind_of, lstat};
use crate::real_names::names_of_real;
use crate::resolved_path::{ResolvedPath, real_path, real_path_bytes};
use crate::rules::{Names, Rules, absolute, names};
use crate::visibility::Visibility;
use crate::{Files, Settings};

/// As many links as the kernel follows in one path.
pub(crate) const MAX_LINKS: usize = 40;

/// The kernel's limit for a path, its final NUL included.
const PATH_MAX: usize = 4096;

/// What an operation wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read it or list it.
    Read,
    /// Change what is at the path.
    Change,
    /// Remove what is at the path, with everything below.
    Remove,
}

/// How a path is resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup {
    /// A link at the end is followed. Links before the end always are.
    pub(crate) follow: bool,
    /// Directories before the end may be missing.
    pub(crate) parents: bool,
}

/// A scope, ready for use: with its root open and its rules resolved.
pub(crate) struct Resolver<'a> {
    settings: &'a Settings,
    root: Option<Root>,
    base: Names,
    is_virtual: bool,
    rules: Rules,
    rules_for_reads: bool,
    /// A rule of which it isn't known what it forbids: then nothing that rules limit may be done.
    unknown_rule: Option<Error>,
}

struct Root {
    dir: Dir,
    /// The root's path as the caller wrote it.
    names: Names,
}

impl Files {
    /// Opens a scope's root and resolves its rules.
    pub(crate) fn resolver(&self, scope: &Scope) -> Result<Resolver<'_>> {
        Resolver::new(&self.shared.settings, scope)
    }
}

impl<'a> Resolver<'a> {
    fn new(settings: &'a Settings, scope: &Scope) -> Result<Self> {
        let rerooted = |names: Names| settings.reroot(&names).unwrap_or(names);
        let workdir = scope.workdir.as_ref().map(absolute_names).transpose()?;
        let workdir = if scope.virtual_paths { workdir } else { workdir.map(rerooted) };
        let default = || names(settings.workdir.as_os_str().as_bytes());
        let mut root = None;
        let base;
        if let Some(path) = &scope.root {
            let names = rerooted(absolute_names(path)?);
            let dir = open_plain(&absolute(&names)).map_err(|error| error_at(path, error))?;
            base = match scope.virtual_paths {
                true => workdir.unwrap_or_default(),
                // A working directory outside of the root is ignored.
                false => Some(workdir.unwrap_or_else(default))
                    .filter(|dir| dir.starts_with(&names))
                    .unwrap_or_else(|| names.clone()),
            };
            root = Some(Root { dir: Dir::from_std_file(dir.into()), names });
        } else if scope.virtual_paths {
            let message = "virtual_paths needs a root: name the directory that the paths are relative to";
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        } else {
            base = workdir.unwrap_or_else(default);
        }
        let is_virtual = scope.virtual_paths;
        let mut resolver = Self {
            settings,
            root,
            base,
            is_virtual,
            rules: Rules::default(),
            rules_for_reads: scope.rules_for_reads,
            unknown_rule: None,
        };
        resolver.read_rules(scope)?;
        Ok(resolver)
    }

    /// The scope's prefixes as real paths.
    fn read_rules(&mut self, scope: &Scope) -> Result<()> {
        if scope.allow_prefixes.is_empty() && scope.deny_prefixes.is_empty() {
            return Ok(());
        }
        let real_root = self.root.as_ref().map(|root| real_path(&root.dir)).transpose()?;
        for prefix in &scope.allow_prefixes {
            let names = self.prefix_names(prefix)?;
            let paths = match &real_root {
                Some(real_root) => self.prefix_below_root(&names, real_root).into_iter().collect(),
                None => self.literal(names),
            };
            // An allowed prefix outside of the root allows nothing; without this it would be no rule at all.
            let nowhere = || vec![vec![b"\0".to_vec()]];
            self.rules.allow.extend(if paths.is_empty() { nowhere() } else { paths });
        }
        for prefix in &scope.deny_prefixes {
            let names = self.prefix_names(prefix)?;
            let mut paths: Vec<Names> = real_root
                .as_ref()
                .and_then(|real_root| self.prefix_below_root(&names, real_root))
                .into_iter()
                .collect();
            // What is outside of the root by its name may be below it by another one.
            if !self.is_virtual {
                paths.extend(self.literal(names));
                paths.dedup();
            }
            for path in paths {
                match names_of_real(path) {
                    Ok(names) => self.rules.deny.extend(names),
                    Err(error) => self.unknown_rule = Some(unknown_rule(prefix, error)),
                }
            }
        }
        Ok(())
    }

    /// The names of a prefix in the view of the scope.
    fn prefix_names(&self, prefix: &RawPath) -> Result<Names> {
        let mut names = names(prefix.as_bytes());
        if prefix.is_empty() || prefix.as_bytes().contains(&0) || names.iter().any(|name| name == b"..") {
            let message = "a path prefix can't be empty or contain '..' or a NUL byte";
            return Err(Error::at(ErrorCode::InvalidArgument, prefix, message));
        }
        if !prefix.as_bytes().starts_with(b"/") {
            names.splice(0..0, self.base.iter().cloned());
        }
        Ok(names)
    }

    /// Where a prefix is in the root's real directory.
    fn prefix_below_root(&self, prefix: &Names, real_root: &Names) -> Option<Names> {
        let root = self.root.as_ref()?;
        if self.is_virtual {
            return Some([&real_root[..], prefix].concat());
        }
        let rerooted = self.settings.reroot(prefix);
        let prefix = rerooted.as_ref().unwrap_or(prefix);
        match prefix.strip_prefix(&root.names[..]) {
            Some(below) => Some([real_root, below].concat()),
            // A prefix around the root covers all of it.
            None => root.names.starts_with(prefix).then(|| real_root.clone()),
        }
    }

    /// A path as it is written, and the one that it stands for, if any.
    fn literal(&self, path: Names) -> Vec<Names> {
        self.settings.reroot(&path).into_iter().chain([path]).collect()
    }

    /// The path where a search starts unless the request says otherwise.
    pub(crate) fn start(&self) -> RawPath {
        absolute(&self.base).into()
    }

    /// The working directory relative to an open directory, if it is below. Compares real paths.
    pub(crate) fn workdir_below(&self, dir: &OwnedFd) -> Option<Names> {
        let workdir = self.resolved(&self.start(), Lookup { follow: true, parents: false }).ok()?.real().ok()?;
        let below = workdir.strip_prefix(&real_path(dir).ok()?[..])?;
        (!below.is_empty()).then(|| below.to_vec())
    }

    /// The names to follow from the root (or from `/`), and the path as results show it.
    fn address(&self, path: &RawPath) -> Result<(Names, RawPath)> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(Error::at(ErrorCode::InvalidPath, path, "the path is empty"));
        }
        if bytes.contains(&0) {
            return Err(Error::at(ErrorCode::InvalidPath, path, "a path can't contain a NUL byte"));
        }
        if bytes.len() >= PATH_MAX {
            let message = format!("the path has {} bytes; at most {} are allowed", bytes.len(), PATH_MAX - 1);
            let start = RawPath::from(&bytes[..64]);
            return Err(Error::at(ErrorCode::InvalidPath, &start, message));
        }
        let mut full = names(bytes);
        if !bytes.starts_with(b"/") {
            full.splice(0..0, self.base.iter().cloned());
        }
        match &self.root {
            None => {
                let full = self.settings.reroot(&full).unwrap_or(full);
                let shown = absolute(&full).into();
                Ok((full, shown))
            }
            Some(_) if self.is_virtual => {
                let shown = absolute(&full).into();
                Ok((full, shown))
            }
            Some(root) => {
                let full = self.settings.reroot(&full).unwrap_or(full);
                let shown = absolute(&full).into();
                match full.strip_prefix(&root.names[..]) {
                    Some(below) => Ok((below.to_vec(), shown)),
                    None => {
                        let message =
                            format!("is outside the root directory '{}'", RawPath::from(absolute(&root.names)));
                        Err(Error::at(ErrorCode::EscapesRoot, path, message))
                    }
                }
            }
        }
    }

    /// Opens the directory at these names, beneath the root.
    fn open_dir(&self, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
        match &self.root {
            None => Ok(open_plain(&absolute(path))?),
            Some(root) => {
                // The dot at the end matters without openat2: a link at the end, opened with O_PATH, wouldn't be followed.
                let relative = [&path.join(&b'/')[..], if path.is_empty() { b"." } else { b"/." }].concat();
                let mut options = OpenOptions::new();
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                options.read(true).custom_flags(flags.bits().cast_signed());
                Ok(root.dir.open_with(Path::new(OsStr::from_bytes(&relative)), &options)?.into_std().into())
            }
        }
    }

    /// Resolves a path. No rule is checked yet.
    pub(crate) fn resolved(&self, path: &RawPath, lookup: Lookup) -> Result<ResolvedPath> {
        let (mut path_names, shown) = self.address(path)?;
        let mut names_dir = ends_as_dir(path.as_bytes());
        // `.` is the working directory, not a name in its parent: `rm -r .` is refused everywhere.
        let bare = names(path.as_bytes()).is_empty();
        for _ in 0..=MAX_LINKS {
            let name = match path_names.last() {
                Some(last) if last != b".." && !bare => last.clone(),
                _ => {
                    let dir = self.open_dir(&path_names).map_err(|error| error_at(path, error))?;
                    return Ok(ResolvedPath {
                        dir,
                        missing: Vec::new(),
                        name: None,
                        names_dir,
                        asked: path.clone(),
                        shown,
                    });
                }
            };
            let parent = &path_names[..path_names.len() - 1];
            let (dir, missing) = self.open_deepest(parent, lookup.parents).map_err(|error| error_at(path, error))?;
            if lookup.follow && missing.is_empty() {
                match rustix::fs::readlinkat(&dir, &name[..], Vec::new()) {
                    Ok(target) => {
                        let target = target.into_bytes();
                        let mut next = if target.starts_with(b"/") { Vec::new() } else { parent.to_vec() };
                        if target.starts_with(b"/") && self.root.is_some() {
                            let message = "is an absolute symbolic link that points outside the root directory";
                            return Err(Error::at(ErrorCode::EscapesRoot, path, message));
                        }
                        next.extend(names(&target));
                        names_dir |= ends_as_dir(&target);
                        path_names = next;
                        continue;
                    }
                    // Not a link, or nothing at all: resolved.
                    Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(error) => return Err(error_at(path, error)),
                }
            }
            if names_dir && missing.is_empty() && lstat(&dir, &name).is_ok_and(|stat| kind_of(&stat) != Kind::Dir) {
                return Err(error_at(path, Errno::NOTDIR));
            }
            return Ok(ResolvedPath { dir, missing, name: Some(name), names_dir, asked: path.clone(), shown });
        }
        Err(error_at(path, Errno::LOOP))
    }

    /// Opens the directory; if it may be missing, the deepest one above it that exists.
    fn open_deepest(&self, path: &[Vec<u8>], may_miss: bool) -> io::Result<(OwnedFd, Names)> {
        let mut depth = path.len();
        loop {
            match self.open_dir(&path[..depth]) {
                Ok(dir) => {
                    let missing = path[depth..].to_vec();
                    // `missing/..` doesn't exist, as for the kernel.
                    if missing.iter().any(|name| name == b"..") {
                        return Err(Errno::NOENT.into());
                    }
                    return Ok((dir, missing));
                }
                Err(error) if may_miss && depth > 0 && error_code(&error) == ErrorCode::NotFound => depth -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Resolves a path and checks the rules.
    pub(crate) fn allowed(&self, path: &RawPath, lookup: Lookup, access: Access) -> Result<ResolvedPath> {
        // Whether something exists in a forbidden directory isn't revealed, so the rules come first.
        let resolved = self.resolved(path, Lookup { parents: true, ..lookup })?;
        self.check(&resolved, access)?;
        match resolved.missing.is_empty() || lookup.parents {
            true => Ok(resolved),
            false => Err(resolved.error(Errno::NOENT)),
        }
    }

    fn has_rules(&self) -> bool {
        !self.rules.is_empty() || self.unknown_rule.is_some()
    }

    fn check(&self, resolved: &ResolvedPath, access: Access) -> Result<()> {
        if self.has_rules() && (access != Access::Read || self.rules_for_reads) {
            self.check_rules(resolved, access)?;
        }
        if access != Access::Read && self.is_near_own_dirs(resolved) {
            self.check_own_dirs(resolved, access)?;
        }
        Ok(())
    }

    /// Whether a path begins in one of Podbay's own directories, or in a directory above one: any other one, as most are, can't
    /// be in one of them.
    fn is_near_own_dirs(&self, resolved: &ResolvedPath) -> bool {
        if self.settings.hidden.is_empty() {
            return false;
        }
        let Ok(dir) = real_path_bytes(&resolved.dir) else { return true };
        let dir = Path::new(OsStr::from_bytes(&dir));
        self.settings.hidden.iter().any(|own| own.starts_with(dir) || dir.starts_with(own))
    }

    fn check_rules(&self, resolved: &ResolvedPath, access: Access) -> Result<()> {
        if let Some(error) = &self.unknown_rule {
            return Err(error.clone());
        }
        let path = resolved.real()?;
        let allowed = match access {
            Access::Remove => self.rules.allows_all_below(&path),
            Access::Change => self.rules.allows(&path),
            Access::Read => self.rules.allows(&path) || (self.rules.shows(&path) && leads_on(resolved.stat().ok())),
        };
        if allowed {
            return Ok(());
        }
        let message = match self.rules.allows(&path) {
            true => "contains files that a path rule protects",
            false => "denied by a path rule",
        };
        Err(Error::at(ErrorCode::PolicyDenied, &resolved.asked, message))
    }

    /// Podbay's own directories are only read, except for files of others that have a place there.
    fn check_own_dirs(&self, resolved: &ResolvedPath, access: Access) -> Result<()> {
        let path = match resolved.real() {
            Ok(path) => path,
            // Files can be written where there is no /proc.
            Err(_) if access == Access::Change => return Ok(()),
            Err(error) => return Err(error),
        };
        let real = |path: &Path| std::fs::canonicalize(path).ok().map(|real| names(real.as_os_str().as_bytes()));
        for own in self.settings.hidden.iter().map(|hidden| names(hidden.as_os_str().as_bytes())) {
            let for_others =
                |place: &Names| place.len() > own.len() && place.starts_with(&own) && path.starts_with(place);
            let message = if access == Access::Remove && own.starts_with(&path) {
                "contains Podbay's own state directory"
            } else if path.starts_with(&own)
                && !self.settings.reroots.iter().filter_map(|(_, place)| real(place)).any(|place| for_others(&place))
            {
                "is in Podbay's own state directory"
            } else {
                continue;
            };
            return Err(Error::at(ErrorCode::PolicyDenied, &resolved.asked, message));
        }
        Ok(())
    }

    /// What a listing or search that starts at `dir` leaves out.
    pub(crate) fn visibility(&self, dir: &OwnedFd) -> Result<Visibility<'_>> {
        let rules = (self.rules_for_reads && self.has_rules()).then_some(&self.rules);
        if let (Some(_), Some(error)) = (rules, &self.unknown_rule) {
            return Err(error.clone());
        }
        let start = if rules.is_some() { real_path(dir)? } else { Vec::new() };
        let hidden = self.settings.hidden.iter().filter_map(|path| {
            let name = path.file_name()?.as_bytes().to_vec();
            Some((name, rustix::fs::stat(path).ok()?))
        });
        Ok(Visibility { rules, start, hidden: hidden.collect() })
    }

    /// What a link at `name` in `dir` leads to, opened without reading it. `path` is where it stands below the place that
    /// `start` names.
    pub(crate) fn link_target(&self, start: &RawPath, below: &[u8]) -> Result<(OwnedFd, Stat)> {
        let path = RawPath::from([start.as_bytes(), b"/", below].concat());
        let resolved = self.allowed(&path, Lookup { follow: true, parents: false }, Access::Read)?;
        let target = match &resolved.name {
            None => resolved.dir,
            Some(name) => rustix::fs::openat(
                &resolved.dir,
                &name[..],
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|error| error_at(&path, error))?,
        };
        let stat = rustix::fs::fstat(&target).map_err(|error| error_at(&path, error))?;
        Ok((target, stat))
    }
}

/// The error for a rule that can't be applied because its path can't be followed.
fn unknown_rule(prefix: &RawPath, error: Errno) -> Error {
    let mut error = error_at(prefix, error);
    error.code = ErrorCode::PolicyDenied;
    error.message.push_str("; so it isn't known what this path rule forbids, and nothing was done");
    error
}

fn open_plain(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether something can lead to what is below it: a directory, or nothing yet.
pub(crate) fn leads_on(found: Option<Stat>) -> bool {
    found.is_none_or(|stat| kind_of(&stat) == Kind::Dir)
}

/// The names of a path from a scope, which has to be absolute and plain.
fn absolute_names(path: &RawPath) -> Result<Names> {
    let names = names(path.as_bytes());
    let plain =
        path.as_bytes().starts_with(b"/") && !path.as_bytes().contains(&0) && !names.iter().any(|name| name == b"..");
    match plain {
        true => Ok(names),
        false => {
            let message = "the root and the working directory of a scope must be absolute paths without '..'";
            Err(Error::at(ErrorCode::InvalidArgument, path, message))
        }
    }
}

/// Whether a path can only mean a directory, by how it ends.
fn ends_as_dir(path: &[u8]) -> bool {
    path == b"." || path.ends_with(b"/") || path.ends_with(b"/.")
}
