//! Direct system calls.
#![allow(unsafe_code)]

use libc::c_long;

/// Makes a system call. A pointer among its arguments must be null, valid, or unmapped, so that the kernel refuses it.
pub(crate) fn call(number: c_long, arguments: [u64; 6]) -> Result<c_long, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the callers pass numbers, null, pointers to living data, or addresses that are not mapped.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(result) }
}

/// Fails unless the call is refused with this error number.
pub(crate) fn refused(what: &str, number: c_long, arguments: [u64; 6], errno: i32) -> Result<(), String> {
    match call(number, arguments) {
        Err(found) if found == errno => Ok(()),
        Err(found) => Err(format!("{what}: errno {found} instead of {errno}")),
        Ok(result) => Err(format!("{what}: worked, result {result}")),
    }
}

/// The address of a C string, for a system call.
pub(crate) fn text(text: &std::ffi::CStr) -> u64 {
    text.as_ptr() as u64
}

/// Runs a function in a forked child and returns its raw wait status.
pub(crate) fn in_child(run: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the process has one thread, and the child exits.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(99);
            // SAFETY: always allowed.
            unsafe { libc::_exit(code) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => {
            let mut status = 0;
            // SAFETY: the status lives through the call.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(waited, child);
            status
        }
    }
}

/// As [`fork`], for a helper outside of any jail: it dies with this process, also when a case fails.
pub(crate) fn helper() -> Option<i32> {
    let child = fork();
    if child.is_none() {
        let tied = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        if tied.is_err() {
            exit(98);
        }
    }
    child
}

/// Forks; `None` in the child, which must end by [`exit`].
pub(crate) fn fork() -> Option<i32> {
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        0 => None,
        child => Some(child),
    }
}

/// Ends a forked child.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(code) }
}

/// `getpid` by the call gate of 32-bit programs.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_32() -> i32 {
    let result: i32;
    // SAFETY: the call takes no pointers; the registers that the gate may change are named.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") 20 => result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}
