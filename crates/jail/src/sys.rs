//! System calls that rustix lacks, with a safe interface where that is possible.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A flag of `clone3`; libc's constant is an `int`, into which it doesn't fit.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a clone this is.
pub(crate) enum Cloned {
    Parent {
        pid: rustix::process::Pid,
        pidfd: OwnedFd,
    },
    Child {
        /// Whether it started in the cgroup that it was meant for.
        in_cgroup: bool,
    },
}

/// Forks into new namespaces, and into a cgroup of version 2 where the kernel does that: moving there later takes milliseconds,
/// in which the kernel waits.
///
/// # Safety
/// As for fork: the process must have one thread, or the child may only make system calls. The
/// child must end by [`exit`], never by returning into the caller's code.
pub(crate) unsafe fn clone(namespaces: c_int, cgroup: Option<&OwnedFd>) -> io::Result<Cloned> {
    let flags = (namespaces | libc::CLONE_PIDFD) as u64;
    let mut pidfd: RawFd = -1;
    let none: libc::c_ulong = 0;
    // Container engines answer ENOSYS to `clone3`, and a group may refuse; `clone` reports what fails for other reasons.
    let directly = cgroup.and_then(|cgroup| {
        let arguments = libc::clone_args {
            flags: flags | CLONE_INTO_CGROUP,
            pidfd: (&raw mut pidfd).addr() as u64,
            exit_signal: libc::SIGCHLD as u64,
            cgroup: cgroup.as_raw_fd() as u64,
            // SAFETY: these are numbers, and zero means that the feature isn't used.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: as below; the arguments live until the call returns, and their size is given.
        check(unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) }).ok()
    });
    let (pid, in_cgroup) = match directly {
        Some(pid) => (pid, true),
        // The first three arguments come in the same order on x86_64 and aarch64.
        // SAFETY: with a null stack the child continues on a copy of ours, as after fork; `pidfd` lives until the call returns.
        None => (
            check(unsafe {
                let flags = flags as libc::c_ulong | libc::SIGCHLD as libc::c_ulong;
                libc::syscall(libc::SYS_clone, flags, none, &raw mut pidfd, none, none)
            })?,
            false,
        ),
    };
    if pid == 0 {
        return Ok(Cloned::Child { in_cgroup });
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("the kernel gave pid 0"))?;
    Ok(Cloned::Parent { pid, pidfd })
}

/// Ends this process at once: no destructors, no buffers flushed twice.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` may be called at any time.
    unsafe { libc::_exit(code) }
}

/// What `mount_setattr` sets; the layout is the kernel's `struct mount_attr`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

pub(crate) const RDONLY: u64 = 0x1;
pub(crate) const NOSUID: u64 = 0x2;
pub(crate) const NODEV: u64 = 0x4;
pub(crate) const NOEXEC: u64 = 0x8;
pub(crate) const IDMAP: u64 = 0x10_0000;

/// Changes the attributes of the mount with this root, and with `recursive` of all mounts below it.
pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, recursive: bool, attr: MountAttr) -> io::Result<()> {
    const AT_RECURSIVE: c_int = 0x8000;
    let flags = libc::AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, the structure lives through the call and its size is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Closes every descriptor but the kept ones, which must be sorted.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut first: u32 = 0;
    for &fd in keep {
        let fd = fd as u32;
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the caller runs in a process that ends without using any of the closed descriptors.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}

/// Resets every signal to its default action, and unblocks all: the caller's handlers don't belong in a jail.
pub(crate) fn reset_signals() -> io::Result<()> {
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // Not through libc, which protects its two internal signals: their handlers would stay.
        let action = [0_u64; 8];
        // SAFETY: an all-zero `sigaction` of the kernel (32 bytes at most here) is SIG_DFL.
        check(unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), std::ptr::null_mut::<u8>(), 8_usize)
        })?;
    }
    let none: u64 = 0;
    // SAFETY: the mask is eight bytes, as said.
    check(unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, std::ptr::null_mut::<u8>(), 8_usize)
    })?;
    Ok(())
}

/// Leaves the keyring of the caller's session for an empty one.
pub(crate) fn join_new_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    match check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) }) {
        Ok(_) => Ok(()),
        // A kernel without keyrings has no keys to leak.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Brings up the loopback of this network namespace.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is a valid `ifreq` that lives through the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }.into())?;
    Ok(())
}

/// Replaces the environment, and overwrites the memory that holds the caller's original arguments and environment: they are
/// readable as `/proc/1/cmdline` inside, because this process doesn't exec.
pub(crate) fn replace_environment(environment: &[(&str, String)]) -> io::Result<()> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in the second field may contain anything, so count from its closing bracket.
    let numbers = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let field = |n: usize| numbers.split_ascii_whitespace().nth(n - 3).and_then(|f| f.parse::<usize>().ok());
    let (Some(arg_start), Some(arg_end), Some(env_start), Some(env_end)) = (field(48), field(49), field(50), field(51))
    else {
        return Err(io::Error::other("/proc/self/stat lacks the fields of Linux 3.5"));
    };
    // SAFETY: this process has one thread, so nothing reads the environment meanwhile. libc drops the old strings before their
    // memory is overwritten.
    unsafe {
        if libc::clearenv() != 0 {
            return Err(io::Error::other("clearenv failed"));
        }
    }
    for (start, end) in [(arg_start, arg_end), (env_start, env_end)] {
        if start != 0 && end > start {
            // SAFETY: according to the kernel, this range of our stack holds the initial strings. `std::env::args` copies them on
            // use, and nothing in this process uses them from here on.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, end - start) };
        }
    }
    for (name, value) in environment {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// Makes this process see its current cgroups as the roots.
pub(crate) fn unshare_cgroups() -> io::Result<()> {
    // SAFETY: this changes a view of the file system only, neither descriptors nor memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into())?;
    Ok(())
}

/// Blocks every signal; [`next_signal`] receives them.
pub(crate) fn block_signals() -> io::Result<()> {
    let all = u64::MAX;
    // SAFETY: the mask is eight bytes, as said.
    check(unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, std::ptr::null_mut::<u8>(), 8_usize)
    })?;
    Ok(())
}

/// Waits for a blocked signal.
pub(crate) fn next_signal() -> io::Result<c_int> {
    let all = u64::MAX;
    loop {
        let none = std::ptr::null_mut::<u8>();
        // SAFETY: the mask is eight bytes, as said; neither details nor a timeout are requested.
        match check(unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &raw const all, none, none, 8_usize) }) {
            Ok(signal) => return Ok(signal as c_int),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions};
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    /// Where this process may make a group of version 2, if anywhere.
    fn unified_group() -> Option<std::path::PathBuf> {
        let own = crate::cgroup::unified_group_of_this_process()?;
        let group = own.join(format!("podbay-clone-test.{}", std::process::id()));
        fs::create_dir(&group).ok().map(|()| group)
    }

    #[test]
    fn a_process_starts_in_its_cgroup_of_version_2() {
        let Some(group) = unified_group() else {
            eprintln!("skipped: no cgroup v2 in which this user can make a group");
            return;
        };
        let directory = OwnedFd::from(File::open(&group).unwrap());
        // That isn't a group, so the plain `clone` has to do it.
        let other = OwnedFd::from(File::open("/dev/null").unwrap());
        let run = |cgroup: &OwnedFd| {
            let (read, write) = rustix::pipe::pipe().unwrap();
            // SAFETY: the child only makes system calls, and ends.
            match unsafe { clone(0, Some(cgroup)) }.unwrap() {
                Cloned::Child { in_cgroup } => {
                    let _ = rustix::io::read(&read, &mut [0_u8; 1]);
                    exit(i32::from(in_cgroup))
                }
                Cloned::Parent { pid, pidfd } => {
                    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
                    rustix::io::write(&write, b"x").unwrap();
                    let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
                    let said = status.unwrap().unwrap().exit_status() == Some(1);
                    (said, members.lines().any(|member| member == pid.as_raw_nonzero().to_string()))
                }
            }
        };
        let (inside, fallback) = (run(&directory), run(&other));
        fs::remove_dir(&group).unwrap();
        assert_eq!((inside, fallback), ((true, true), (false, false)), "(what the child said, where it was)");
    }
}
