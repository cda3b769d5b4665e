//! The jail without namespaces: Landlock, seccomp and rlimits, and a guardian in place of a pid namespace.
//!
//! No kernel object holds the sandbox's processes together here, so one process of ours does: it is
//! their subreaper, stands outside of the Landlock domain where their signals don't reach it, and ends
//! them all when the first one ends, when it is told to, or when its maker dies.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::error::{Failure, JailError, Step};
use crate::fence::{self, Openable};
use crate::filter::{self, Beside};
use crate::jail::Jail;
use crate::jailed::Jailed;
use crate::spawn::{await_go, check_maker, descriptors, handshake, introduce, run, settle};
use crate::sys::{self, Cloned};
use crate::{etc, limits, privileges, source};

/// Settings beside [`etc::TAKEN`] that are ours in a namespace and the host's here.
const SETTINGS: [&str; 6] = ["passwd", "group", "hosts", "hostname", "nsswitch.conf", "host.conf"];

/// As [`spawn`](crate::spawn), for [`Isolation::Landlock`](crate::Isolation::Landlock).
pub(crate) fn spawn(jail: &Jail, mut kept: Vec<RawFd>, inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    let unsupported = |why: String, fix: &str| {
        Err(JailError::Unsupported { what: "isolation: landlock".into(), why, fix: fix.into() })
    };
    if rustix::process::geteuid().is_root() {
        let why = "the sandbox would be root on the host, which Landlock does not hold".to_owned();
        return unsupported(why, "run as an ordinary user, or use isolation: namespaces");
    }
    if fence::abi() < fence::SCOPED {
        let why = format!("this kernel's Landlock has ABI {}, {} is needed", fence::abi(), fence::SCOPED);
        return unsupported(why, "use Linux 6.12 or newer with `landlock` among its `lsm=`");
    }
    let program = filter::compile(Beside::Landlock)?;
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
                let confine = || confine(jail, &openable, &program, guardian, &kept);
                run(&theirs, confine, inside)
            })
        }
    };
    drop(theirs);
    let (cgroup, limits) = limits::arrange(jail);
    let host_uid = rustix::process::geteuid().as_raw();
    let jailed = Jailed { pid, pidfd, cgroup, limits, host_uid, exit: None, end_by: Signal::TERM };
    let introduced = introduce(&jailed, &ours);
    settle(jailed, introduced)
}

fn openable(jail: &Jail) -> Result<Openable, Failure> {
    let etc = etc::TAKEN.iter().chain(&SETTINGS).map(|name| Path::new("/etc").join(name));
    let mut readable: Vec<PathBuf> = source::PROGRAMS.iter().map(|name| Path::new("/").join(name)).chain(etc).collect();
    readable.push("/proc".into());
    let devices = source::DEVICES.iter().filter(|(name, ..)| *name != "tty");
    let devices = devices.map(|(name, ..)| Path::new("/dev").join(name)).collect();
    let mut given = Vec::new();
    for directory in [&jail.workspace, &jail.state].into_iter().flatten() {
        given.push((source::open_without_links(directory)?, true));
    }
    for mount in &jail.mounts {
        given.push((source::open_without_links(&mount.host)?, mount.writable));
    }
    Ok(Openable { readable, devices, given })
}

/// The guardian's whole life: starts the first process, waits for an end, ends all.
fn guard(theirs: &OwnedFd, first: impl FnOnce()) -> ! {
    let guarded = || -> Result<std::ffi::c_int, Failure> {
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
fn end_all() {
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
    openable: &Openable,
    program: &seccompiler::BpfProgram,
    guardian: Pid,
    kept: &[RawFd],
) -> Result<(), Failure> {
    sys::reset_signals().step(|| "reset the signals".into())?;
    sys::replace_environment(&jail.environment()).step(|| "replace the environment".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().step(|| "start a session".into())?;
    sys::join_new_keyring().step(|| "leave the session's keyring".into())?;
    if let Some(workspace) = &jail.workspace {
        rustix::process::chdir(workspace).step(|| format!("enter {}", workspace.display()))?;
    }
    limits::apply(jail)?;
    privileges::drop_held()?;
    fence::alone(openable)?;
    descriptors(kept)?;
    privileges::become_undumpable()?;
    privileges::tie_to_maker()?;
    if rustix::process::getppid() != Some(guardian) {
        sys::exit(125);
    }
    filter::install(program)
}
