//! Changes of file modes and times, decided by seccomp user notification.
//!
//! Landlock doesn't restrict `chmod` and `utimensat` by path, so without namespaces an ordinary user's command could change the
//! modes of all of the user's files. But compilers, git and tar need both calls. So the kernel suspends a command in these calls
//! and notifies its shim, which makes the change if the file is in a directory that the command may write to.
//!
//! The command's memory is read once: the file is opened (as a path only) from what was read, and what was opened is what is
//! checked and changed.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, openat};
use seccompiler::{BpfProgram, sock_filter};

/// `fchmodat2`, of Linux 6.6.
const FCHMODAT2: libc::c_long = 452;

/// The longest path, its final NUL included.
const PATH_MAX: usize = 4096;

/// The calls that the shim decides.
const CALLS: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// A filter that notifies of [`CALLS`] and allows everything else. When several filters apply, a refusal takes precedence over
/// a notification; and the other filter has killed calls of other architectures already.
pub(crate) fn filter() -> BpfProgram {
    let op = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (index, call) in CALLS.iter().enumerate() {
        let to_notify = (CALLS.len() - index) as u8;
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_notify, 0, *call as u32));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Installs a filter that notifies, and returns the descriptor on which notifications arrive. Makes system calls only.
pub(crate) fn listen(program: &BpfProgram) -> io::Result<OwnedFd> {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program lives through the call, which copies it; seccompiler's `sock_filter` has the kernel's layout.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as i32) })
}

/// The kernel's `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    call: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// The kernel's `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/seccomp.h#L142>
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const IS_VALID: u64 = 0x4008_2102;

/// Receives the notifications of one command, and makes the changes that are allowed.
#[derive(Debug)]
pub struct SeccompListener {
    listener: OwnedFd,
    /// Directories in which files may be changed: real paths.
    writable: Vec<PathBuf>,
}

impl AsFd for SeccompListener {
    /// Readable when there is a notification.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl SeccompListener {
    pub(crate) fn new(listener: OwnedFd, writable: Vec<PathBuf>) -> Self {
        Self { listener, writable }
    }

    /// Receives one notification and responds to it.
    ///
    /// # Errors
    /// When there is none, or the command no longer waits for the response.
    pub fn respond_to_one(&self) -> io::Result<()> {
        let mut notification = Notification::default();
        self.control(RECEIVE, &raw mut notification)?;
        let error = match self.change(&notification) {
            Ok(()) => 0,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EPERM),
        };
        let mut response = Response { id: notification.id, value: 0, error, flags: 0 };
        self.control(SEND, &raw mut response)
    }

    fn control<T>(&self, request: u64, argument: *mut T) -> io::Result<()> {
        // SAFETY: each request comes with a pointer to the structure that it is for, which lives through the call.
        match unsafe { libc::ioctl(self.listener.as_raw_fd(), request as _, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn change(&self, notification: &Notification) -> io::Result<()> {
        let [first, second, third, fourth, ..] = notification.arguments;
        let here = libc::AT_FDCWD as u64;
        let (dir, path, value, flags) = match libc::c_long::from(notification.call) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (here, first, second, 0),
            // The file may be open for reading only, in a directory that the command may not write to.
            libc::SYS_fchmod => (first, 0, second, libc::AT_EMPTY_PATH),
            // The call has no flags: the fourth register holds an unrelated value.
            libc::SYS_fchmodat => (first, second, third, 0),
            _ => (first, second, third, fourth as i32),
        };
        let process = format!("/proc/{}", notification.pid);
        let memory = File::open(format!("{process}/mem"))?;
        let is_time = libc::c_long::from(notification.call) == libc::SYS_utimensat;
        let times = match (is_time, value) {
            (true, 1..) => Some(read_times(&memory, value)?),
            _ => None,
        };
        // Without a path, the call is about a descriptor.
        let by_descriptor = libc::c_long::from(notification.call) == libc::SYS_fchmod || (is_time && path == 0);
        let path = if by_descriptor { Vec::new() } else { read_path(&memory, path)? };
        let file = self.open(&process, dir as i32, &path, flags)?;
        // The process may have died while its files were read, and another may have its id now.
        let mut id = notification.id;
        self.control(IS_VALID, &raw mut id)?;
        let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !self.writable.iter().any(|dir| real.starts_with(dir)) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        match is_time {
            true => set_times(&file, times.as_ref()),
            false => set_mode(&file, value as libc::mode_t & 0o7777),
        }
    }

    /// Opens (as a path only) what a path means to the process.
    fn open(&self, process: &str, dir: i32, path: &[u8], flags: i32) -> io::Result<OwnedFd> {
        if path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 && dir == libc::AT_FDCWD {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let mut how = OFlags::PATH | OFlags::CLOEXEC;
        let start = match dir {
            libc::AT_FDCWD => format!("{process}/cwd"),
            number => format!("{process}/fd/{number}"),
        };
        if path.is_empty() {
            return Ok(openat(CWD, start, how, Mode::empty())?);
        }
        if !follow {
            how |= OFlags::NOFOLLOW;
        }
        // «self» must be the process, not the shim.
        for own in [&b"/proc/self/"[..], b"/proc/thread-self/"] {
            if let Some(rest) = path.strip_prefix(own) {
                let path = [process.as_bytes(), b"/", rest].concat();
                return Ok(openat(CWD, path, how, Mode::empty())?);
            }
        }
        if path.starts_with(b"/") {
            return Ok(openat(CWD, path, how, Mode::empty())?);
        }
        let start = openat(CWD, start, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(openat(start, path, how, Mode::empty())?)
    }
}

fn read_path(memory: &File, address: u64) -> io::Result<Vec<u8>> {
    let mut path = Vec::new();
    let mut buffer = [0; 256];
    while path.len() < PATH_MAX {
        let at = address.checked_add(path.len() as u64).ok_or_else(fault)?;
        // Up to the end of a page only: the next one may not be mapped.
        let most = buffer.len().min(4096 - (at % 4096) as usize);
        let count = memory.read_at(&mut buffer[..most], at).map_err(|_| fault())?;
        match buffer[..count].iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&buffer[..end]);
                return Ok(path);
            }
            None if count == 0 => return Err(fault()),
            None => path.extend_from_slice(&buffer[..count]),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

fn read_times(memory: &File, address: u64) -> io::Result<[libc::timespec; 2]> {
    let mut bytes = [0; 32];
    memory.read_exact_at(&mut bytes, address).map_err(|_| fault())?;
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        i64::from_ne_bytes(word)
    };
    Ok([0, 16].map(|at| libc::timespec { tv_sec: number(at), tv_nsec: number(at + 8) }))
}

fn fault() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

fn set_mode(file: &OwnedFd, mode: libc::mode_t) -> io::Result<()> {
    let empty = CString::default();
    // SAFETY: the path is a C string, the other arguments are numbers.
    let result = unsafe { libc::syscall(FCHMODAT2, file.as_raw_fd(), empty.as_ptr(), mode, libc::AT_EMPTY_PATH) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_times(file: &OwnedFd, times: Option<&[libc::timespec; 2]>) -> io::Result<()> {
    let empty = CString::default();
    let times = times.map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the path is a C string, and the times are an array of two or null, as the call takes them.
    let result =
        unsafe { libc::syscall(libc::SYS_utimensat, file.as_raw_fd(), empty.as_ptr(), times, libc::AT_EMPTY_PATH) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
