//! Finding files by name.

use podbay_proto::files::{Glob, GlobMatch, GlobOutput, Kind};
use podbay_proto::{RawPath, Result};
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::Files;
use crate::budget::{Cancel, Deadline};
use crate::errno::error_at;
use crate::identity::{kind_of, lstat, modified, size};
use crate::pattern::{Pattern, Style};
use crate::resolve::{Access, Lookup, Resolver};
use crate::resolved_path::real_path;
use crate::rules::Names;
use crate::walk::{Found, Order, Walk};

impl Files {
    /// Finds files by a pattern.
    ///
    /// # Errors
    /// When the pattern can't be used, or the start isn't a directory that can be read. What can't be read further down makes
    /// the result partial.
    pub fn glob(&self, request: &Glob, cancel: &Cancel) -> Result<GlobOutput> {
        let pattern = Pattern::new(&request.pattern, Style { dots: request.dots, whole_path: request.whole_path })?;
        let deadline = Deadline::after(request.budget_ms);
        let resolver = self.resolver(&request.scope)?;
        let path = request.path.clone().unwrap_or_else(|| resolver.start());
        let resolved = resolver.allowed(&path, Lookup { follow: true, parents: false }, Access::Read)?;
        let dir = resolved.open_dir()?;
        let real_start = real_path(&dir);
        let visibility = resolver.visibility(&dir)?;
        let workdir = resolver.workdir_below(&dir);
        let mut walk = Walk::new(dir, &resolved.shown, Order::Path, &visibility, &deadline, cancel)?;
        if let Some(workdir) = &workdir {
            walk.begin_with(workdir, |path| pattern.may_match_below(path));
        }
        let mut matches: Vec<GlobMatch> = Vec::new();
        while let Some(found) = walk.next()? {
            if pattern.matches(&found.path)
                && matches!(found.kind, Kind::File | Kind::Link | Kind::Dir)
                && (found.kind != Kind::Dir || request.directories)
                && visibility.allows_reading(&found.path)
            {
                let stat = match found.kind {
                    Kind::Link => {
                        let start = real_start.as_ref().map_err(Clone::clone)?;
                        link_target(&resolver, &resolved.shown, start, &found, request.directories)
                    }
                    _ => match lstat(&*found.dir, found.name()) {
                        Ok(stat) => Some(stat),
                        Err(Errno::NOENT) => None,
                        Err(error) => {
                            let error = error_at(&walk.named(&found.path), error);
                            walk.gaps.unreadable(&error);
                            None
                        }
                    },
                };
                if let Some(stat) = stat {
                    if matches.len() as u64 >= request.limit {
                        walk.gaps.limit(format!("there are more than {} matches; be more specific", request.limit));
                        break;
                    }
                    matches.push(GlobMatch {
                        path: found.path.clone().into(),
                        kind: kind_of(&stat),
                        is_link: found.kind == Kind::Link,
                        size: size(&stat),
                        modified: modified(&stat),
                    });
                }
            }
            if found.kind == Kind::Dir && pattern.may_match_below(&found.path) {
                walk.enter(&found);
            }
        }
        if workdir.is_some() {
            // The working directory came first, out of order.
            matches.sort_unstable_by(|one, other| sorting(one).cmp(sorting(other)));
        }
        Ok(GlobOutput { path: resolved.shown, matches, partial: walk.gaps.into_partial() })
    }
}

/// The bytes by which walks sort a path: a directory's is followed by a slash in the paths of what it contains.
fn sorting(found: &GlobMatch) -> impl Iterator<Item = u8> + '_ {
    let slash = (found.kind == Kind::Dir && !found.is_link).then_some(b'/');
    found.path.as_bytes().iter().copied().chain(slash)
}

/// The target of a link, if that is a file below the start.
fn link_target(
    resolver: &Resolver<'_>,
    shown: &RawPath,
    start: &Names,
    found: &Found,
    directories: bool,
) -> Option<Stat> {
    let (target, stat) = resolver.link_target(shown, &found.path).ok()?;
    let wanted = kind_of(&stat) == Kind::File || (directories && kind_of(&stat) == Kind::Dir);
    let inside = real_path(&target).is_ok_and(|path| path.starts_with(start));
    (wanted && inside).then_some(stat)
}
