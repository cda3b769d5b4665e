//! Whole directories between this machine and a sandbox.
//!
//! There is no archive: each file is a request, many under way at once. What comes out of a sandbox is hostile, so it is
//! written beneath its target directory by descriptors, never by a path that something inside could have bent.

use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, OpenOptions};
use futures_util::stream::{self, StreamExt};
use podbay_proto::files::{Download, Kind, Tree, TreeEntry, Write};
use podbay_proto::{ErrorCode, RawPath, Subject};

use crate::Sandbox;
use crate::error::{Error, Result};
use crate::file_operations::AT_ONCE;
use crate::guard::Several;
use crate::links::{self, Link, Refusal};
use crate::transfer::{Meter, join};

/// The result of a directory's transfer.
#[derive(Debug, Default)]
pub struct Transferred {
    /// How many files were transferred.
    pub files: u64,
    /// What was skipped and why: links, devices, names that this machine can't have.
    pub skipped: Vec<(String, String)>,
    /// Which files failed, and why.
    pub failed: Vec<(String, Error)>,
}

impl Sandbox {
    /// Uploads a directory of this machine and everything below it. Files that exist are replaced, others stay.
    ///
    /// Rules hold for each file and directory by itself: one that they forbid is among those that failed, and the others arrive.
    ///
    /// # Errors
    /// When the directory can't be read. What happened to each file is in the result.
    pub async fn upload_tree(
        &self,
        local: &Path,
        remote: impl Into<RawPath>,
        meter: &Meter<'_>,
    ) -> Result<Transferred> {
        let remote = remote.into();
        let several = Several::begin(self.session.guard(), "upload_tree", Subject::Path(Some(&remote)))?;
        let done = self.upload_directory(local, &remote, meter).await;
        several.finish(done)
    }

    async fn upload_directory(&self, local: &Path, remote: &RawPath, meter: &Meter<'_>) -> Result<Transferred> {
        let root = local.to_owned();
        let found = tokio::task::spawn_blocking(move || walk(&root)).await.map_err(std::io::Error::from);
        let found = found.flatten().map_err(Error::local(local))?;
        meter.add(|progress| {
            progress.total_files = Some(found.files.len() as u64);
            progress.total_bytes = Some(found.bytes);
        });
        let mut done = Transferred { skipped: found.skipped, ..Transferred::default() };
        match self.mkdir(remote).await {
            // Something below it may be allowed all the same: each file is decided on by itself.
            Err(error) if error.code() == Some(ErrorCode::PolicyDenied) && !found.files.is_empty() => {}
            made => drop(made?),
        }
        for dir in found.empty {
            if let Err(error) = self.mkdir(join(remote, &raw(&dir))).await {
                done.failed.push((dir.display().to_string(), error));
            }
        }
        let mut uploads = stream::iter(found.files)
            .map(|(below, mode)| async move {
                let request = Write::new(join(remote, &raw(&below))).mode(mode);
                let result = self.upload_file(&local.join(&below), request, meter).await;
                (below, result.map(drop))
            })
            .buffer_unordered(AT_ONCE);
        while let Some((below, result)) = uploads.next().await {
            done.count(below.display().to_string(), result);
        }
        Ok(done)
    }

    /// Downloads a directory and everything below it into a directory of this machine, which is created when it doesn't exist. What
    /// rules forbid to read isn't listed by the sandbox, and so isn't in the result.
    ///
    /// # Errors
    /// When the directory can't be read or the target can't be created. What happened to each file is in the result.
    pub async fn download_tree(
        &self,
        remote: impl Into<RawPath>,
        local: &Path,
        meter: &Meter<'_>,
    ) -> Result<Transferred> {
        let remote = remote.into();
        let several = Several::begin(self.session.guard(), "download_tree", Subject::Path(Some(&remote)))?;
        let done = self.download_directory(&remote, local, meter).await;
        several.finish(done)
    }

    async fn download_directory(&self, remote: &RawPath, local: &Path, meter: &Meter<'_>) -> Result<Transferred> {
        std::fs::create_dir_all(local).map_err(Error::local(local))?;
        let target = Dir::open_ambient_dir(local, ambient_authority()).map_err(Error::local(local))?;
        let mut done = Transferred::default();
        let mut links = Vec::new();
        let mut request = Tree::new(remote.clone());
        loop {
            let page = self.tree(&request).await?;
            let last = page.entries.last().map(|entry| entry.path.clone());
            links.extend(self.download_entries(remote, &target, page.entries, &mut done, meter).await);
            if links.len() >= links::AT_ONCE {
                done.link(&target, std::mem::take(&mut links)).await?;
            }
            match (page.partial, last) {
                (Some(partial), Some(last)) if partial.limit_reached => request.after = Some(last),
                (Some(partial), _) if partial.unreadable > 0 => {
                    done.skipped.push((remote.to_string(), partial.detail));
                    break;
                }
                _ => break,
            }
        }
        done.link(&target, links).await?;
        Ok(done)
    }

    /// Fetches directories and files; gives the links.
    async fn download_entries(
        &self,
        remote: &RawPath,
        target: &Dir,
        entries: Vec<TreeEntry>,
        done: &mut Transferred,
        meter: &Meter<'_>,
    ) -> Vec<Link> {
        let (mut files, mut links) = (Vec::new(), Vec::new());
        for entry in entries {
            let name = entry.path.to_string();
            match (entry.kind, safe(&entry.path)) {
                (_, None) => done.skipped.push((name, "its name points outside the target directory".into())),
                (Kind::Dir, Some(path)) => {
                    if let Err(error) = target.create_dir_with_parents(&path) {
                        done.failed.push((name, Error::local(&path)(error)));
                    }
                }
                (Kind::File, Some(path)) => files.push((entry, path)),
                (Kind::Link, Some(path)) => match entry.target.as_ref().and_then(native) {
                    Some(target) => links.push(Link { path, target }),
                    None => done.skipped.push((name, "a link whose target isn't a valid path on this machine".into())),
                },
                _ => done.skipped.push((name, "neither a file nor a directory".into())),
            }
        }
        meter.add(|progress| {
            let bytes: u64 = files.iter().map(|(entry, _)| entry.size).sum();
            progress.total_files = Some(progress.total_files.unwrap_or(0) + files.len() as u64);
            progress.total_bytes = Some(progress.total_bytes.unwrap_or(0) + bytes);
        });
        let mut downloads = stream::iter(files)
            .map(|(entry, path)| async move {
                let request = Download::new(join(remote, &entry.path));
                let result = self.download_entry(request, target, entry.mode, &path, meter).await;
                (entry.path.to_string(), result)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((name, result)) = downloads.next().await {
            done.count(name, result);
        }
        links
    }

    async fn download_entry(
        &self,
        request: Download,
        target: &Dir,
        mode: u32,
        path: &Path,
        meter: &Meter<'_>,
    ) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(not(unix))]
        let _ = mode;
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            // No set-user-id bits come out of a sandbox.
            options.mode(mode & 0o777);
        }
        if let Some(parent) = path.parent() {
            target.create_dir_with_parents(parent).map_err(Error::local(parent))?;
        }
        let file = target.open_with(path, &options).map_err(Error::local(path))?.into_std();
        self.download_into(request, file, meter).await.map(drop)
    }
}

impl Transferred {
    /// Makes links, and notes those that weren't made.
    async fn link(&mut self, target: &Dir, links: Vec<Link>) -> Result<()> {
        if links.is_empty() {
            return Ok(());
        }
        let target = target.try_clone().map_err(Error::local(Path::new(".")))?;
        let made = tokio::task::spawn_blocking(move || links::make(&target, links)).await;
        for (path, refusal) in made.map_err(std::io::Error::from).map_err(Error::local(Path::new(".")))? {
            let name = path.display().to_string();
            match refusal {
                Refusal::Unsafe(why) => self.skipped.push((name, why.into())),
                Refusal::Failed(error) => self.failed.push((name, Error::local(&path)(error))),
            }
        }
        Ok(())
    }

    fn count(&mut self, name: String, result: Result<()>) {
        match result {
            Ok(()) => self.files += 1,
            Err(error) => self.failed.push((name, error)),
        }
    }
}

trait CreateParents {
    fn create_dir_with_parents(&self, path: &Path) -> std::io::Result<()>;
}

impl CreateParents for Dir {
    fn create_dir_with_parents(&self, path: &Path) -> std::io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let mut builder = DirBuilder::new();
        self.create_dir_with(path, builder.recursive(true))
    }
}

/// A path from a sandbox that stays where it is put: relative, and every part a plain name.
fn safe(path: &RawPath) -> Option<PathBuf> {
    let path = native(path)?;
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && path.components().next().is_some()).then_some(path)
}

#[cfg(unix)]
fn native(path: &RawPath) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())))
}

#[cfg(not(unix))]
fn native(path: &RawPath) -> Option<PathBuf> {
    path.to_str().map(PathBuf::from)
}

#[cfg(unix)]
fn raw(path: &Path) -> RawPath {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().into()
}

#[cfg(not(unix))]
fn raw(path: &Path) -> RawPath {
    path.to_string_lossy().replace('\\', "/").into()
}

#[derive(Default)]
struct Found {
    files: Vec<(PathBuf, u32)>,
    empty: Vec<PathBuf>,
    bytes: u64,
    skipped: Vec<(String, String)>,
}

fn walk(root: &Path) -> std::io::Result<Found> {
    let mut found = Found::default();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        let mut empty = true;
        for entry in std::fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            empty = false;
            let below = dir.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                dirs.push(below);
            } else if kind.is_file() {
                let meta = entry.metadata()?;
                found.bytes += meta.len();
                found.files.push((below, mode(&meta)));
            } else {
                let reason = if kind.is_symlink() { "a link" } else { "neither a file nor a directory" };
                found.skipped.push((below.display().to_string(), reason.into()));
            }
        }
        if empty && !dir.as_os_str().is_empty() {
            found.empty.push(dir);
        }
    }
    Ok(found)
}

#[cfg(unix)]
fn mode(meta: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    meta.permissions().mode() & 0o777
}

#[cfg(not(unix))]
fn mode(_: &std::fs::Metadata) -> u32 {
    0o644
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_sandbox_stay_where_they_are_put() {
        for bad in ["", "..", "../x", "a/../b", "/etc/passwd", "a/../../x"] {
            assert_eq!(safe(&bad.into()), None, "{bad}");
        }
        assert_eq!(safe(&"a/b..c".into()), Some(PathBuf::from("a/b..c")));
    }
}
