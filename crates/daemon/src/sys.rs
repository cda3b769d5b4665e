//! The system calls that no safe crate offers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which side of a fork this is.
pub enum Fork {
    /// The parent, which is told the child's process id.
    Parent(i32),
    /// The child.
    Child,
}

/// Forks. The child continues with a copy of everything.
///
/// # Errors
/// When the kernel has no room for another process.
///
/// # Panics
/// When this process has more than one thread: a lock held by another one would stay locked in the child forever.
pub fn fork() -> io::Result<Fork> {
    assert_single_threaded();
    // SAFETY: there is one thread only, so no lock is held by another at this moment.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Checks once: the processes that fork often are forks of one that has checked, and none of them makes threads.
fn assert_single_threaded() {
    static LOOKED: std::sync::Once = std::sync::Once::new();
    LOOKED.call_once(|| {
        // Without /proc nothing can be counted.
        if let Ok(tasks) = std::fs::read_dir("/proc/self/task") {
            assert!(tasks.count() <= 1, "podbayd forked with more than one thread");
        }
    });
}

/// What happened to a child.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The child.
    pub pid: i32,
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// Peak resident memory in bytes.
    pub peak_memory: u64,
}

/// What [`reap`] found.
#[derive(Debug, Clone, Copy)]
pub enum Reaped {
    /// A child has ended.
    Ended(Ended),
    /// All children still run.
    AllRun,
    /// There are no children.
    NoChildren,
}

/// Reaps one child that has ended, if there is one.
pub fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live local variables of the right types.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
    match pid {
        0 => return Reaped::AllRun,
        -1 => return Reaped::NoChildren,
        _ => {}
    }
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Reaped::Ended(Ended {
        pid,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        peak_memory: usage.ru_maxrss as u64 * 1024,
    })
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child ends.
///
/// # Errors
/// When the kernel refuses the descriptor.
pub fn child_signals() -> io::Result<OwnedFd> {
    take_signals(&[libc::SIGCHLD])
}

fn take_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is valid, and sigemptyset makes it the empty one.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live local variable; the calls only write to it or read it.
    let fd = unsafe {
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd has just made this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The signals that [`ignore_write_signals`] ignores.
pub const WRITE_SIGNALS: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Makes writing to a pipe without readers, or to a file at its size limit, an error instead of a fatal signal. For pipes
/// Rust's runtime does this at start, and the jail undoes it.
pub fn ignore_write_signals() {
    for signal in WRITE_SIGNALS {
        // SAFETY: ignoring a signal takes plain numbers.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ignores every signal that can be ignored, except SIGCHLD. Any process of the same user can send them, commands included.
pub fn ignore_signals() {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGCHLD) {
        // SAFETY: ignoring a signal takes plain numbers. A fault of this process itself still ends it.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Blocks TERM and INT and returns a descriptor from which they are read, with their senders.
///
/// # Errors
/// When the kernel refuses the descriptor.
pub fn end_signals() -> io::Result<OwnedFd> {
    take_signals(&[libc::SIGTERM, libc::SIGINT])
}

/// Stops ignoring TERM and INT, so that they reach the descriptor of [`end_signals`].
pub fn accept_end_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the default for a signal takes plain numbers. The signals are blocked.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Registers a descriptor with the runtime, to wait until it can be read.
///
/// # Errors
/// When it can't be polled.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd has one number all its life, and the returned value keeps it open.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// The sender of a signal that has arrived: 0 for the kernel and for processes of other pid namespaces.
///
/// # Errors
/// When none has arrived.
pub fn signal_sender(signals: &impl AsRawFd) -> io::Result<i32> {
    // SAFETY: an all-zero value is valid; read gets a live local variable and its size.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = std::mem::size_of_val(&info);
        match libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size) {
            read if read == size as isize => Ok(info.ssi_pid as i32),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Resets every signal to its default: whoever started this process may have ignored some.
pub fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default for a signal takes plain numbers.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks all signals and stops ignoring [`WRITE_SIGNALS`], for a new program. For `pre_exec`: it only makes system calls,
/// and few.
pub fn reset_signals() {
    // SAFETY: an all-zero set is valid; the calls take it or plain numbers, and are allowed between fork and exec.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        for signal in WRITE_SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Runs `before` in the child between fork and exec.
///
/// `before` must only make system calls: no memory may be allocated there.
pub fn before_exec(
    command: &mut std::process::Command,
    before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt;
    // SAFETY: every caller's closure makes system calls on values that were prepared before the fork.
    unsafe { command.pre_exec(before) };
}

/// Makes this process not dumpable: other processes of the same user can't read its memory, and no core dump is written.
pub fn set_undumpable() {
    // SAFETY: PR_SET_DUMPABLE takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Clears close-on-exec of a descriptor.
///
/// # Errors
/// When it isn't open.
pub fn keep_across_exec(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: fcntl on a borrowed, open descriptor with plain numbers.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes over a descriptor that this process was started with.
///
/// A standard one is replaced by `/dev/null`, so that no other file gets its number and receives what is printed.
///
/// # Errors
/// When it isn't open.
pub fn inherited(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with plain numbers; it fails on a descriptor that isn't open.
    let moved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: only the caller that was told the number uses it, so replacing or closing it takes it from nobody.
    unsafe {
        if fd <= 2 {
            libc::dup2(null.as_raw_fd(), fd);
        } else {
            libc::close(fd);
        }
    }
    // SAFETY: fcntl has just made it, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: i32) {
    // SAFETY: the caller owns no descriptor from `first` on that it uses later; close_range takes plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if done == 0 {
        return;
    }
    // Kernels before 5.9 and some versions of gVisor lack close_range.
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Moves a descriptor to number 3, so that [`close_from`] can close all others.
///
/// # Errors
/// When the kernel refuses.
pub fn move_to_three(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() == 3 {
        return Ok(fd);
    }
    // SAFETY: `fd` is open; what was at 3 is closed, which the caller is about to do anyway.
    if unsafe { libc::dup3(fd.as_raw_fd(), 3, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: dup3 has just made it, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(3) })
}

/// The process and user at the other end of a unix socket: who connected, or who listened. Nothing for a process of another
/// pid namespace.
///
/// # Errors
/// When the kernel doesn't tell.
pub fn peer(socket: impl AsFd) -> io::Result<Option<(rustix::process::Pid, rustix::process::Uid)>> {
    // Not by rustix, which assumes that the process has a number; one of another namespace has none.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: the option writes a `ucred`, and any bytes are a valid one.
    unsafe { socket_option(socket, libc::SO_PEERCRED, &mut credentials) }?;
    let user = rustix::process::Uid::from_raw(credentials.uid);
    Ok(rustix::process::Pid::from_raw(credentials.pid).map(|pid| (pid, user)))
}

/// A pidfd of that process; nothing before Linux 6.5.
///
/// # Errors
/// When it has ended.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    // SAFETY: the option writes an `int`, and any bytes are a valid one.
    match unsafe { socket_option(socket, SO_PEERPIDFD, &mut fd) } {
        // SAFETY: the kernel has just made it, and nobody else owns it.
        Ok(()) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The parent of a process, by its pidfd; nothing if the parent is outside of this pid namespace.
///
/// # Errors
/// `ESRCH` when the process has ended; others where the kernel doesn't tell, which it does from Linux 6.13 on.
pub fn pidfd_parent(process: impl AsFd) -> io::Result<Option<rustix::process::Pid>> {
    /// `struct pidfd_info` in its first version: longer ones are accepted by newer kernels only.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        pid: u32,
        tgid: u32,
        ppid: u32,
        users_and_exit_code: [u32; 9],
    }
    /// `_IOWR(0xff, 11, struct pidfd_info)`
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    /// `PIDFD_INFO_PID`: the three ids.
    const PID: u64 = 1;
    const { assert!(size_of::<Info>() == 64, "the size is in the number of the call") };
    let mut info = Info { mask: PID, ..Info::default() };
    // SAFETY: the kernel writes at most as many bytes as the call's number says, and any bytes are a valid structure.
    let done = unsafe { libc::ioctl(process.as_fd().as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    match done {
        0 => Ok(i32::try_from(info.ppid).ok().and_then(rustix::process::Pid::from_raw)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// The option must write a `T`, and all that it can write must be valid ones.
unsafe fn socket_option<T>(socket: impl AsFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the socket is open, and the kernel writes at most `length` bytes, which is the value's size.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, std::ptr::from_mut(value).cast(), &raw mut length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
