//! The jail of machines without user namespaces.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use podbay_jail::{CommandConfinement, Domain, Isolation, Jail, JailExit, Mount, Network, own_id, spawn};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Case, Verdict, World, attempt, finish, skip, start, unreadable};
use crate::processes::{descendants, lives, soon};
use crate::raw::{self, call, refused, text};

pub(crate) const CASES: &[Case] = &[
    ("fallback_opens_only_what_is_given", files),
    ("fallback_changes_nothing_outside", metadata),
    ("fallback_has_no_sockets", sockets),
    ("fallback_has_the_network_that_is_asked_for", network),
    ("fallback_reaches_no_process_outside", processes),
    ("fallback_commands_dont_reach_podbayd", podbayd),
    ("fallback_closes_the_kernels_doors", kernel),
    ("fallback_runs_programs", programs),
    ("fallback_ends_all_it_started", all_end),
    ("fallback_has_the_limit_and_what_its_user_ran_before", fork_bomb),
    ("fallback_dies_with_its_maker", dies_with_maker),
    ("fallback_refuses_what_it_cannot_do", refusals),
    ("fallback_gives_away_nothing_but_its_own", giving_away),
    ("fallback_is_named_where_there_are_no_namespaces", no_namespaces),
];

/// A jail without namespaces. Root's runs as the owner of its workspace.
pub(crate) fn jail(world: &World) -> Jail {
    let mut jail = world.jail();
    jail.isolation = Isolation::Landlock;
    let workspace = world.directory("work");
    if world.root {
        let own = own_id(&jail.id).unwrap();
        chown(&workspace, Some(own), Some(own)).unwrap();
    }
    jail.workspace = Some(workspace);
    jail
}

/// Runs an attack as a command, in podbayd's confinement and its own.
pub(crate) fn attempt_as_command(jail: &Jail, inside: impl FnOnce() -> Verdict) {
    let cell = CommandConfinement::of(jail).unwrap();
    attempt(jail, || {
        step_in(&cell)?;
        inside()
    });
}

fn step_in(cell: &CommandConfinement) -> Verdict {
    Domain::default().enter().signals?;
    let bars = cell.prepare().map_err(|error| error.to_string())?;
    bars.enter(None).map_err(|error| error.to_string())
}

fn files(world: &World) {
    let mut jail = jail(world);
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    let given = world.directory("given");
    fs::write(given.join("file"), "given").unwrap();
    jail.mounts.push(Mount { host: given.clone(), inside: given.clone(), writable: false });
    let workspace = jail.workspace.clone().unwrap();
    attempt_as_command(&jail, || {
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
    let workspace = jail.workspace.clone().unwrap();
    attempt_as_command(&jail, || {
        let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
        let (at, path) = (libc::AT_FDCWD as u64, text(&path));
        refused("fchmodat", libc::SYS_fchmodat, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchmodat2", 452, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchownat", libc::SYS_fchownat, [at, path, 0, 0, 0, 0], libc::EPERM)?;
        // The filter and the kernel refuse with different error numbers.
        let errno = if world.root { libc::EACCES } else { libc::EPERM };
        refused("utimensat", libc::SYS_utimensat, [at, path, 0, 0, 0, 0], errno)?;
        refused("setxattr", libc::SYS_setxattr, [path, text(c"user.x"), path, 1, 0, 0], libc::EOPNOTSUPP)?;
        let own = File::create(workspace.join("own")).unwrap();
        own.set_permissions(fs::Permissions::from_mode(0o755)).map_err(|e| format!("the control: fchmod: {e}"))?;
        let by_path = fs::set_permissions(workspace.join("own"), fs::Permissions::from_mode(0o700));
        if by_path.is_ok() != world.root {
            return Err(format!("chmod of one's own file: {by_path:?}"));
        }
        let set_id = fs::set_permissions(workspace.join("own"), fs::Permissions::from_mode(0o4755));
        if set_id.is_ok() || own.set_permissions(fs::Permissions::from_mode(0o4755)).is_ok() {
            return Err("a set-id bit was set".into());
        }
        refused("shmget", libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0], libc::EPERM)?;
        refused("setpriority", libc::SYS_setpriority, [2, 0, 19, 0, 0, 0], libc::EPERM)?;
        // A descriptor of a path can't be used to change the mode either.
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
    // A socket with a path, like those of the host's log and bus. Landlock doesn't restrict connecting to them.
    let path = world.scratch.join("datagrams");
    let log = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    log.set_nonblocking(true).unwrap();
    attempt_as_command(&jail, || {
        if UnixDatagram::pair().is_ok_and(|(one, _)| one.send_to(b"x", &path).is_ok()) {
            return Err("one end of a pair reached a socket of the host".into());
        }
        for family in 0..46_u64 {
            for kind in 1..=10 {
                refused(&format!("socket {family} {kind}"), libc::SYS_socket, [family, kind, 0, 0, 0, 0], libc::EPERM)?;
            }
        }
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
    assert!(log.recv(&mut [0; 8]).is_err(), "something came");
    // podbayd itself has UNIX stream sockets only.
    attempt(&jail, || {
        UnixListener::bind(jail.workspace.as_ref().unwrap().join("own")).map_err(|error| error.to_string())?;
        if UnixDatagram::unbound().is_ok() || UdpSocket::bind("0.0.0.0:0").is_ok() {
            return Err("podbayd can make other sockets".into());
        }
        if UnixStream::connect_addr(&address).is_ok() {
            return Err("podbayd reached an abstract socket of the host".into());
        }
        Ok(())
    });
}

fn network(world: &World) {
    let mut jail = jail(world);
    jail.network = Network::Host;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let path = world.scratch.join("socket");
    let _other = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    attempt_as_command(&jail, || {
        TcpStream::connect(address).map_err(|error| format!("the control: {error}"))?;
        UdpSocket::bind("127.0.0.1:0").map_err(|error| format!("the control: {error}"))?;
        match UnixStream::connect(&path) {
            Ok(_) => Err("a unix socket of the host was reached".into()),
            Err(_) => Ok(()),
        }
    });
}

/// A command attacks podbayd, which runs as the same user, and its own shim.
fn podbayd(world: &World) {
    let jail = jail(world);
    let cell = CommandConfinement::of(&jail).unwrap();
    attempt(&jail, || {
        let podbayd = std::process::id();
        let tell = |what: Verdict| what.map_or_else(|_| 1, |()| 0);
        let status = raw::in_child(|| {
            tell((|| {
                Domain::default().enter().signals?;
                let shim = std::process::id();
                let of_command = raw::in_child(|| {
                    tell((|| {
                        let bars = cell.prepare().map_err(|error| error.to_string())?;
                        bars.enter(None).map_err(|error| error.to_string())?;
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

/// Attacks on the kernel, run as a command.
fn kernel(world: &World) {
    let jail = jail(world);
    attempt_as_command(&jail, || {
        let zero = [0_u64; 6];
        for (what, number) in [
            ("mount", libc::SYS_mount),
            ("unshare", libc::SYS_unshare),
            ("setns", libc::SYS_setns),
            ("chroot", libc::SYS_chroot),
            ("pivot_root", libc::SYS_pivot_root),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("keyctl", libc::SYS_keyctl),
            ("add_key", libc::SYS_add_key),
            ("bpf", libc::SYS_bpf),
            ("perf_event_open", libc::SYS_perf_event_open),
            ("userfaultfd", libc::SYS_userfaultfd),
            ("process_vm_readv", libc::SYS_process_vm_readv),
            ("pidfd_getfd", libc::SYS_pidfd_getfd),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ] {
            refused(what, number, zero, libc::EPERM)?;
        }
        let user = [(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0];
        refused("clone with a namespace", libc::SYS_clone, user, libc::EPERM)?;
        refused("clone3", libc::SYS_clone3, zero, libc::ENOSYS)?;
        // Set-id programs gain nothing.
        let output = Command::new("/bin/sh").args(["-c", "su -c id root </dev/null 2>&1; id -u"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.lines().last() {
            Some("0") | None => Err(said),
            Some(_) => Ok(()),
        }
    });
}

fn processes(world: &World) {
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

fn programs(world: &World) {
    let jail = jail(world);
    attempt_as_command(&jail, || {
        let script = "set -e; [ \"$HOME\" = \"$PWD\" ]; echo x > f; mkdir d; mv f d; cat d/f | grep -q x; ls /usr/bin \
                      > /dev/null";
        let output = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
        if !output.status.success() {
            return Err(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        if Path::new("/usr/bin/python3").exists() {
            let program = "import subprocess, threading, json, tempfile; tempfile.TemporaryFile(); \
                           subprocess.run(['true'], check=True)";
            let output = Command::new("/usr/bin/python3").args(["-c", program]).output().unwrap();
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
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

fn all_end(world: &World) {
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
fn fork_bomb(world: &World) {
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
    if world.root {
        refused(&|jail| jail.workspace = Some(world.scratch.clone()), "belongs to root");
    }
    refused(
        &|jail| jail.mounts.push(Mount { host: "/usr".into(), inside: "/x".into(), writable: false }),
        "must be /usr",
    );
}

/// Root changed a directory's owner, then created others in it and changed their owner by path: meanwhile, the first one's owner
/// could put a link to root's file there.
fn giving_away(world: &World) {
    const OWNER: u32 = 54_321;
    if !world.root {
        skip("only root gives anything away");
    }
    let precious = world.scratch.join("precious");
    fs::write(&precious, "root's").unwrap();
    let workspace = world.directory("work");
    chown(&workspace, Some(OWNER), Some(OWNER)).unwrap();
    let attacker = raw::helper().unwrap_or_else(|| {
        let them = (rustix::process::Gid::from_raw(OWNER), rustix::process::Uid::from_raw(OWNER));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(them.0, them.0, them.0).unwrap();
        rustix::thread::set_thread_res_uid(them.1, them.1, them.1).unwrap();
        loop {
            for name in ["exec", "artefacts"] {
                let place = world.scratch.join("box/area/state").join(name);
                if fs::remove_dir(&place).is_ok() {
                    let _ = std::os::unix::fs::symlink(&precious, &place);
                }
            }
        }
    });
    for _ in 0..300 {
        let dir = world.directory("box");
        let mut jail = jail_at(world, &workspace);
        podbay_jail::make_host_dirs(&dir, &mut jail).unwrap();
        let owner = fs::symlink_metadata(jail.state.unwrap()).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), OWNER, "the control: it is given away");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&precious).unwrap()), 0);
        fs::rename(&dir, world.scratch.join("gone")).unwrap();
        fs::remove_dir_all(world.scratch.join("gone")).unwrap();
    }
    kill_process(Pid::from_raw(attacker).unwrap(), Signal::KILL).unwrap();
}

fn jail_at(world: &World, workspace: &Path) -> Jail {
    Jail { isolation: Isolation::Landlock, workspace: Some(workspace.to_owned()), ..world.jail() }
}

/// Imitates a machine on which nobody can make user namespaces.
fn no_namespaces(world: &World) {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    let bit = libc::CLONE_NEWUSER as u64;
    let user = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit).unwrap();
    let rules = [libc::SYS_clone, libc::SYS_unshare].map(|call| {
        let rule = SeccompRule::new(vec![user.clone()]).unwrap();
        (call, vec![rule])
    });
    let errno = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, errno, architecture).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();

    let report = podbay_jail::probe();
    assert_eq!(report.isolation, Some(Isolation::Landlock), "{report:#?}");
    let named = |text: &str| text.contains("isolation to \"landlock\"");
    let lacking = report.findings.iter().find(|finding| !finding.available).unwrap();
    assert!(lacking.fix.as_deref().is_some_and(named), "{lacking:?}");
    let error = spawn(&world.jail(), &[], || 0).unwrap_err().to_string();
    assert!(error.contains("namespaces") && named(&error), "{error}");
    attempt_as_command(&jail(world), || Ok(()));
}
