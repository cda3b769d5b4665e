//! Parts of the kernel that a jail doesn't need.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

use crate::harness::{Case, World, attempt};
use crate::raw::{call, in_child, refused, text};

pub(crate) const CASES: &[Case] = &[
    ("no_new_namespaces", namespaces),
    ("no_dangerous_system_calls", dangerous),
    ("no_keyrings", keyrings),
    ("no_system_calls_of_other_kinds", other_kinds),
    ("no_typing_into_terminals", terminals),
    ("unusual_personalities_are_refused", personality),
];

/// An address that is never mapped: calls that get past the filter answer EFAULT, not EPERM.
const WILD: u64 = 8;

fn namespaces(world: &World) {
    attempt(&world.jail(), || {
        let kinds = [
            ("user", libc::CLONE_NEWUSER),
            ("mount", libc::CLONE_NEWNS),
            ("pid", libc::CLONE_NEWPID),
            ("net", libc::CLONE_NEWNET),
            ("ipc", libc::CLONE_NEWIPC),
            ("uts", libc::CLONE_NEWUTS),
            ("cgroup", libc::CLONE_NEWCGROUP),
        ];
        for (name, flag) in kinds {
            refused(&format!("unshare {name}"), libc::SYS_unshare, [flag as u64, 0, 0, 0, 0, 0], libc::EPERM)?;
            let flags = (flag | libc::SIGCHLD) as u64;
            // The kernel ignores the upper half of the argument, so the filter must too.
            for flags in [flags, flags | 1 << 40] {
                match call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]) {
                    Err(libc::EPERM) => {}
                    Ok(0) => crate::raw::exit(0),
                    other => return Err(format!("clone {name}: {other:?}")),
                }
            }
        }
        refused("clone3", libc::SYS_clone3, [WILD, 88, 0, 0, 0, 0], libc::ENOSYS)?;
        let own = std::fs::File::open("/proc/self/ns/mnt").unwrap();
        refused("setns", libc::SYS_setns, [own.as_raw_fd() as u64, 0, 0, 0, 0, 0], libc::EPERM)?;
        let limit = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap();
        if limit.trim() == "0" { Ok(()) } else { Err(format!("{} user namespaces allowed", limit.trim())) }
    });
}

fn dangerous(world: &World) {
    attempt(&world.jail(), || {
        let calls = [
            ("bpf", libc::SYS_bpf, [0, WILD, 128, 0, 0, 0]),
            ("perf_event_open", libc::SYS_perf_event_open, [WILD, 0, 0, 0, 0, 0]),
            ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
            ("io_uring_setup", libc::SYS_io_uring_setup, [8, WILD, 0, 0, 0, 0]),
            ("io_uring_enter", libc::SYS_io_uring_enter, [99, 0, 0, 0, 0, 0]),
            ("io_uring_register", libc::SYS_io_uring_register, [99, 0, 0, 0, 0, 0]),
            ("fanotify_init", libc::SYS_fanotify_init, [0, 0, 0, 0, 0, 0]),
            ("vmsplice", libc::SYS_vmsplice, [99, 0, 0, 0, 0, 0]),
            ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0, 0, 0]),
            ("kexec_file_load", libc::SYS_kexec_file_load, [99, 99, 0, 0, 0, 0]),
            ("init_module", libc::SYS_init_module, [WILD, 8, WILD, 0, 0, 0]),
            ("finit_module", libc::SYS_finit_module, [99, WILD, 0, 0, 0, 0]),
            ("delete_module", libc::SYS_delete_module, [WILD, 0, 0, 0, 0, 0]),
            // Wrong magic numbers: a kernel that lets this through answers EINVAL, and doesn't reboot.
            ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
            ("swapon", libc::SYS_swapon, [WILD, 0, 0, 0, 0, 0]),
            ("swapoff", libc::SYS_swapoff, [WILD, 0, 0, 0, 0, 0]),
            ("acct", libc::SYS_acct, [WILD, 0, 0, 0, 0, 0]),
            ("syslog", libc::SYS_syslog, [3, WILD, 10, 0, 0, 0]),
            ("quotactl", libc::SYS_quotactl, [0, WILD, 0, 0, 0, 0]),
            ("settimeofday", libc::SYS_settimeofday, [WILD, 0, 0, 0, 0, 0]),
            ("clock_settime", libc::SYS_clock_settime, [0, WILD, 0, 0, 0, 0]),
            ("sethostname", libc::SYS_sethostname, [WILD, 1, 0, 0, 0, 0]),
            ("lookup_dcookie", libc::SYS_lookup_dcookie, [0, 0, 0, 0, 0, 0]),
            ("pidfd_getfd", libc::SYS_pidfd_getfd, [99, 0, 0, 0, 0, 0]),
            ("move_pages", libc::SYS_move_pages, [0, 1, WILD, 0, 0, 0]),
            ("open_tree_attr", 467, [99, WILD, 0, 0, 0, 0]),
        ];
        calls.into_iter().try_for_each(|(what, number, arguments)| refused(what, number, arguments, libc::EPERM))?;
        #[cfg(target_arch = "x86_64")]
        for (what, number) in
            [("iopl", libc::SYS_iopl), ("ioperm", libc::SYS_ioperm), ("modify_ldt", libc::SYS_modify_ldt)]
        {
            refused(what, number, [99, WILD, 8, 0, 0, 0], libc::EPERM)?;
        }
        Ok(())
    });
}

fn keyrings(world: &World) {
    attempt(&world.jail(), || {
        let (kind, name) = (text(c"user"), text(c"podbay"));
        refused("add_key", libc::SYS_add_key, [kind, name, name, 1, (-3_i64) as u64, 0], libc::EPERM)?;
        refused("request_key", libc::SYS_request_key, [kind, name, 0, 0, 0, 0], libc::EPERM)?;
        (0..10).try_for_each(|operation| {
            refused(
                &format!("keyctl {operation}"),
                libc::SYS_keyctl,
                [operation, (-3_i64) as u64, 0, 0, 0, 0],
                libc::EPERM,
            )
        })
    });
}

fn other_kinds(world: &World) {
    attempt(&world.jail(), || {
        for number in [470, 480, 512, 600, 1 << 20] {
            refused("a call of a later kernel", number, [0; 6], libc::ENOSYS)?;
        }
        #[cfg(target_arch = "x86_64")]
        {
            const X32: libc::c_long = 0x4000_0000;
            refused("getpid of x32", X32 | libc::SYS_getpid, [0; 6], libc::ENOSYS)?;
            let status = in_child(|| i32::from(crate::raw::getpid_32() > 0));
            if !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGSYS {
                return Err(format!("a 32-bit call ended with status {status:#x}"));
            }
        }
        if in_child(|| 0) == 0 { Ok(()) } else { Err("the control: a child ends well".into()) }
    });
}

/// bubblewrap's CVE-2017-5226, and snapd's CVE-2019-7303 (a compare of 64 bits).
fn terminals(world: &World) {
    attempt(&world.jail(), || {
        let terminal =
            OpenOptions::new().read(true).write(true).open("/dev/ptmx").map_err(|error| error.to_string())?;
        let fd = terminal.as_raw_fd() as u64;
        let byte = b"x";
        for request in [libc::TIOCSTI, libc::TIOCLINUX] {
            for request in [request, request | 1 << 32, request | 0xffff_ffff << 32] {
                refused("TIOCSTI", libc::SYS_ioctl, [fd, request, byte.as_ptr() as u64, 0, 0, 0], libc::EPERM)?;
            }
        }
        let mut number = 0_u32;
        match call(libc::SYS_ioctl, [fd, libc::TIOCGPTN, &raw mut number as u64, 0, 0, 0]) {
            Ok(_) => Ok(()),
            Err(errno) => Err(format!("the control: a terminal's number can be asked for: errno {errno}")),
        }
    });
}

fn personality(world: &World) {
    attempt(&world.jail(), || {
        // READ_IMPLIES_EXEC and MMAP_PAGE_ZERO disable memory protections.
        for persona in [0x0040_0000, 0x0010_0000, 0x0020_0000, 0x0006] {
            refused("personality", libc::SYS_personality, [persona, 0, 0, 0, 0, 0], libc::EPERM)?;
        }
        call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]).map(drop).map_err(|errno| format!("asking: {errno}"))
    });
}
