//! The jail without namespaces: Landlock, seccomp and rlimits, and a guardian in place of a pid namespace.
//!
//! No kernel object holds the sandbox's processes together here, so one process of ours does: it is
//! their subreaper, stands outside of the Landlock domain where their signals don't reach it, and ends
//! them all when the first one ends, when it is told to, or when its maker dies.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::error::{FailedStep, JailError, Step};
use crate::ids::Who;
use crate::jail::{Jail, Network};
use crate::jailed::Jailed;
use crate::landlock::Openable;
use crate::seccomp::{LandlockProfile, Profile};
use crate::spawn::{await_go, check_maker, descriptors, handshake, introduce, run, settle};
use crate::sys::{self, Cloned};
use crate::{host_mounts, landlock, limits, privileges, seccomp};

/// As [`spawn`](crate::spawn), for [`Isolation::Landlock`](crate::Isolation::Landlock).
pub(crate) fn spawn(jail: &Jail, mut kept: Vec<RawFd>, inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    if landlock::abi() < landlock::SCOPED {
        return Err(JailError::Unsupported {
            what: "isolation: landlock".into(),
            why: format!("this kernel's Landlock has ABI {}, {} is needed", landlock::abi(), landlock::SCOPED),
            fix: "use Linux 6.12 or newer with `landlock` among its `lsm=`".into(),
        });
    }
    let Some(workspace) = &jail.workspace else {
        let reason = "is missing: without namespaces there is no temporary one, so name a directory";
        return Err(JailError::invalid("workspace", "", reason));
    };
    let who = Who::of(jail)?;
    let alone = LandlockProfile { unix: true, network: jail.network != Network::None, metadata: true };
    let program = seccomp::compile(Profile::Landlock(alone))?;
    let openable = openable(jail)?;
    let (ours, theirs) = handshake()?;
    // SAFETY: the caller promises one thread; the child ends in `guard` and never returns here.
    let cloned = unsafe { sys::clone(0) }.step(|| "start a process".into())?;
    let (pid, pidfd) = match cloned {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            drop(ours);
            kept.push(theirs.as_raw_fd());
            kept.sort_unstable();
            kept.dedup();
            let guardian = rustix::process::getpid();
            guard(&theirs, || {
                let confine = || confine(jail, workspace, &who, &openable, &program, guardian, &kept);
                run(&theirs, confine, inside)
            })
        }
    };
    drop(theirs);
    let (cgroup, limits) = limits::arrange(jail, pid);
    let jailed = Jailed { pid, pidfd, cgroup, limits, host_uid: who.uid, exit: None, end_by: Signal::TERM };
    let introduced = introduce(&ours);
    settle(jailed, introduced)
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
    // podbayd runs its own program again when one of its processes was killed.
    let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    openable.given.push((program.step(|| "open this program itself".into())?, false));
    Ok(openable)
}

/// The guardian's whole life: starts the first process, waits for an end, ends all.
fn guard(theirs: &OwnedFd, first: impl FnOnce()) -> ! {
    let guarded = || -> Result<std::ffi::c_int, FailedStep> {
        // Both kinds of end arrive as signals, taken one by one below.
        sys::block_signals().step(|| "block the signals".into())?;
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
            .step(|| "set the parent-death signal".into())?;
        await_go(theirs)?;
        check_maker(theirs)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step(|| "become a subreaper".into())?;
        // SAFETY: one thread; the child ends in `run`.
        let first = match unsafe { sys::clone(0) }.step(|| "start a process".into())? {
            Cloned::Child => {
                first();
                sys::exit(126)
            }
            Cloned::Parent { pid, .. } => pid,
        };
        // The sandbox's sockets and pipes must be closed when it closes them.
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
        end_all();
        Ok(status)
    };
    match guarded() {
        Ok(status) if libc::WIFEXITED(status) => sys::exit(libc::WEXITSTATUS(status)),
        // As the first process ended, so do we: the maker sees the same signal. KILL needs no handler.
        Ok(_) => {
            let _ = kill_process(rustix::process::getpid(), Signal::KILL);
            sys::exit(137)
        }
        Err(failure) => {
            let _ = rustix::net::send(theirs, &failure.encode(), rustix::net::SendFlags::NOSIGNAL);
            end_all();
            sys::exit(126)
        }
    }
}

/// Takes all ended children; the status of the one asked for.
fn reap(wanted: Option<Pid>) -> Option<i32> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if Some(pid) == wanted {
            found = Some(status.as_raw());
        }
    }
    found
}

/// Ends every descendant: all are stopped first, so that none can start another behind our back.
pub(crate) fn end_all() {
    loop {
        let mut stopped = Vec::new();
        loop {
            let fresh: Vec<Pid> = descendants().into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                let _ = kill_process(pid, Signal::STOP);
                stopped.push(pid);
            }
        }
        for pid in &stopped {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // Orphans of the killed become our children; none left means all are gone.
        match wait(WaitOptions::empty()) {
            Err(Errno::CHILD) => return,
            _ => {
                reap(None);
            }
        }
    }
}

/// All processes below this one, by parent links.
fn descendants() -> Vec<Pid> {
    let links: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, fields) = stat.rsplit_once(')')?;
            let mut fields = fields.split_ascii_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
            (!matches!(state, "Z" | "X")).then_some((pid, parent))
        })
        .collect();
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(links.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found[1..].iter().filter_map(|pid| Pid::from_raw(*pid)).collect()
}

fn confine(
    jail: &Jail,
    workspace: &Path,
    who: &Who,
    openable: &Openable,
    program: &seccompiler::BpfProgram,
    guardian: Pid,
    kept: &[RawFd],
) -> Result<(), FailedStep> {
    sys::reset_signals().step(|| "reset the signals".into())?;
    sys::replace_environment(&jail.environment()).step(|| "replace the environment".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().step(|| "start a session".into())?;
    who.become_them()?;
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
