//! Symbolic links out of a sandbox, made on this machine.
//!
//! Each link must be harmless by itself: whatever other links exist, now or later, following it must not lead out of the
//! directory that is fetched. Counting the components of its target isn't enough, because a component may be another link, and
//! `..` goes up from wherever that one points. So a link is created only if
//!
//! - it is in a real directory, reached through no link, at the depth that its path has;
//! - its target is relative, goes up only at its beginning, and not above the top.
//!
//! Going up then begins in a real directory, and everything after it goes down, or through another link of which the same
//! is true. No order, no chain and no later download can change that. What remains are links that were in the target before, and
//! are its owner's: a link that leads out through one of those is removed again.

use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;

/// How many links are kept for later at most. They are created after the files, but a sandbox could list them without end.
pub(crate) const AT_ONCE: usize = 1 << 16;

/// A link that a sandbox has named. Its path is relative, and every part of it is a plain name.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

/// Why a link wasn't made.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It isn't safe.
    Unsafe(&'static str),
    /// The operating system refused.
    Failed(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Makes links beneath a directory. Gives those that weren't made.
pub(crate) fn make(top: &Dir, links: Vec<Link>) -> Vec<(PathBuf, Refusal)> {
    let mut refused = Vec::new();
    let mut made = Vec::new();
    for link in links {
        let result = check(&link).and_then(|()| place(top, &link));
        match result {
            Ok(()) => made.push(link.path),
            Err(refusal) => refused.push((link.path, refusal)),
        }
    }
    // All are looked at before the first goes: one may lead out through another.
    made.retain(|path| leads_out(top, path));
    for path in made {
        let refusal = match top.remove_file(&path) {
            Ok(()) => Refusal::Unsafe("it points outside the target directory through an existing link"),
            Err(error) => Refusal::Failed(error),
        };
        refused.push((path, refusal));
    }
    refused
}

/// Whether a link can be made, by its words alone.
fn check(link: &Link) -> Result<(), Refusal> {
    let mut level = link.path.components().count().saturating_sub(1);
    let mut goes_down = false;
    for part in link.target.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => goes_down = true,
            Component::ParentDir if goes_down => {
                return Err(Refusal::Unsafe("its target has '..' after a name and may point outside the directory"));
            }
            Component::ParentDir if level > 0 => level -= 1,
            _ => return Err(Refusal::Unsafe("a link that leads out of the directory")),
        }
    }
    Ok(())
}

/// Whether the kernel comes out of the directory when it follows a link. One that leads nowhere, or in a circle, stays in.
fn leads_out(top: &Dir, path: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    #[cfg(unix)]
    let circle = |error: &std::io::Error| error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    #[cfg(not(unix))]
    let circle = |_: &std::io::Error| false;
    match top.metadata(path) {
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), NotFound | NotADirectory) && !circle(&error),
    }
}

/// Makes a link in its directory, which is made if need be. Another link there is replaced, a file isn't.
#[cfg(unix)]
fn place(top: &Dir, link: &Link) -> Result<(), Refusal> {
    use rustix::fs::{AtFlags, FileType, readlinkat, statat, symlinkat, unlinkat};
    use rustix::io::Errno;
    let Some(name) = link.path.file_name() else { return Err(Refusal::Unsafe("it has no name")) };
    let dir = real_directory(top, link.path.parent().unwrap_or(Path::new("")))?;
    let error = match symlinkat(&link.target, &dir, name) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let is_link = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
    if error != Errno::EXIST || !is_link {
        return Err(std::io::Error::from(error).into());
    }
    use std::os::unix::ffi::OsStrExt;
    let same = readlinkat(&dir, name, Vec::new()).is_ok_and(|to| to.as_bytes() == link.target.as_os_str().as_bytes());
    if !same {
        unlinkat(&dir, name, AtFlags::empty()).map_err(std::io::Error::from)?;
        symlinkat(&link.target, &dir, name).map_err(std::io::Error::from)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn place(_: &Dir, _: &Link) -> Result<(), Refusal> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "symbolic links can't be created on this system").into())
}

/// Opens a directory beneath another, through no link; makes what is missing.
#[cfg(unix)]
fn real_directory(top: &Dir, path: &Path) -> Result<std::os::fd::OwnedFd, Refusal> {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: std::os::fd::BorrowedFd<'_>, name: &std::ffi::OsStr| match openat(dir, name, flags, Mode::empty())
    {
        Err(Errno::NOENT) => match mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => openat(dir, name, flags, Mode::empty()),
            Err(error) => Err(error),
        },
        opened => opened,
    };
    use std::os::fd::AsFd;
    let mut dir = top.as_fd().try_clone_to_owned()?;
    for part in path.components() {
        dir = match open(dir.as_fd(), part.as_os_str()) {
            Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => {
                return Err(Refusal::Unsafe("a link or a file is in place of its directory"));
            }
            opened => opened.map_err(std::io::Error::from)?,
        };
    }
    Ok(dir)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    fn link(path: &str, target: &str) -> Link {
        Link { path: path.into(), target: target.into() }
    }

    struct Target {
        outer: tempfile::TempDir,
        dir: Dir,
    }

    impl Target {
        fn new() -> Self {
            let outer = tempfile::tempdir().unwrap();
            fs::create_dir_all(outer.path().join("top")).unwrap();
            fs::write(outer.path().join("secret"), "").unwrap();
            let dir = Dir::open_ambient_dir(outer.path().join("top"), ambient_authority()).unwrap();
            Self { outer, dir }
        }

        fn top(&self) -> PathBuf {
            self.outer.path().join("top")
        }

        /// The names of the links that were refused.
        fn make(&self, links: &[(&str, &str)]) -> BTreeSet<String> {
            let links = links.iter().map(|(path, target)| link(path, target)).collect();
            make(&self.dir, links).into_iter().map(|(path, _)| path.display().to_string()).collect()
        }

        /// Follows every path of up to so many names, by the kernel, links included.
        fn stays_in(&self, names: usize) {
            let top = self.top().canonicalize().unwrap();
            let mut paths = vec![(top.clone(), 0)];
            while let Some((path, depth)) = paths.pop() {
                let Ok(real) = path.canonicalize() else { continue };
                assert!(real.starts_with(&top), "{} leads to {}", path.display(), real.display());
                if real.is_dir() && depth < names {
                    paths.extend(fs::read_dir(&path).unwrap().map(|entry| (entry.unwrap().path(), depth + 1)));
                }
            }
        }
    }

    #[test]
    fn links_may_point_around_but_not_out() {
        let target = Target::new();
        let inside = [("a/l", "b"), ("a/b/l", "../../c"), ("m", "./c/d"), ("n", "."), ("a/o", ".."), ("a/p", "gone/x")];
        assert_eq!(target.make(&inside), BTreeSet::new());
        let outside = [
            ("l", ".."),
            ("a/m", "../../x"),
            ("o", "a/../../x"),
            ("p", "/etc"),
            ("q", "a/b/../c"),
            ("r", "//etc"),
            ("a/s", "./.././.."),
        ];
        assert_eq!(target.make(&outside).len(), outside.len());
        // A second time nothing changes, and one with another target is replaced.
        assert_eq!(target.make(&inside), BTreeSet::new());
        assert_eq!(target.make(&[("m", "a")]), BTreeSet::new());
        assert_eq!(fs::read_link(target.top().join("m")).unwrap(), Path::new("a"));
        fs::write(target.top().join("file"), "kept").unwrap();
        assert_eq!(target.make(&[("file", "a"), ("file/l", "a")]).len(), 2);
        assert_eq!(fs::read_to_string(target.top().join("file")).unwrap(), "kept");
        target.stays_in(5);
    }

    /// Each link of a chain was harmless by its words, and following them led out.
    #[test]
    fn chains_of_links_dont_lead_out() {
        let target = Target::new();
        target.make(&[("a/b/up", "../.."), ("x", "a/b/up/../secret"), ("y", "a/b/up/.."), ("z", "y/secret")]);
        // A link where another one's directory should be: it would lie higher than its path says.
        target.make(&[("flat", "."), ("flat/l", "../secret"), ("flat/flat/l", "../../secret")]);
        target.make(&[("d/to", "../a/b"), ("d/to/l", "../../../secret")]);
        target.stays_in(6);
        assert!(!target.top().join("l").exists() && fs::read_link(target.top().join("x")).is_err());
    }

    #[test]
    fn links_through_the_owners_own_are_taken_back() {
        let target = Target::new();
        std::os::unix::fs::symlink("..", target.top().join("owners")).unwrap();
        let refused =
            target.make(&[("l", "owners/secret"), ("m", "l"), ("n", "owners/none"), ("o", "owners"), ("p", "a")]);
        assert_eq!(refused.into_iter().collect::<Vec<_>>(), ["l", "m", "n", "o"]);
        assert!(fs::read_link(target.top().join("owners")).is_ok(), "that one stays");
    }

    /// Random trees, made in several downloads one after the other: by no path does the kernel come out.
    #[test]
    fn no_path_leads_out_of_random_trees() {
        let words = ["a", "b", "c", "..", "..", ".", "/", "A"];
        let word = || words[rand::random::<u32>() as usize % words.len()];
        let path = |most: u32| {
            let names = || ["a", "b", "c"][rand::random::<u32>() as usize % 3];
            (0..=rand::random::<u32>() % most).map(|_| names()).collect::<Vec<_>>().join("/")
        };
        let (mut made, mut refused) = (0, 0);
        for _ in 0..100 {
            let target = Target::new();
            for _ in 0..3 {
                for _ in 0..rand::random::<u32>() % 3 {
                    // A file or link may be in the way.
                    let _ = target.dir.create_dir_all(path(3));
                }
                let links: Vec<Link> = (0..8)
                    .map(|_| {
                        let to: Vec<&str> = (0..=rand::random::<u32>() % 4).map(|_| word()).collect();
                        Link { path: path(4).into(), target: to.join("/").into() }
                    })
                    .collect();
                let count = links.len();
                let not = make(&target.dir, links).len();
                made += count - not;
                refused += not;
            }
            target.stays_in(5);
        }
        assert!(made > 150 && refused > 150, "{made} made, {refused} refused");
    }
}
