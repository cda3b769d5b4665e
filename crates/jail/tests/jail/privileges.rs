//! A jail has no privileges, and can't get any.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use crate::harness::{Case, World, attempt, unreadable};
use crate::raw::{call, in_child};

pub(crate) const CASES: &[Case] = &[
    ("there_are_no_privileges", none),
    ("ids_cannot_be_changed", ids),
    ("the_machines_settings_cannot_be_written", settings),
    ("proc_says_little_of_the_machine", masked),
];

fn none(world: &World) {
    attempt(&world.jail(), || {
        let look = |path: &str| {
            let status = fs::read_to_string(path).unwrap();
            let wanted = [
                ("CapInh", "0000000000000000"),
                ("CapPrm", "0000000000000000"),
                ("CapEff", "0000000000000000"),
                ("CapBnd", "0000000000000000"),
                ("CapAmb", "0000000000000000"),
                ("NoNewPrivs", "1"),
                ("Seccomp", "2"),
                ("Uid", "1000 1000 1000 1000"),
                ("Gid", "1000 1000 1000 1000"),
                ("Umask", "0022"),
                ("SigBlk", "0000000000000000"),
                ("SigCgt", "0000000000000000"),
            ];
            wanted.iter().try_for_each(|(name, wanted)| {
                let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
                let found = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
                if found == *wanted { Ok(()) } else { Err(format!("{path}: {name} is {found}")) }
            })
        };
        look("/proc/1/status")?;
        let bits = call(libc::SYS_prctl, [libc::PR_GET_SECUREBITS as u64, 0, 0, 0, 0, 0]).unwrap();
        // All but KEEP_CAPS itself, which is locked at 0.
        if bits != 0b1110_1111 {
            return Err(format!("secure bits are {bits:#b}"));
        }
        let dumpable = call(libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0]).unwrap();
        if dumpable != 0 || std::process::id() != 1 {
            return Err(format!("dumpable {dumpable}, pid {}", std::process::id()));
        }
        let session = rustix::process::getsid(None).unwrap();
        if session.as_raw_nonzero().get() != 1 || File::open("/dev/tty").is_ok() {
            return Err("there is a controlling terminal or somebody else's session".into());
        }
        let cores = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
        if cores != Some(0) { Err(format!("core files of {cores:?}")) } else { Ok(()) }
    });
}

fn ids(world: &World) {
    attempt(&world.jail(), || {
        for id in [0_u64, 1, 65_534] {
            for (what, number) in [("setuid", libc::SYS_setuid), ("setgid", libc::SYS_setgid)] {
                if call(number, [id, 0, 0, 0, 0, 0]).is_ok() {
                    return Err(format!("{what}({id}) worked"));
                }
            }
        }
        let groups = [0_u32];
        if call(libc::SYS_setgroups, [1, groups.as_ptr() as u64, 0, 0, 0, 0]).is_ok() {
            return Err("setgroups worked".into());
        }
        for map in ["/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups"] {
            if fs::write(map, "0 0 1").is_ok() {
                return Err(format!("{map} was written"));
            }
        }
        Ok(())
    });
}

fn settings(world: &World) {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    attempt(&world.jail(), || {
        let files = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hostname",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sysrq-trigger",
            "/proc/irq/default_smp_affinity",
            "/proc/1/oom_score_adj_not",
        ];
        // A masked file accepts writes and does nothing, so this looks for the real one's effect.
        for file in files.iter().filter(|file| Path::new(file).exists()) {
            let real = fs::metadata(file).unwrap();
            let null = fs::metadata("/dev/null").unwrap();
            let masked = std::os::unix::fs::MetadataExt::rdev(&real) == std::os::unix::fs::MetadataExt::rdev(&null);
            if !masked && OpenOptions::new().write(true).open(file).is_ok() {
                return Err(format!("{file} can be opened for writing"));
            }
        }
        Ok(())
    });
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), pattern);
}

fn masked(world: &World) {
    attempt(&world.jail(), || {
        for name in ["kcore", "keys", "key-users", "timer_list", "kallsyms", "interrupts", "kmsg", "sched_debug"] {
            let path = format!("/proc/{name}");
            if fs::read(&path).is_ok_and(|bytes| !bytes.is_empty()) {
                return Err(format!("{path} says something"));
            }
        }
        if fs::read_dir("/proc/acpi").is_ok_and(|entries| entries.count() > 0) {
            return Err("/proc/acpi is open".into());
        }
        // Tried from a child: PID 1's memory is a copy of the caller's, and PID 1 isn't dumpable.
        let status = in_child(|| {
            let closed = ["mem", "environ", "maps", "root", "cwd", "fd", "auxv"].iter().all(|name| {
                let path = format!("/proc/1/{name}");
                unreadable(&path).is_ok() || fs::read_dir(&path).is_err()
            });
            i32::from(!closed)
        });
        if status == 0 { Ok(()) } else { Err("/proc/1 is open to others".into()) }
    });
}
