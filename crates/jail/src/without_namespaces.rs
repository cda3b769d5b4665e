//! The jail without namespaces: Landlock, seccomp and rlimits, and a guardian process in place of a pid namespace.
//!
//! No kernel object groups the jail's processes here, so the guardian does: it is their subreaper, stays outside of their
//! Landlock domain, where their signals can't reach it, and ends them all when the first one ends, when it gets TERM, or when
//! the process that made the jail dies.
#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::cgroup::CgroupProcs;
use crate::error::{FailedStep, JailError, Step};
use crate::ids::HostUser;
use crate::jail::{Jail, Network};
use crate::jailed::Jailed;
use crate::landlock::Openable;
use crate::limits::Arranged;
use crate::process_tree::{kill_descendants, reap};
use crate::seccomp::{LandlockProfile, Profile};
use crate::spawn::{await_go, check_maker, descriptors, enter_cgroup, finish, handshake, introduce, keep_also, run};
use crate::sys::{self, Cloned};
use crate::{host_mounts, landlock, limits, privileges, seccomp};

/// As [`spawn`](crate::spawn), for [`Isolation::Landlock`](crate::Isolation::Landlock).
pub(crate) fn spawn(jail: &Jail, mut kept: Vec<RawFd>, inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    if landlock::abi() < landlock::SCOPED {
        return Err(JailError::Unsupported {
            what: "isolation: landlock".into(),
            why: landlock::lacking(landlock::abi(), landlock::SCOPED),
            fix: "use Linux 6.12 or newer, booted with `landlock` in its `lsm=` list".into(),
        });
    }
    let Some(workspace) = &jail.workspace else {
        let reason = "must be set: a jail without namespaces has no temporary workspace";
        return Err(JailError::invalid("workspace", "", reason));
    };
    let user = HostUser::of(jail)?;
    let alone = LandlockProfile { unix: true, network: jail.network != Network::None, metadata: true };
    let program = seccomp::compile(Profile::Landlock(alone))?;
    let openable = openable(jail)?;
    let (ours, theirs) = handshake()?;
    let mut arranged = Arranged::new(jail);
    // SAFETY: the caller promises one thread; the child ends in `guard` and never returns here.
    let (pid, pidfd) = match unsafe { sys::clone(0, arranged.procs.unified.as_ref()) } {
        Ok(Cloned::Parent { pid, pidfd }) => (pid, pidfd),
        Ok(Cloned::Child { in_cgroup }) => {
            drop(ours);
            keep_also(&mut kept, &theirs);
            let guardian = rustix::process::getpid();
            let procs = (!in_cgroup).then_some(&arranged.procs);
            guard(&theirs, procs, || {
                let confine = || confine(jail, workspace, &user, &openable, &program, guardian, &kept);
                run(&theirs, confine, inside)
            })
        }
        Err(error) => {
            let failure = FailedStep::new("start a process", error);
            arranged.give_up(&failure);
            return Err(failure.into());
        }
    };
    drop(theirs);
    let introduced = introduce(&ours, &mut arranged);
    let (cgroup, limits) = arranged.in_force(jail);
    finish(Jailed { pid, pidfd, cgroup, limits, host_uid: user.uid, exit: None, end_by: Signal::TERM }, introduced)
}

fn openable(jail: &Jail) -> Result<Openable, FailedStep> {
    let mut openable = Openable::system(jail.network != Network::None);
    openable.processes = true;
    for directory in [&jail.workspace, &jail.state, &jail.temporary].into_iter().flatten() {
        openable.given.push((host_mounts::open_without_links(directory)?, true));
    }
    for mount in &jail.mounts {
        openable.given.push((host_mounts::open_without_links(&mount.host)?, mount.writable));
    }
    // podbayd runs its own program again when one of its processes is killed.
    let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    openable.given.push((program.step(|| "open this program itself".into())?, false));
    Ok(openable)
}

/// The guardian: starts the first process, waits until that ends or TERM arrives, and ends all others.
fn guard(theirs: &OwnedFd, procs: Option<&CgroupProcs>, first: impl FnOnce()) -> ! {
    let guarded = || -> Result<std::ffi::c_int, FailedStep> {
        // Both reasons to end arrive as signals, which are taken one by one below.
        sys::block_signals().step(|| "block the signals".into())?;
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
            .step(|| "set the parent-death signal".into())?;
        await_go(theirs)?;
        check_maker(theirs)?;
        enter_cgroup(procs, theirs)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step(|| "become a subreaper".into())?;
        // SAFETY: one thread; the child ends in `run`.
        let first = match unsafe { sys::clone(0, None) }.step(|| "start a process".into())? {
            Cloned::Child { .. } => {
                first();
                sys::exit(126)
            }
            Cloned::Parent { pid, .. } => pid,
        };
        // Sockets and pipes must close when the jail closes them.
        sys::close_all_but(&[]).step(|| "close the caller's descriptors".into())?;
        let status = loop {
            match sys::next_signal().step(|| "wait for a signal".into())? {
                libc::SIGCHLD => {
                    if let Some(status) = reap(Some(first)) {
                        break status;
                    }
                }
                libc::SIGTERM => break libc::SIGKILL,
                _ => {}
            }
        };
        kill_descendants();
        Ok(status)
    };
    match guarded() {
        Ok(status) if libc::WIFEXITED(status) => sys::exit(libc::WEXITSTATUS(status)),
        // End by a signal like the first process, so that the maker sees one. KILL can't be handled or blocked.
        Ok(_) => {
            let _ = kill_process(rustix::process::getpid(), Signal::KILL);
            sys::exit(137)
        }
        Err(failure) => {
            let _ = rustix::net::send(theirs, &failure.encode(), rustix::net::SendFlags::NOSIGNAL);
            kill_descendants();
            sys::exit(126)
        }
    }
}

fn confine(
    jail: &Jail,
    workspace: &Path,
    user: &HostUser,
    openable: &Openable,
    program: &seccompiler::BpfProgram,
    guardian: Pid,
    kept: &[RawFd],
) -> Result<(), FailedStep> {
    sys::reset_signals().step(|| "reset the signals".into())?;
    sys::replace_environment(&jail.environment()).step(|| "replace the environment".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().step(|| "start a session".into())?;
    user.switch()?;
    sys::join_new_keyring().step(|| "leave the session's keyring".into())?;
    rustix::process::chdir(workspace).step(|| format!("enter {}", workspace.display()))?;
    limits::apply(jail)?;
    privileges::drop_held()?;
    landlock::alone(openable)?;
    descriptors(kept)?;
    privileges::become_undumpable()?;
    privileges::tie_to_maker()?;
    if rustix::process::getppid() != Some(guardian) {
        sys::exit(125);
    }
    seccomp::install(program)
}
