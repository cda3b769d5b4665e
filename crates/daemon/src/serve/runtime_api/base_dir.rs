//! The directory that the stock runtime's API is confined to, and paths in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use podbay_proto::RawPath;
use podbay_proto::files::Scope;

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// Longer paths don't exist.
const PATH_MAX: usize = 4096;

/// What the API never touches, should the directory contain it: with the kernel's files, a client could change podbayd itself.
const KERNEL_DIRS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The directory.
#[derive(Debug)]
pub(super) struct BaseDir {
    path: PathBuf,
    /// podbayd's state directory.
    state: PathBuf,
}

/// A path in it, with all links followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfinedPath {
    /// Confines the operation to the directory: what the path leads to may have changed since.
    pub(super) scope: Scope,
    pub(super) path: RawPath,
}

/// Why a path is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathRefusal {
    /// It leads out of the directory.
    Denied,
    /// Nothing can be there.
    Missing,
}

impl BaseDir {
    pub(super) fn new(path: PathBuf, state: &Path) -> Self {
        Self { path, state: state.to_owned() }
    }

    /// As it was configured.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds a path as the stock runtime does: leading slashes mean nothing, and links may lead anywhere in the directory, also by
    /// an absolute path. Reads links.
    ///
    /// # Errors
    /// When it leads out of the directory, or the directory doesn't exist.
    pub(super) fn resolve(&self, asked: &[u8]) -> Result<ConfinedPath, PathRefusal> {
        if asked.contains(&0) {
            return Err(PathRefusal::Denied);
        }
        if asked.len() >= PATH_MAX {
            return Err(PathRefusal::Missing);
        }
        let base = std::fs::canonicalize(&self.path).map_err(|_| PathRefusal::Missing)?;
        let private = KERNEL_DIRS.iter().map(Path::new).chain([&*self.state]);
        let private: Vec<&Path> = private.filter(|directory| !base.starts_with(directory)).collect();
        let real = real_path(&base, asked, &private);
        let below = real.strip_prefix(&base).map_err(|_| PathRefusal::Denied)?;
        let view = |below: &Path| RawPath::from([&b"/"[..], below.as_os_str().as_bytes()].concat());
        let denied: Vec<&Path> = private.iter().filter_map(|path| path.strip_prefix(&base).ok()).collect();
        if denied.iter().any(|path| below.starts_with(path)) {
            return Err(PathRefusal::Denied);
        }
        let scope = Scope {
            root: Some(base.as_os_str().as_bytes().into()),
            virtual_paths: true,
            deny_prefixes: denied.into_iter().map(view).collect(),
            rules_for_reads: true,
            ..Scope::default()
        };
        Ok(ConfinedPath { scope, path: view(below) })
    }
}

/// Where a path leads from `base`, with all links followed. What doesn't exist stays as it is. The way ends where it enters a
/// private directory: nobody gets to know where its links lead.
fn real_path(base: &Path, asked: &[u8], private: &[&Path]) -> PathBuf {
    let names = |path: &[u8]| -> Vec<Vec<u8>> { path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect() };
    let mut path = base.to_owned();
    let mut left = names(asked);
    let mut links = 0;
    while let Some(name) = left.pop() {
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(path.pop()),
            name => {
                path.push(OsStr::from_bytes(name));
                if private.iter().any(|directory| path.starts_with(directory)) {
                    return path;
                }
                let Some(target) = std::fs::read_link(&path).ok().filter(|_| links < MAX_LINKS) else { continue };
                links += 1;
                path.pop();
                if target.is_absolute() {
                    path = PathBuf::from("/");
                }
                left.extend(names(target.as_os_str().as_bytes()));
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_stay_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let base = root.join("base");
        std::fs::create_dir_all(base.join("d/e")).unwrap();
        std::fs::create_dir(root.join("base2")).unwrap();
        symlink(base.join("d"), base.join("absolute")).unwrap();
        symlink("../base/d", base.join("relative")).unwrap();
        symlink("../base2", base.join("out")).unwrap();
        symlink("/etc", base.join("etc")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        symlink("gone/../../..", base.join("dangling")).unwrap();
        let dir = BaseDir::new(base.clone(), &base.join("d/.podbay"));
        for (asked, path) in [
            ("", "/"),
            ("/", "/"),
            ("a", "/a"),
            ("///d/./x", "/d/x"),
            ("d/../a", "/a"),
            ("missing/../a", "/a"),
            ("absolute/x", "/d/x"),
            ("relative/e/..", "/d"),
            ("etc/../base/a", ""),
            ("out", ""),
            ("etc/passwd", ""),
            ("..", ""),
            ("../base2", ""),
            ("../base/a", "/a"),
            ("dangling", ""),
            ("loop/x", "/loop/x"),
            ("a\0", ""),
        ] {
            let place = dir.resolve(asked.as_bytes());
            match path {
                "" => assert_eq!(place, Err(PathRefusal::Denied), "{asked:?}"),
                path => assert_eq!(place.unwrap().path, RawPath::from(path), "{asked:?}"),
            }
        }
        assert_eq!(dir.resolve(&[b'a'; PATH_MAX]), Err(PathRefusal::Missing));
        assert_eq!(dir.resolve(b"a").unwrap().scope.deny_prefixes, [RawPath::from("/d/.podbay")]);
        assert_eq!(BaseDir::new(root.join("none"), &root).resolve(b""), Err(PathRefusal::Missing));
        let whole = BaseDir::new("/".into(), Path::new("/run/podbay"));
        for path in ["proc/1", "proc/self/exe", "proc/self/root/etc/passwd"] {
            assert_eq!(whole.resolve(path.as_bytes()), Err(PathRefusal::Denied), "{path}");
        }
        assert_eq!(
            whole.resolve(b"etc").unwrap().scope.deny_prefixes,
            ["/proc", "/sys", "/dev", "/run/podbay"].map(RawPath::from)
        );
    }
}
