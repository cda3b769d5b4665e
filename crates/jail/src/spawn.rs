//! Starting the confined process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Gid, Signal, Uid};

use crate::cgroup::CgroupProcs;
use crate::error::{FailedStep, JailError, Step};
use crate::host_mounts::HostMounts;
use crate::ids::Ids;
use crate::jail::{INSIDE_GID, INSIDE_UID, Isolation, Jail, Network, WORKSPACE};
use crate::jailed::Jailed;
use crate::limits::Arranged;
use crate::seccomp::Profile;
use crate::sys::{self, Cloned};
use crate::{landlock, limits, privileges, probe, rootfs, seccomp, without_namespaces};

/// The longest description of a failure that the child can send.
const MESSAGE: usize = 4096;
/// The child's message when it is confined.
const READY: &[u8] = b"ready";
/// The beginning of its message when it can't enter its cgroup, before the reason. It continues without.
const OUTSIDE: &[u8] = b"outside:";

/// Runs `inside` in a new jail, in its first process, and returns when `inside` is about to run. Of the caller's descriptors the
/// process has `keep`, under the same numbers, and `/dev/null` as standard input, output and error. The return value of `inside`
/// is its exit code. (Programs that it starts inherit `keep`, except for descriptors that are close-on-exec.)
///
/// The caller must have one thread, because the new process continues with a copy of its memory. The jail dies with the calling
/// thread.
///
/// # Errors
/// When the description is invalid, this machine can't make such a jail, or a step of the set-up fails.
pub fn spawn(jail: &Jail, keep: &[BorrowedFd<'_>], inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    jail.validate()?;
    let kept = check_kept(keep)?;
    // Determined here: tests lower it with an environment variable, which the new process doesn't have.
    let abi = landlock::abi();
    if jail.network == Network::Host && abi < landlock::SCOPED {
        return Err(JailError::Unsupported {
            what: "network: host".into(),
            why: format!("this kernel's Landlock (ABI {abi}) can't protect the host's abstract sockets"),
            fix: "use Linux 6.12 or newer, or accept that with network: host-unfenced".into(),
        });
    }
    match jail.isolation {
        Isolation::Namespaces => namespaced(jail, kept, inside),
        Isolation::Landlock => without_namespaces::spawn(jail, kept, inside),
    }
}

fn namespaced(jail: &Jail, mut kept: Vec<RawFd>, inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    let ids = Ids::choose(&jail.id)?;
    let program = seccomp::compile(Profile::Namespaces)?;
    // Only root outside of the jail may map ids on the host's file systems, so root's mounts are made here.
    let sources = if ids.privileged() { Some(HostMounts::open(jail, &ids)?) } else { None };
    let (ours, theirs) = handshake()?;

    let mut namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
    namespaces |= libc::CLONE_NEWUTS;
    if jail.network == Network::None {
        namespaces |= libc::CLONE_NEWNET;
    }
    let mut arranged = Arranged::new(jail);
    // SAFETY: the caller promises one thread; the child ends in `run` and never returns here.
    let (pid, pidfd) = match unsafe { sys::clone(namespaces, arranged.procs.unified.as_ref()) } {
        Ok(Cloned::Parent { pid, pidfd }) => (pid, pidfd),
        Ok(Cloned::Child { in_cgroup }) => {
            drop(ours);
            keep_also(&mut kept, &theirs);
            let procs = (!in_cgroup).then_some(&arranged.procs);
            let confine = || confine(jail, &ids, sources, &program, procs, &theirs, &kept);
            run(&theirs, confine, inside)
        }
        Err(error) => {
            let failure = FailedStep::new("make new namespaces", error).fix(probe::refused());
            arranged.give_up(&failure);
            return Err(failure.into());
        }
    };
    drop(theirs);
    drop(sources);
    let introduced = ids.write_maps(pid).and_then(|()| introduce(&ours, &mut arranged));
    let (cgroup, limits) = arranged.in_force(jail);
    let host_uid = ids.host_uid();
    finish(Jailed { pid, pidfd, cgroup, limits, host_uid, exit: None, end_by: Signal::KILL }, introduced)
}

/// Adds a descriptor to the sorted list of those that stay open in the jail.
pub(crate) fn keep_also(kept: &mut Vec<RawFd>, descriptor: &impl AsRawFd) {
    kept.push(descriptor.as_raw_fd());
    kept.sort_unstable();
    kept.dedup();
}

/// Returns the running jail, or cleans up one that failed.
pub(crate) fn finish(mut jailed: Jailed, introduced: Result<(), FailedStep>) -> Result<Jailed, JailError> {
    match introduced {
        Ok(()) => Ok(jailed),
        Err(failure) => {
            // The first failure matters; if the clean-up fails too, that is added.
            let failure = match jailed.cleanup() {
                Ok(_) => failure,
                Err(second) => FailedStep { step: format!("{} (and then: {second})", failure.step), ..failure },
            };
            Err(failure.into())
        }
    }
}

/// The parent's part of the handshake: lets the child continue, and waits for its result.
pub(crate) fn introduce(ours: &OwnedFd, arranged: &mut Arranged) -> Result<(), FailedStep> {
    match send(ours, b"go", SendFlags::NOSIGNAL) {
        // It has failed and ended: its account is in the socket.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(error) => return Err(FailedStep::new("let the new process continue", error)),
    }
    let mut message = [0_u8; MESSAGE];
    loop {
        let length = match recv(ours, &mut message[..], RecvFlags::empty()) {
            // The second comes once, before the account of a child that ended without having read everything.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(error) => return Err(FailedStep::new("receive the new process's result", error)),
            Ok((length, _)) => length,
        };
        let account = &message[..length];
        match account.strip_prefix(OUTSIDE) {
            Some(failure) => arranged.give_up(&FailedStep::decode(failure)),
            None if account == READY => return Ok(()),
            None if account.is_empty() => {
                return Err(FailedStep {
                    step: "set up the sandbox".into(),
                    errno: 0,
                    fix: Some("its process died: look for an out-of-memory kill in the kernel log".into()),
                });
            }
            None => return Err(FailedStep::decode(account)),
        }
    }
}

/// Enters the jail's cgroups, unless there are none to enter. If that fails, the parent is told and removes them.
pub(crate) fn enter_cgroup(procs: Option<&CgroupProcs>, theirs: &OwnedFd) -> Result<(), FailedStep> {
    let Some(Err(error)) = procs.map(CgroupProcs::enter) else { return Ok(()) };
    let mut account = OUTSIDE.to_vec();
    account.extend(FailedStep::new("enter the sandbox's cgroup", error).encode());
    send(theirs, &account, SendFlags::NOSIGNAL).map(drop).step(|| "report that the sandbox has no cgroup".into())
}

/// A socket pair that keeps messages apart. The parent's end stays open until the child has answered: if it closes earlier, the
/// parent has died.
pub(crate) fn handshake() -> Result<(OwnedFd, OwnedFd), FailedStep> {
    let step = || "make a socket pair".to_owned();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).step(step)?;
    // If the caller has no standard descriptors, the child would replace its own end by /dev/null.
    let theirs = rustix::io::fcntl_dupfd_cloexec(&theirs, 3).step(step)?;
    Ok((ours, theirs))
}

fn check_kept(keep: &[BorrowedFd<'_>]) -> Result<Vec<RawFd>, JailError> {
    let refuse = |fd: &BorrowedFd<'_>, reason: &str| Err(JailError::invalid("keep", fd.as_raw_fd(), reason));
    for fd in keep {
        let stat = fstat(fd).map_err(|error| FailedStep::new(format!("stat descriptor {}", fd.as_raw_fd()), error))?;
        if fd.as_raw_fd() < 3 {
            return refuse(fd, "is a standard descriptor, which is replaced by /dev/null inside: pass a duplicate");
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() || fcntl_getfl(fd).is_ok_and(|f| f.contains(OFlags::PATH)) {
            return refuse(fd, "is a directory or a path, which would be a way out of the sandbox: mount it instead");
        }
    }
    Ok(keep.iter().map(AsRawFd::as_raw_fd).collect())
}

/// The child: confines itself and runs `inside`. It must not unwind into the caller's code.
pub(crate) fn run(
    theirs: &OwnedFd,
    confine: impl FnOnce() -> Result<(), FailedStep>,
    inside: impl FnOnce() -> i32,
) -> ! {
    let confined = catch_unwind(AssertUnwindSafe(confine)).unwrap_or_else(|_| {
        Err(FailedStep { step: "set up the sandbox".into(), errno: 0, fix: Some("the set-up panicked".into()) })
    });
    if let Err(failure) = confined {
        let mut account = failure.encode();
        account.truncate(MESSAGE);
        // If the parent can't receive it, this process ends all the same.
        let _ = send(theirs, &account, SendFlags::NOSIGNAL);
        sys::exit(126);
    }
    if send(theirs, READY, SendFlags::NOSIGNAL).is_err() {
        sys::exit(126);
    }
    // SAFETY: nothing uses this descriptor after this; `inside` must not inherit it.
    unsafe { libc::close(theirs.as_raw_fd()) };
    let code = catch_unwind(AssertUnwindSafe(inside)).unwrap_or(101);
    sys::exit(code)
}

fn confine(
    jail: &Jail,
    ids: &Ids,
    sources: Option<HostMounts>,
    program: &seccompiler::BpfProgram,
    procs: Option<&CgroupProcs>,
    theirs: &OwnedFd,
    kept: &[RawFd],
) -> Result<(), FailedStep> {
    // This covers the set-up; the last change of credentials undoes it. (Becoming non-dumpable must wait: it would keep an
    // ordinary user from writing our id maps.)
    privileges::tie_to_maker()?;
    await_go(theirs)?;
    enter_cgroup(procs, theirs)?;
    become_inside_user(ids.privileged())?;
    sys::reset_signals().step(|| "reset the signals".into())?;
    sys::replace_environment(&jail.environment()).step(|| "replace the environment".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().step(|| "start a session".into())?;
    sys::join_new_keyring().step(|| "leave the session's keyring".into())?;
    // The first call that needs a capability in the new namespace. AppArmor lets ordinary users make a namespace, but without
    // capabilities.
    let stripped = |failure: FailedStep| match failure.errno {
        libc::EPERM | libc::EACCES => failure.fix(probe::refused()),
        _ => failure,
    };
    let named = rustix::system::sethostname(jail.hostname.as_bytes());
    named.step(|| "set the host name".into()).map_err(stripped)?;
    if jail.network == Network::None {
        sys::loopback_up().step(|| "bring up the loopback".into())?;
    }
    let sources = match sources {
        Some(sources) => sources,
        None => HostMounts::open(jail, ids)?,
    };
    let writable = rootfs::enter(jail, sources)?;
    rustix::process::chdir(WORKSPACE).step(|| format!("enter {WORKSPACE}"))?;
    // Its cgroup becomes the root of the namespace.
    sys::unshare_cgroups().step(|| "make a cgroup namespace".into())?;
    descriptors(kept)?;
    limits::apply(jail)?;
    privileges::drop_all()?;
    landlock::around(&writable)?;
    privileges::become_undumpable()?;
    privileges::tie_to_maker()?;
    check_maker(theirs)?;
    seccomp::install(program)
}

/// Waits until the parent has written the id maps.
pub(crate) fn await_go(theirs: &OwnedFd) -> Result<(), FailedStep> {
    let mut go = [0_u8; 8];
    loop {
        match recv(theirs, &mut go[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((2.., _)) => return Ok(()),
            // The parent died or gave up, so there is nobody to tell.
            _ => sys::exit(125),
        }
    }
}

/// Ends this process if the parent died before the parent-death signal was set: then its end of the socket is closed.
pub(crate) fn check_maker(theirs: &OwnedFd) -> Result<(), FailedStep> {
    match recv(theirs, &mut [0_u8; 1][..], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(()),
        _ => sys::exit(125),
    }
}

/// Switches to the ids inside. They are needed to create files: a tmpfs refuses files of unmapped ids.
fn become_inside_user(privileged: bool) -> Result<(), FailedStep> {
    if privileged {
        rustix::thread::set_thread_groups(&[]).step(|| "drop the groups".into())?;
    }
    let (uid, gid) = (Uid::from_raw(INSIDE_UID), Gid::from_raw(INSIDE_GID));
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(|| "become the sandbox's group".into())?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(|| "become the sandbox's user".into())
}

/// `/dev/null` as the three standard descriptors, `kept` as they are, everything else closed.
pub(crate) fn descriptors(kept: &[RawFd]) -> Result<(), FailedStep> {
    sys::close_all_but(kept).step(|| "close the caller's descriptors".into())?;
    for number in 0..3 {
        let null = open("/dev/null", OFlags::RDWR, Mode::empty()).step(|| "open /dev/null".into())?;
        if std::os::fd::IntoRawFd::into_raw_fd(null) != number {
            return Err(FailedStep::new("put /dev/null in place", io::Error::from_raw_os_error(libc::EBADF)));
        }
    }
    Ok(())
}
