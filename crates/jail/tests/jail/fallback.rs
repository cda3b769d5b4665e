//! The jail of machines without user namespaces.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use podbay_jail::{Exit, Isolation, Jail, Mount, Network, spawn};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Case, World, attempt, start, unreadable};
use crate::processes::{descendants, lives, soon};
use crate::raw::{self, call, refused, text};

pub(crate) const CASES: &[Case] = &[
    ("fallback_opens_only_what_is_given", files),
    ("fallback_changes_nothing_outside", metadata),
    ("fallback_has_no_sockets", sockets),
    ("fallback_reaches_no_process_outside", processes),
    ("fallback_runs_programs", programs),
    ("fallback_ends_all_it_started", all_end),
    ("fallback_dies_with_its_maker", dies_with_maker),
    ("fallback_refuses_what_it_cannot_do", refusals),
];

/// A jail without namespaces; as root, which it is not for, the case has nothing to try.
fn jail(world: &World) -> Jail {
    let mut jail = world.jail();
    jail.isolation = Isolation::Landlock;
    jail.workspace = Some(world.directory("work"));
    if world.root {
        let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
        assert!(error.contains("ordinary user"), "{error}");
        std::process::exit(0);
    }
    jail
}

fn files(world: &World) {
    let mut jail = jail(world);
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    let given = world.directory("given");
    fs::write(given.join("file"), "given").unwrap();
    jail.mounts.push(Mount { host: given.clone(), inside: given.clone(), writable: false });
    let workspace = jail.workspace.clone().unwrap();
    attempt(&jail, || {
        assert_eq!(fs::read_to_string(given.join("file")).unwrap(), "given");
        fs::write(workspace.join("made"), "x").unwrap();
        assert_eq!(std::env::current_dir().unwrap(), workspace);
        unreadable(&secret)?;
        std::os::unix::fs::symlink(&secret, workspace.join("link")).unwrap();
        unreadable(workspace.join("link"))?;
        for place in ["/etc/shadow", "/etc/ssh", "/root", "/home", "/var/log", "/run", "/sys/kernel", "/tmp", "/"] {
            unreadable(place)?;
        }
        for path in
            [secret.clone(), given.join("file"), given.join("new"), "/tmp/podbay-new".into(), "/dev/shm/x".into()]
        {
            if OpenOptions::new().write(true).create(true).truncate(true).open(&path).is_ok() {
                return Err(format!("{} was written", path.display()));
            }
        }
        let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
        if call(libc::SYS_truncate, [text(&path), 0, 0, 0, 0, 0]).is_ok() || fs::remove_file(&secret).is_ok() {
            return Err("the secret was cut off or removed".into());
        }
        if fs::hard_link(&secret, workspace.join("hard")).is_ok()
            || fs::rename(&secret, workspace.join("moved")).is_ok()
        {
            return Err("the secret was linked or moved in".into());
        }
        Ok(())
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "host");
}

fn metadata(world: &World) {
    let jail = jail(world);
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::metadata(&secret).unwrap();
    attempt(&jail, || {
        let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
        let (at, path) = (libc::AT_FDCWD as u64, text(&path));
        refused("fchmodat", libc::SYS_fchmodat, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchmodat2", 452, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchownat", libc::SYS_fchownat, [at, path, 0, 0, 0, 0], libc::EPERM)?;
        refused("utimensat", libc::SYS_utimensat, [at, path, 0, 0, 0, 0], libc::EPERM)?;
        refused("setxattr", libc::SYS_setxattr, [path, text(c"user.x"), path, 1, 0, 0], libc::EPERM)?;
        refused("shmget", libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0], libc::EPERM)?;
        refused("setpriority", libc::SYS_setpriority, [2, 0, 19, 0, 0, 0], libc::EPERM)?;
        // A path only opened, not for reading: its mode can't be changed by the back door.
        let held = rustix::fs::open(&secret, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        if held.is_ok_and(|held| rustix::fs::fchmod(&held, rustix::fs::Mode::from_raw_mode(0o777)).is_ok()) {
            return Err("fchmod of a path worked".into());
        }
        Ok(())
    });
    let after = fs::metadata(&secret).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

fn sockets(world: &World) {
    let jail = jail(world);
    let address = SocketAddr::from_abstract_name(format!("podbay-test-{}", std::process::id())).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    attempt(&jail, || {
        if UnixStream::connect_addr(&address).is_ok() || UnixStream::connect("/run/docker.sock").is_ok() {
            return Err("a unix socket of the host was reached".into());
        }
        if TcpStream::connect("127.0.0.1:1").is_err_and(|e| e.raw_os_error() != Some(libc::EPERM)) {
            return Err("a TCP socket was made".into());
        }
        if UdpSocket::bind("0.0.0.0:0").is_ok() {
            return Err("a UDP socket was made".into());
        }
        UnixStream::pair().map(drop).map_err(|error| format!("the control: a pair can be made: {error}"))
    });
}

fn processes(world: &World) {
    let jail = jail(world);
    let outside = u64::from(std::process::id());
    attempt(&jail, || {
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

fn programs(world: &World) {
    let jail = jail(world);
    attempt(&jail, || {
        let script = "set -e; [ \"$HOME\" = \"$PWD\" ]; echo x > f; mkdir d; mv f d; cat d/f | grep -q x; ls /usr/bin > /dev/null";
        let output = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
        if !output.status.success() {
            return Err(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        if Path::new("/usr/bin/python3").exists() {
            let program = "import subprocess, threading, json, tempfile; tempfile.TemporaryFile(); subprocess.run(['true'], check=True)";
            let output = Command::new("/usr/bin/python3").args(["-c", program]).output().unwrap();
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        Ok(())
    });
}

/// Starts daemons: children of a child that is gone, each in a session of its own.
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

fn all_end(world: &World) {
    let jail = jail(world);
    // It ends by itself, then it is ended.
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
        assert_eq!(exit, if by_itself { Exit::Code(0) } else { Exit::Signal(9) });
        assert!(!all.iter().any(|pid| lives(*pid)), "processes outlived their jail");
        jailed.cleanup().unwrap();
    }
}

fn dies_with_maker(world: &World) {
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

fn refusals(world: &World) {
    let jail = jail(world);
    let refused = |change: &dyn Fn(&mut Jail), word: &str| {
        let mut jail = jail.clone();
        change(&mut jail);
        let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(&|jail| jail.workspace = None, "workspace");
    refused(&|jail| jail.network = Network::Host, "network");
    refused(&|jail| jail.mounts.push(Mount { host: "/usr".into(), inside: "/x".into(), writable: false }), "/usr too");
}
