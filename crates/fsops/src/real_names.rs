//! Where a path leads, whether anything is there or not.

use rustix::fs::CWD;
use rustix::io::Errno;

use crate::resolve::MAX_LINKS;
use crate::rules::{Names, absolute, names};

/// The real path to which a path leads, as far as it exists and with what is missing of it, and the names it has on the way: a
/// link's own is one of them.
///
/// # Errors
/// Where the path leads can't be known: its links form a loop, or a link is in a directory that the user has closed.
pub(crate) fn names_of_real(path: Names) -> rustix::io::Result<Vec<Names>> {
    let mut on_the_way = Vec::new();
    let mut real = Names::new();
    // The next name is the last one.
    let mut rest = reversed(path);
    while let Some(name) = rest.pop() {
        if name == b".." {
            real.pop();
            continue;
        }
        let dir = absolute(&real);
        real.push(name);
        let Some(target) = link_at(&real, &dir)? else { continue };
        if on_the_way.len() == MAX_LINKS {
            return Err(Errno::LOOP);
        }
        on_the_way.push(real.iter().chain(rest.iter().rev()).cloned().collect());
        match target.starts_with(b"/") {
            true => real.clear(),
            false => drop(real.pop()),
        }
        rest.extend(reversed(names(&target)));
    }
    on_the_way.push(real);
    Ok(on_the_way)
}

/// The target of the link at `path` in the directory `dir`, or nothing if no link is there.
fn link_at(path: &Names, dir: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    match rustix::fs::readlinkat(CWD, absolute(path), Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(None),
        // Others' directories, such as root's own, are often closed: a rule may name what is in them. The user's own can be
        // closed to hide where a link in it leads.
        Err(Errno::ACCESS) if !is_own(dir) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_own(dir: &[u8]) -> bool {
    rustix::fs::stat(dir).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

fn reversed(mut names: Names) -> Names {
    names.reverse();
    names
}
