//! The directories of a sandbox without namespaces, which has no private mounts: state, temporary files, and a workspace unless
//! it is given one.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use podbay_jail::{FailedStep, HostUser, Jail, JailError};
use podbay_proto::layout::{ARTEFACT_DIR, EXEC_DIR};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, openat};
use rustix::io::Errno;
use rustix::path::Arg;

/// In a sandbox's directory: what the sandbox's own user can reach.
const FILES: &str = "files";

/// Creates these directories in `dir`, owned by the jail's user, and adds them to the jail. They go when `dir` is removed.
///
/// If the jail's user is another one than the caller, `dir` and the two directories above it become searchable by everyone: the
/// caller must own these three.
///
/// # Errors
/// When a directory can't be created, or the jail's user couldn't reach it.
pub fn make_host_dirs(dir: &Path, jail: &mut Jail) -> Result<(), JailError> {
    let user = HostUser::of(jail)?;
    if user.switches {
        make_searchable(dir)?;
    }
    let files = dir.join(FILES);
    let parent = open(CWD, dir).map_err(failed(format!("open {}", dir.display())))?;
    // Root's jail has another user, who must be able to pass through.
    let shared = make(parent.as_fd(), FILES, 0o711)?;
    let own = |parent: BorrowedFd<'_>, name: &str, inner: &[&str]| -> Result<PathBuf, FailedStep> {
        let made = make(parent, name, 0o700)?;
        let inner = inner.iter().map(|name| make(made.as_fd(), name, 0o700)).collect::<Result<Vec<_>, _>>()?;
        // Ownership changes last, from the inside out, and by descriptor: the new owner may be a user of this machine, who
        // could put links to root's files into a directory as soon as they own it.
        for given in inner.iter().chain([&made]).filter(|_| user.switches) {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            fchown(given, Some(uid), Some(gid))
                .map_err(failed(format!("change the owner of {name} to the sandbox's user")))?;
        }
        Ok(files.join(name))
    };
    jail.state = Some(own(shared.as_fd(), "state", &[EXEC_DIR, ARTEFACT_DIR])?);
    jail.temporary = Some(own(shared.as_fd(), "tmp", &[])?);
    if jail.workspace.is_none() {
        jail.workspace = Some(own(shared.as_fd(), "workspace", &[])?);
    }
    Ok(())
}

/// The step that an error made fail.
fn failed<E: Into<io::Error>>(step: String) -> impl FnOnce(E) -> FailedStep {
    |error| FailedStep::new(step, error)
}

fn open(parent: BorrowedFd<'_>, path: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, path, flags, Mode::empty())
}

/// Creates a directory and opens it.
fn make(parent: BorrowedFd<'_>, name: &str, mode: u32) -> Result<OwnedFd, FailedStep> {
    let mode = Mode::from_raw_mode(mode);
    let made = mkdirat(parent, name, mode).and_then(|()| {
        let made = open(parent, name)?;
        // Whatever the umask.
        fchmod(&made, mode)?;
        Ok(made)
    });
    made.map_err(failed(format!("create the sandbox's directory {name}")))
}

/// Lets the jail's user, who is another one, pass through to the directory. Other entries of the directories above are protected
/// by their own modes.
fn make_searchable(dir: &Path) -> Result<(), JailError> {
    for (height, above) in dir.ancestors().enumerate() {
        let mode = fs::metadata(above).map_err(failed(format!("stat {}", above.display())))?.mode();
        if mode & 0o001 != 0 {
            continue;
        }
        // The directory itself and the two above it are the caller's.
        if height < 3 {
            let searchable = Permissions::from_mode(mode & 0o7777 | 0o011);
            fs::set_permissions(above, searchable).map_err(failed(format!("make {} searchable", above.display())))?;
            continue;
        }
        let fix = format!(
            "root's sandboxes run as another user, who can't pass through {}: keep them below directories with mode o+x",
            above.display()
        );
        let failure = FailedStep::new(format!("reach {} as the sandbox's user", dir.display()), Errno::ACCESS);
        return Err(FailedStep { fix: Some(fix), ..failure }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use podbay_jail::Isolation;

    use super::*;

    /// Acts as another user, in this thread alone, until it is told to stop: replaces the directories that are about to be given
    /// to that user by links to root's file.
    fn replace_by_links(owner: u32, state: &Path, target: &Path, stop: &AtomicBool) {
        let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        while !stop.load(Ordering::Relaxed) {
            for name in [EXEC_DIR, ARTEFACT_DIR] {
                let path = state.join(name);
                if fs::remove_dir(&path).is_ok() {
                    let _ = symlink(target, &path);
                }
            }
        }
    }

    /// Root changed a directory's owner, then created others in it and changed their owner by path: meanwhile, the first one's
    /// owner could put a link to root's file there.
    #[test]
    fn root_gives_away_nothing_but_what_it_has_made() {
        const OWNER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives anything away");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        // The other user has to be able to reach what is in it.
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o711)).unwrap();
        let (precious, workspace, dir) =
            (scratch.path().join("precious"), scratch.path().join("work"), scratch.path().join("sandbox"));
        fs::write(&precious, "root's").unwrap();
        fs::create_dir(&workspace).unwrap();
        chown(&workspace, Some(OWNER), Some(OWNER)).unwrap();
        let (stop, state) = (Arc::new(AtomicBool::new(false)), dir.join(FILES).join("state"));
        let attacker = std::thread::spawn({
            let (precious, stop) = (precious.clone(), stop.clone());
            move || replace_by_links(OWNER, &state, &precious, &stop)
        });
        for round in 0..300 {
            fs::create_dir(&dir).unwrap();
            let mut jail = Jail::new("pb-1");
            jail.isolation = Isolation::Landlock;
            jail.workspace = Some(workspace.clone());
            make_host_dirs(&dir, &mut jail).unwrap();
            assert_eq!(fs::symlink_metadata(jail.state.unwrap()).unwrap().uid(), OWNER, "it is given away");
            assert_eq!(fs::metadata(&precious).unwrap().uid(), 0);
            fs::rename(&dir, scratch.path().join(format!("gone-{round}"))).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        attacker.join().unwrap();
    }
}
