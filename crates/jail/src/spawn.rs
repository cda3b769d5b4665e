//! Starting the confined process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Gid, Signal, Uid};

use crate::error::{FailedStep, JailError, Step};
use crate::host_mounts::HostMounts;
use crate::ids::Ids;
use crate::jail::{INSIDE_GID, INSIDE_UID, Isolation, Jail, Network, WORKSPACE};
use crate::jailed::Jailed;
use crate::seccomp::Profile;
use crate::sys::{self, Cloned};
use crate::{landlock, limits, privileges, probe, rootfs, seccomp, without_namespaces};

/// The longest account of a failure that crosses between the processes.
const MESSAGE: usize = 4096;
/// What the child says when it is confined.
const READY: &[u8] = b"ready";

/// Starts `inside` as PID 1 of a new sandbox, confined as `jail` says, and returns when it is about
/// to run. It holds `keep`, under the same numbers, and `/dev/null` as standard input, output and
/// error; nothing else of the caller's. Its return value is the process's exit code. (Programs that it
/// starts inherit what is kept, unless it is close-on-exec.)
///
/// The caller must have one thread: the new process goes on with a copy of its memory. The sandbox
/// dies with the calling thread.
pub fn spawn(jail: &Jail, keep: &[BorrowedFd<'_>], inside: impl FnOnce() -> i32) -> Result<Jailed, JailError> {
    jail.validate()?;
    let kept = check_kept(keep)?;
    // Asked for here, because the new process has another environment, and with it no older kernel to imitate.
    let abi = landlock::abi();
    if jail.network == Network::Host && abi < landlock::SCOPED {
        return Err(JailError::Unsupported {
            what: "network: host".into(),
            why: format!("this kernel's Landlock (ABI {abi}) can't fence off the host's abstract sockets"),
            fix: "use Linux 6.12 or newer, or accept it with network: host-unfenced".into(),
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
    // Only root may map ids on the host's file systems, so its trees are opened out here.
    let sources = if ids.privileged() { Some(HostMounts::open(jail, &ids)?) } else { None };
    let (ours, theirs) = handshake()?;

    let mut namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
    namespaces |= libc::CLONE_NEWUTS;
    if jail.network == Network::None {
        namespaces |= libc::CLONE_NEWNET;
    }
    // SAFETY: the caller promises one thread; the child ends in `run` and never returns here.
    let cloned = unsafe { sys::clone(namespaces) };
    let cloned = cloned.map_err(|error| FailedStep::new("make new namespaces", error).fix(probe::refused()))?;
    let (pid, pidfd) = match cloned {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            drop(ours);
            kept.push(theirs.as_raw_fd());
            kept.sort_unstable();
            kept.dedup();
            let confine = || confine(jail, &ids, sources, &program, &theirs, &kept);
            run(&theirs, confine, inside)
        }
    };
    drop(theirs);
    drop(sources);
    let (cgroup, report) = limits::arrange(jail, pid);
    let host_uid = ids.host_uid();
    let jailed = Jailed { pid, pidfd, cgroup, limits: report, host_uid, exit: None, end_by: Signal::KILL };
    let introduced = ids.write_maps(pid).and_then(|()| introduce(&ours));
    settle(jailed, introduced)
}

/// A jail that runs, or one that is cleaned away.
pub(crate) fn settle(mut jailed: Jailed, introduced: Result<(), FailedStep>) -> Result<Jailed, JailError> {
    match introduced {
        Ok(()) => Ok(jailed),
        Err(failure) => {
            // What made it fail is the news; that the remains could not be removed is said beside it.
            let failure = match jailed.cleanup() {
                Ok(_) => failure,
                Err(second) => FailedStep { step: format!("{} (and then: {second})", failure.step), ..failure },
            };
            Err(failure.into())
        }
    }
}

/// The maker's part: the sign to go on, and the wait for the result.
pub(crate) fn introduce(ours: &OwnedFd) -> Result<(), FailedStep> {
    send(ours, b"go", SendFlags::NOSIGNAL).step(|| "let the new process go on".into())?;
    let mut message = [0_u8; MESSAGE];
    let length = loop {
        match recv(ours, &mut message[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(FailedStep::new("hear from the new process", error)),
            Ok((length, _)) => break length,
        }
    };
    match &message[..length] {
        READY => Ok(()),
        [] => Err(FailedStep {
            step: "set up the sandbox".into(),
            errno: 0,
            fix: Some("its process died without a word: look for an out-of-memory kill in the kernel's log".into()),
        }),
        account => Err(FailedStep::decode(account)),
    }
}

/// Two ends that keep message borders. Ours stays open until the child has spoken: its closing tells
/// the child that we died.
pub(crate) fn handshake() -> Result<(OwnedFd, OwnedFd), FailedStep> {
    let step = || "make a socket pair".to_owned();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).step(step)?;
    // A caller without standard descriptors would find the child's end overwritten by /dev/null.
    let theirs = rustix::io::fcntl_dupfd_cloexec(&theirs, 3).step(step)?;
    Ok((ours, theirs))
}

fn check_kept(keep: &[BorrowedFd<'_>]) -> Result<Vec<RawFd>, JailError> {
    let refuse = |fd: &BorrowedFd<'_>, reason: &str| Err(JailError::invalid("keep", fd.as_raw_fd(), reason));
    for fd in keep {
        let stat =
            fstat(fd).map_err(|error| FailedStep::new(format!("look at descriptor {}", fd.as_raw_fd()), error))?;
        if fd.as_raw_fd() < 3 {
            return refuse(fd, "is a standard descriptor, which is /dev/null inside: pass a copy of it");
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() || fcntl_getfl(fd).is_ok_and(|f| f.contains(OFlags::PATH)) {
            return refuse(fd, "is a directory or a path, which would lead out of the sandbox: mount it instead");
        }
    }
    Ok(keep.iter().map(AsRawFd::as_raw_fd).collect())
}

/// The child's whole life. Nothing may unwind out of it: beyond lies the maker's code.
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
        // Whether the maker still hears it or not: this process ends.
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
    theirs: &OwnedFd,
    kept: &[RawFd],
) -> Result<(), FailedStep> {
    // The last change of credentials undoes this; here it covers the set-up. (Not being dumpable comes
    // later: it would keep an ordinary user from writing our id maps.)
    privileges::tie_to_maker()?;
    await_go(theirs)?;
    become_inside_user(ids.privileged())?;
    sys::reset_signals().step(|| "reset the signals".into())?;
    sys::replace_environment(&jail.environment()).step(|| "replace the environment".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::setsid().step(|| "start a session".into())?;
    sys::join_new_keyring().step(|| "leave the session's keyring".into())?;
    // The first calls that want a capability of the new namespace. AppArmor lets ordinary users make
    // one and takes its capabilities away.
    let stripped = |failure: FailedStep| match failure.errno {
        libc::EPERM | libc::EACCES => failure.fix(probe::refused()),
        _ => failure,
    };
    sys::unshare_cgroups().step(|| "make a cgroup namespace".into()).map_err(stripped)?;
    rustix::system::sethostname(jail.hostname.as_bytes()).step(|| "set the host name".into())?;
    if jail.network == Network::None {
        sys::loopback_up().step(|| "bring up the loopback".into())?;
    }
    let sources = match sources {
        Some(sources) => sources,
        None => HostMounts::open(jail, ids)?,
    };
    let writable = rootfs::enter(jail, sources)?;
    rustix::process::chdir(WORKSPACE).step(|| format!("enter {WORKSPACE}"))?;
    descriptors(kept)?;
    limits::apply(jail)?;
    privileges::drop_all()?;
    landlock::around(&writable)?;
    privileges::become_undumpable()?;
    privileges::tie_to_maker()?;
    check_maker(theirs)?;
    seccomp::install(program)
}

/// Waits until the maker has written our ids.
pub(crate) fn await_go(theirs: &OwnedFd) -> Result<(), FailedStep> {
    let mut go = [0_u8; 8];
    loop {
        match recv(theirs, &mut go[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((2.., _)) => return Ok(()),
            // The maker died or gave up: nobody is there to be told.
            _ => sys::exit(125),
        }
    }
}

/// The parent-death signal is set too late if the maker is dead already; then its end is closed.
pub(crate) fn check_maker(theirs: &OwnedFd) -> Result<(), FailedStep> {
    match recv(theirs, &mut [0_u8; 1][..], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(()),
        _ => sys::exit(125),
    }
}

/// From here on we own what we make: a tmpfs refuses files of ids that it can't name.
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
