//! Processes: which of them a command reaches, how many there can be, and that all of them end.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use podbay_jail::{CommandConfinement, Domain, JailExit, spawn};
use rustix::process::{Pid, Signal, kill_process};

use super::{attempt_as_command, jail};
use crate::harness::{Verdict, World, attempt, finish, start, unreadable};
use crate::processes::{descendants, lives, soon};
use crate::raw::{self, call, refused};

/// A command attacks podbayd, which runs as the same user, and its own shim.
pub(super) fn podbayd(world: &World) {
    let jail = jail(world);
    let confinement = CommandConfinement::of(&jail).unwrap();
    attempt(&jail, || {
        let podbayd = std::process::id();
        let tell = |what: Verdict| what.map_or_else(|_| 1, |()| 0);
        let status = raw::in_child(|| {
            tell((|| {
                Domain::default().enter().signals?;
                let shim = std::process::id();
                let of_command = raw::in_child(|| {
                    tell((|| {
                        let prepared = confinement.prepare().map_err(|error| error.to_string())?;
                        prepared.enter(None).map_err(|error| error.to_string())?;
                        for pid in [podbayd, shim] {
                            let attach = [u64::from(libc::PTRACE_ATTACH), u64::from(pid), 0, 0, 0, 0];
                            refused("ptrace", libc::SYS_ptrace, attach, libc::EPERM)?;
                            for name in ["mem", "environ", "maps", "fd/0"] {
                                unreadable(format!("/proc/{pid}/{name}"))?;
                            }
                        }
                        let kill = [u64::from(podbayd), 0, 0, 0, 0, 0];
                        refused("kill", libc::SYS_kill, kill, libc::EPERM)?;
                        call(libc::SYS_kill, [u64::from(shim), 0, 0, 0, 0, 0])
                            .map(drop)
                            .map_err(|errno| format!("the control: {errno}"))
                    })())
                });
                if of_command == 0 { Ok(()) } else { Err(format!("status {of_command}")) }
            })())
        });
        // A shim ends what it started.
        let mut child = Command::new("/bin/sleep").arg("600").spawn().map_err(|error| error.to_string())?;
        child.kill().and_then(|()| child.wait()).map_err(|error| format!("the control: {error}"))?;
        if status == 0 { Ok(()) } else { Err(format!("a command got at podbayd, or the control failed: {status}")) }
    });
}

pub(super) fn processes(world: &World) {
    let jail = jail(world);
    let outside = u64::from(std::process::id());
    attempt_as_command(&jail, || {
        for (what, pid) in [("maker", outside), ("guardian", u64::from(std::os::unix::process::parent_id()))] {
            for signal in [0, 9, 15] {
                refused(
                    &format!("kill {signal} of the {what}"),
                    libc::SYS_kill,
                    [pid, signal, 0, 0, 0, 0],
                    libc::EPERM,
                )?;
            }
            let attach = u64::from(libc::PTRACE_ATTACH);
            refused(&format!("ptrace of the {what}"), libc::SYS_ptrace, [attach, pid, 0, 0, 0, 0], libc::EPERM)?;
            for name in ["mem", "environ", "maps"] {
                if File::open(format!("/proc/{pid}/{name}"))
                    .is_ok_and(|mut file| file.read(&mut [0; 64]).is_ok_and(|n| n > 0))
                {
                    return Err(format!("/proc/{pid}/{name} of the {what} can be read"));
                }
            }
            unreadable(format!("/proc/{pid}/root/etc/passwd"))?;
            refused("prlimit", libc::SYS_prlimit64, [pid, 7, 0, 0, 0, 0], libc::EPERM)?;
        }
        Ok(())
    });
}

/// Starts daemons: children of a child that has ended, each in a session of its own.
fn daemons(count: usize) {
    for _ in 0..count {
        raw::in_child(|| {
            if raw::fork().is_none() {
                let _ = rustix::process::setsid();
                std::thread::sleep(Duration::from_secs(600));
                raw::exit(0);
            }
            0
        });
    }
}

pub(super) fn all_end(world: &World) {
    let jail = jail(world);
    // One jail ends by itself, one is killed.
    for by_itself in [true, false] {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (go, gone) = rustix::pipe::pipe().unwrap();
        let (mut jailed, _said) = start(&jail, &[write.as_fd(), go.as_fd()], || {
            daemons(10);
            rustix::io::write(&write, b"x").unwrap();
            rustix::io::read(&go, &mut [0_u8; 1]).unwrap();
            Ok(())
        });
        rustix::io::read(&read, &mut [0_u8; 1]).unwrap();
        let all = descendants(jailed.pid().as_raw_nonzero().get());
        assert_eq!(all.len(), 11, "ten daemons and the first process");
        let exit = if by_itself {
            rustix::io::write(&gone, b"x").unwrap();
            jailed.wait().unwrap()
        } else {
            jailed.kill().unwrap();
            jailed.wait().unwrap()
        };
        assert_eq!(exit, if by_itself { JailExit::Code(0) } else { JailExit::Signal(9) });
        assert!(!all.iter().any(|pid| lives(*pid)), "processes outlived their jail");
        jailed.cleanup().unwrap();
    }
}

/// The story: 69 processes at a limit of 64. The kernel counts all threads of a user together, so the jail's limit is its own
/// plus those that its user ran when it was made; as these end, the jail can have as many more. Never more than that.
pub(super) fn fork_bomb(world: &World) {
    const LIMIT: u64 = 40;
    const NEIGHBOURS: usize = 20;
    let mut jail = jail(world);
    jail.limits.processes = Some(LIMIT);
    let neighbours: Vec<i32> = (0..NEIGHBOURS)
        .map(|_| {
            raw::helper().unwrap_or_else(|| {
                std::thread::sleep(Duration::from_secs(600));
                raw::exit(0)
            })
        })
        .collect();
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (go, gone) = rustix::pipe::pipe().unwrap();
    let bomb = || {
        let mut children = 0_u64;
        while children < 2_000 {
            match raw::fork() {
                Some(-1) => break,
                Some(_) => children += 1,
                None => {
                    std::thread::sleep(Duration::from_secs(600));
                    raw::exit(0);
                }
            }
        }
        children
    };
    let (mut jailed, said) = start(&jail, &[write.as_fd(), go.as_fd()], || {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum.unwrap();
        // Root's sandbox has a user of its own, who runs nothing else.
        let others = if world.root { 0 } else { NEIGHBOURS as u64 };
        if limit < LIMIT + others || world.root && limit != LIMIT {
            return Err(format!("a limit of {limit}"));
        }
        let first = bomb();
        rustix::io::write(&write, b"x").unwrap();
        rustix::io::read(&go, &mut [0_u8; 1]).unwrap();
        let all = first + bomb();
        // Its own process counts too.
        if all + 1 > limit {
            return Err(format!("{all} children at a limit of {limit}"));
        }
        if world.root == (all > first) {
            return Err(format!("{first} children, and {all} when the neighbours were gone"));
        }
        Ok(())
    });
    // Where it fails before that, it says why in the end.
    drop(write);
    rustix::io::read(&read, &mut [0_u8; 1]).unwrap();
    for pid in neighbours {
        let pid = Pid::from_raw(pid).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    }
    rustix::io::write(&gone, b"x").unwrap();
    let exit = jailed.wait().unwrap();
    finish(exit, said);
    jailed.cleanup().unwrap();
}

pub(super) fn dies_with_maker(world: &World) {
    let jail = jail(world);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let maker = raw::helper().unwrap_or_else(|| {
        let jailed = spawn(&jail, &[], || {
            daemons(3);
            std::thread::sleep(Duration::from_secs(600));
            0
        });
        let pid = jailed.map_or(0, |jailed| jailed.pid().as_raw_nonzero().get());
        let _ = rustix::io::write(&write, &pid.to_ne_bytes());
        std::thread::sleep(Duration::from_secs(600));
        raw::exit(0)
    });
    let mut pid = [0_u8; 4];
    File::from(read).read_exact(&mut pid).unwrap();
    let guardian = i32::from_ne_bytes(pid);
    assert!(guardian > 0);
    soon("the daemons", || descendants(guardian).len() == 4);
    let all = descendants(guardian);
    kill_process(Pid::from_raw(maker).unwrap(), Signal::KILL).unwrap();
    rustix::process::waitpid(Pid::from_raw(maker), rustix::process::WaitOptions::empty()).unwrap();
    soon("the jail's death", || !lives(guardian) && !all.iter().any(|pid| lives(*pid)));
}
