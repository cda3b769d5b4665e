//! Listing a directory or a tree, and the metadata of one path.

use podbay_proto::files::{Entry, Kind, Link, Ls, LsOutput, Stat, StatOutput, Tree, TreeEntry, TreeOutput};
use podbay_proto::{RawPath, Result};
use rustix::io::Errno;

use crate::Files;
use crate::budget::{Cancel, Deadline};
use crate::errno::error_at;
use crate::identity::{inode, kind_of, links, lstat, mode, modified, size};
use crate::resolve::{Access, Lookup, Resolver};
use crate::rules::names;
use crate::walk::{Order, Walk, join};

impl Files {
    /// Lists a directory.
    ///
    /// # Errors
    /// When the path isn't a directory or can't be read.
    pub fn ls(&self, request: &Ls, cancel: &Cancel) -> Result<LsOutput> {
        let resolver = self.resolver(&request.scope)?;
        let path = request.path.clone().unwrap_or_else(|| resolver.start());
        let resolved = resolver.allowed(&path, Lookup { follow: true, parents: false }, Access::Read)?;
        let dir = resolved.open_dir()?;
        let visibility = resolver.visibility(&dir)?;
        let deadline = Deadline::after(u64::MAX);
        let mut walk = Walk::new(dir, &resolved.shown, Order::Name, &visibility, &deadline, cancel)?;
        let mut entries = Vec::new();
        while let Some(found) = walk.next()? {
            if entries.len() as u64 >= request.limit {
                walk.gaps.limit(format!("there are more than {} entries", request.limit));
                break;
            }
            let stat = match lstat(&*found.dir, &found.path) {
                Ok(stat) => stat,
                // Deleted since the directory was read.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error_at(&walk.named(&found.path), error)),
            };
            let link = link(&resolver, &resolved.shown, &found.dir, &found.path, &found.path, &stat);
            entries.push(entry(join(&resolved.shown, &found.path), &stat, link));
        }
        Ok(LsOutput { path: resolved.shown, entries, partial: walk.gaps.into_partial() })
    }

    /// The metadata of a path.
    ///
    /// # Errors
    /// When it doesn't exist or may not be read.
    pub fn stat(&self, request: &Stat) -> Result<StatOutput> {
        let resolver = self.resolver(&request.scope)?;
        let resolved =
            resolver.allowed(&request.path, Lookup { follow: request.follow, parents: false }, Access::Read)?;
        let stat = resolved.stat()?;
        let link = match &resolved.name {
            Some(name) if kind_of(&stat) == Kind::Link => {
                let target = rustix::fs::readlinkat(&resolved.dir, &name[..], Vec::new())
                    .map_err(|error| resolved.error(error))?;
                let followed = resolver.allowed(&request.path, Lookup { follow: true, parents: false }, Access::Read);
                let target_kind = followed.and_then(|resolved| resolved.stat()).ok().map(|stat| kind_of(&stat));
                Some(Link { target: target.into_bytes().into(), target_kind })
            }
            _ => None,
        };
        Ok(StatOutput {
            entry: entry(resolved.shown.clone(), &stat, link),
            uid: stat.st_uid,
            gid: stat.st_gid,
            links: links(&stat),
            inode: inode(&stat),
        })
    }

    /// Lists everything below a directory.
    ///
    /// # Errors
    /// When the path isn't a directory or can't be read. What can't be read further down makes the result partial.
    pub fn tree(&self, request: &Tree, cancel: &Cancel) -> Result<TreeOutput> {
        let resolver = self.resolver(&request.scope)?;
        let path = request.path.clone().unwrap_or_else(|| resolver.start());
        let resolved = resolver.allowed(&path, Lookup { follow: true, parents: false }, Access::Read)?;
        let dir = resolved.open_dir()?;
        let visibility = resolver.visibility(&dir)?;
        let deadline = Deadline::after(request.budget_ms);
        let mut walk = Walk::new(dir, &resolved.shown, Order::Name, &visibility, &deadline, cancel)?;
        let after = request.after.as_ref().map(|path| names(path.as_bytes()));
        let mut entries = Vec::new();
        while let Some(found) = walk.next()? {
            let path = names(&found.path);
            let deeper = request.max_depth.is_none_or(|most| path.len() < most as usize);
            // Paths sort name by name here, so everything below a directory sorts before the cursor unless the directory is
            // an ancestor of the cursor.
            let wanted = after.as_ref().is_none_or(|after| path > *after);
            let on_the_way = after.as_ref().is_some_and(|after| after.starts_with(&path));
            if wanted {
                if entries.len() as u64 >= request.limit {
                    walk.gaps
                        .limit(format!("there are more than {} entries; continue after the last one", request.limit));
                    break;
                }
                match tree_entry(&found) {
                    Ok(entry) => entries.push(entry),
                    Err(Errno::NOENT) => continue,
                    Err(error) => {
                        let error = error_at(&walk.named(&found.path), error);
                        walk.gaps.unreadable(&error);
                        continue;
                    }
                }
            }
            if found.kind == Kind::Dir && deeper && (wanted || on_the_way) {
                walk.enter(&found);
            }
        }
        Ok(TreeOutput { path: resolved.shown, entries, partial: walk.gaps.into_partial() })
    }
}

fn tree_entry(found: &crate::walk::Found) -> rustix::io::Result<TreeEntry> {
    let stat = lstat(&*found.dir, found.name())?;
    let target = match kind_of(&stat) {
        Kind::Link => Some(rustix::fs::readlinkat(&*found.dir, found.name(), Vec::new())?.into_bytes().into()),
        _ => None,
    };
    Ok(TreeEntry {
        path: found.path.clone().into(),
        kind: kind_of(&stat),
        size: size(&stat),
        mode: mode(&stat),
        modified: modified(&stat),
        target,
    })
}

fn entry(path: RawPath, stat: &rustix::fs::Stat, link: Option<Link>) -> Entry {
    Entry { path, kind: kind_of(stat), size: size(stat), modified: modified(stat), mode: mode(stat), link }
}

/// The target of `name`, if it is a link. Its path is `below`, relative to `start`.
fn link(
    resolver: &Resolver<'_>,
    start: &RawPath,
    dir: &std::os::fd::OwnedFd,
    name: &[u8],
    below: &[u8],
    stat: &rustix::fs::Stat,
) -> Option<Link> {
    if kind_of(stat) != Kind::Link {
        return None;
    }
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).ok()?.into_bytes().into();
    let target_kind = resolver.link_target(start, below).ok().map(|(_, stat)| kind_of(&stat));
    Some(Link { target, target_kind })
}
