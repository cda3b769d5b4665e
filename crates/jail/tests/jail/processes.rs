//! Processes outside of the jail, and how a jail's own processes end.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use podbay_jail::{JailExit, spawn};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Case, World, attempt, start};
use crate::raw::{self, call, in_child};

pub(crate) const CASES: &[Case] = &[
    ("processes_outside_are_not_seen", unseen),
    ("processes_outside_are_not_traced", untraced),
    ("the_sandboxs_pid_1_is_not_traced", pid_1),
    ("tracing_inside_works", tracing_inside),
    ("a_jail_dies_with_its_maker", dies_with_maker),
    ("killing_a_jail_ends_all_its_processes", all_end),
    ("exit_codes_and_panics_come_back", exit_codes),
];

/// Whether a process lives (a zombie doesn't).
pub(crate) fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X'])))
}

/// Waits until a condition holds.
pub(crate) fn soon(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !test() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All processes below one, by parent links.
pub(crate) fn descendants(of: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let this = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == this).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn unseen(world: &World) {
    let outside = std::process::id();
    attempt(&world.jail(), || {
        let pids: Vec<u32> =
            fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok()).collect();
        if pids != [1] {
            return Err(format!("/proc has {pids:?}"));
        }
        for signal in [0, 9] {
            match call(libc::SYS_kill, [u64::from(outside), signal, 0, 0, 0, 0]) {
                Err(libc::ESRCH) => {}
                other => return Err(format!("kill of the maker: {other:?}")),
            }
        }
        match call(libc::SYS_pidfd_open, [u64::from(outside), 0, 0, 0, 0, 0]) {
            Err(libc::ESRCH) => Ok(()),
            other => Err(format!("pidfd_open of the maker: {other:?}")),
        }
    });
}

fn untraced(world: &World) {
    let outside = u64::from(std::process::id());
    attempt(&world.jail(), || {
        for request in [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE] {
            match call(libc::SYS_ptrace, [u64::from(request), outside, 0, 0, 0, 0]) {
                Err(libc::ESRCH | libc::EPERM) => {}
                other => return Err(format!("ptrace: {other:?}")),
            }
        }
        // Allowed like ptrace, because debuggers use them, and with the same restrictions.
        let mut byte = 0_u8;
        let (base, length) = (&raw mut byte as u64, 1_u64);
        let piece = [base, length];
        let piece = piece.as_ptr() as u64;
        for victim in [outside, 1] {
            for number in [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
                let status = in_child(|| match call(number, [victim, piece, 1, piece, 1, 0]) {
                    Err(libc::ESRCH | libc::EPERM) => 0,
                    _ => 1,
                });
                if status != 0 {
                    return Err(format!("process_vm_readv or writev ({number}) of {victim}"));
                }
            }
        }
        raw::refused("kcmp", libc::SYS_kcmp, [outside, outside, 0, 0, 0, 0], libc::EPERM)
    });
}

fn pid_1(world: &World) {
    attempt(&world.jail(), || {
        let status = in_child(|| match call(libc::SYS_ptrace, [u64::from(libc::PTRACE_ATTACH), 1, 0, 0, 0, 0]) {
            Err(libc::EPERM) => 0,
            _ => 1,
        });
        if status == 0 { Ok(()) } else { Err("PID 1 could be traced".into()) }
    });
}

fn tracing_inside(world: &World) {
    attempt(&world.jail(), || {
        let status =
            in_child(|| i32::from(call(libc::SYS_ptrace, [u64::from(libc::PTRACE_TRACEME), 0, 0, 0, 0, 0]).is_err()));
        if status == 0 { Ok(()) } else { Err("a debugger would not work".into()) }
    });
}

fn dies_with_maker(world: &World) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let maker = raw::helper().unwrap_or_else(|| {
        let jailed = spawn(&world.jail(), &[], || {
            // A grandchild in a session of its own, as daemons do.
            if raw::fork().is_none() {
                let _ = rustix::process::setsid();
                std::thread::sleep(Duration::from_secs(600));
            }
            std::thread::sleep(Duration::from_secs(600));
            0
        });
        let pid = jailed.map_or(0, |jailed| jailed.pid().as_raw_nonzero().get());
        let _ = rustix::io::write(&write, &pid.to_ne_bytes());
        std::thread::sleep(Duration::from_secs(600));
        raw::exit(0)
    });
    let mut pid = [0_u8; 4];
    std::fs::File::from(read).read_exact(&mut pid).unwrap();
    let jail = i32::from_ne_bytes(pid);
    assert!(jail > 0 && lives(jail), "the control: it runs");
    soon("the grandchild", || !descendants(jail).is_empty());
    let all = descendants(jail);
    kill_process(Pid::from_raw(maker).unwrap(), Signal::KILL).unwrap();
    rustix::process::waitpid(Pid::from_raw(maker), rustix::process::WaitOptions::empty()).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while lives(jail) || all.iter().any(|pid| lives(*pid)) {
        if Instant::now() > end {
            // Nothing may be left, even when the case fails.
            kill_process(Pid::from_raw(jail).unwrap(), Signal::KILL).unwrap();
            panic!("the jail outlived its maker");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn all_end(world: &World) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (mut jailed, _said) = start(&world.jail(), &[write.as_fd()], || {
        for _ in 0..20 {
            if raw::fork().is_none() {
                // Ignores every signal but KILL, in a session of its own.
                let _ = rustix::process::setsid();
                std::thread::sleep(Duration::from_secs(600));
                raw::exit(0);
            }
        }
        rustix::io::write(&write, b"x").unwrap();
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    });
    rustix::io::read(&read, &mut [0_u8; 1]).unwrap();
    let pid = jailed.pid().as_raw_nonzero().get();
    let all = descendants(pid);
    assert_eq!(all.len(), 20);
    assert_eq!(jailed.try_wait().unwrap(), None);
    assert_eq!(jailed.cleanup().unwrap(), JailExit::Signal(9));
    assert!(!all.iter().any(|pid| lives(*pid)), "processes outlived their jail");
    jailed.kill().unwrap();
    assert_eq!(jailed.cleanup().unwrap(), JailExit::Signal(9), "a second time is no error");
}

fn exit_codes(world: &World) {
    for code in [0, 1, 42, 255] {
        let mut jailed = spawn(&world.jail(), &[], || code).unwrap();
        assert_eq!(jailed.wait().unwrap(), JailExit::Code(code));
        jailed.cleanup().unwrap();
    }
    let mut jailed = spawn(&world.jail(), &[], || panic!("inside")).unwrap();
    assert_eq!(jailed.wait().unwrap(), JailExit::Code(101));
    jailed.cleanup().unwrap();
}
