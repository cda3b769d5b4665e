//! What sandboxes of both kinds of isolation prevent, and what works in them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command as Process;
use std::time::Duration;

use podbay_client::files::{Ls, Read, Scope, Write};
use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, ErrorCode, Sandbox};
use podbay_local::{Isolation, Options, parse_mount, probe};

use crate::harness::{Case, World, left_behind, make, named, run, until};

pub(crate) const CASES: &[Case] = &[
    ("/workspace and the artefact places mean the sandbox's own", places),
    ("commands reach nothing outside", outside),
    ("pip learns which distribution it is on", distribution),
    ("modes and times change inside and nowhere else", metadata),
    ("a command can end another's processes, but not podbayd", signals),
    ("commands can't forge what was recorded of them", records),
    ("input that nobody reads hurts nobody", unread_input),
    ("a killed zygote is replaced", zygote),
    ("nothing makes a set-id file", set_id),
    ("what a sandbox closed to itself is removed", closed_directories),
    ("a guardian that is killed leaves nothing", guardian),
    ("a workspace with the id in its name is the sandbox's", own_workspace),
    ("without namespaces the default refuses and names the other", no_namespaces),
];

/// Runs a Python program in a sandbox and returns its output.
async fn python(sandbox: &Sandbox, program: &str) -> String {
    let output = sandbox.run(Command::argv(["python3", "-c", program])).await.unwrap();
    assert!(output.success(), "{:?}: {}", output.exit(), output.text());
    output.text().into_owned()
}

/// pip, and so `python3 -m venv`, fails if this file exists and can't be read.
fn distribution(world: &World) {
    let Ok(known) = fs::read_to_string("/etc/debian_version") else { return };
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        assert_eq!(made.sandbox.run("cat /etc/debian_version").await.unwrap().text(), known);
        assert!(local.delete(&made.id).await.unwrap());
    });
}

fn places(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let sandbox = &made.sandbox;
        let written = sandbox.write(&Write::new("/workspace/a/b.txt"), "text\n").await.unwrap();
        let real = written.path.to_str().unwrap().to_owned();
        assert_eq!(real == "/workspace/a/b.txt", !world.is_landlock(), "{real}");
        assert_eq!(sandbox.run("cat a/b.txt").await.unwrap().text(), "text\n");
        assert_eq!(sandbox.run(format!("cat {real}").as_str()).await.unwrap().text(), "text\n");
        let (_, read) = sandbox.read(&Read::new(real.as_str())).await.unwrap();
        assert_eq!(read.as_ref(), b"text");
        let inside = Command { cwd: Some("/workspace/a".into()), ..Command::shell("cat b.txt") };
        assert_eq!(sandbox.run(inside).await.unwrap().text(), "text\n");

        let scope = Scope { root: Some("/workspace".into()), ..Scope::default() };
        let listed = sandbox.ls(&Ls { scope: scope.clone(), ..Ls::new("/workspace/a") }).await.unwrap();
        assert_eq!(listed.entries.len(), 1);
        let out = sandbox.ls(&Ls { scope: scope.clone(), ..Ls::new("/usr") }).await.unwrap_err();
        assert_eq!(out.code(), Some(ErrorCode::EscapesRoot));
        let scope = Scope { virtual_paths: true, ..scope };
        assert_eq!(sandbox.ls(&Ls { scope, ..Ls::new("/a") }).await.unwrap().entries.len(), 1);
        let scope = Scope { deny_prefixes: vec!["/workspace/a".into()], ..Scope::default() };
        let denied = sandbox.write(&Write { scope, ..Write::new("a/c") }, "x").await.unwrap_err();
        assert_eq!(denied.code(), Some(ErrorCode::PolicyDenied));

        for place in ["/large_tool_results", "/conversation_history", "/blobs"] {
            let written = sandbox.write(&Write::new(format!("{place}/x")), "artefact").await.unwrap();
            let real = written.path.to_str().unwrap();
            let line = format!("cat {real} && echo more > {real}.2");
            assert_eq!(sandbox.run(line.as_str()).await.unwrap().text(), "artefact", "{place}");
        }
        assert!(local.delete(&made.id).await.unwrap());
    });
}

fn outside(world: &World) {
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).unwrap();
    let (stream, datagram) = (world.scratch.join("stream"), world.scratch.join("datagram"));
    let (_listener, receiver) = (UnixListener::bind(&stream).unwrap(), UnixDatagram::bind(&datagram).unwrap());
    for socket in [&stream, &datagram] {
        fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
    }
    receiver.set_nonblocking(true).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let program = format!(
        r#"
import os, socket
loot = []
def attempt(what, action):
    try:
        action()
        loot.append(what)
    except (OSError, StopIteration):
        pass
attempt("read", lambda: open("{secret}").read())
attempt("write", lambda: open("{secret}", "a"))
attempt("remove", lambda: os.remove("{secret}"))
attempt("link in", lambda: os.link("{secret}", "linked"))
attempt("touch", lambda: os.utime("{secret}"))
attempt("chmod", lambda: os.chmod("{secret}", 0o600))
attempt("list", lambda: os.listdir("{scratch}"))
for place in ["/root", "/home", "/var/log", "/etc/shadow", "/etc/ssh"]:
    attempt(place, lambda: open(place) if os.path.isfile(place) else os.scandir(place).__next__())
attempt("kill", lambda: os.kill({pid}, 0))
attempt("environ", lambda: open("/proc/{pid}/environ").read())
attempt("mem", lambda: open("/proc/{pid}/mem", "rb").read(1))
attempt("root", lambda: os.listdir("/proc/{pid}/root/"))
attempt("oom", lambda: open("/proc/{pid}/oom_score_adj", "w").write("1000"))
def connect(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(1)
        s.connect(address)
attempt("stream", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "{stream}"))
attempt("datagram", lambda: connect(socket.AF_UNIX, socket.SOCK_DGRAM, "{datagram}"))
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})))
def pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", "{datagram}")
attempt("pair", pair)
print(loot)
"#,
        secret = secret.display(),
        scratch = world.scratch.display(),
        stream = stream.display(),
        datagram = datagram.display(),
        pid = std::process::id(),
        port = tcp.local_addr().unwrap().port(),
    );
    // The control: outside of a sandbox, the same program finds everything.
    let control = Process::new("python3").args(["-c", &program]).current_dir(world.directory("control")).output();
    let control = String::from_utf8_lossy(&control.unwrap().stdout).into_owned();
    for what in ["'read'", "'write'", "'kill'", "'stream'", "'datagram'", "'tcp'", "'pair'"] {
        assert!(control.contains(what), "the attempt at {what} is wrong: {control}");
    }
    while receiver.recv(&mut [0; 8]).is_ok() {}
    fs::write(&secret, "host").unwrap();
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        assert_eq!(python(&made.sandbox, &program).await, "[]\n");
        assert_ne!(made.sandbox.run("id -u").await.unwrap().text(), "0\n", "never root");
        assert!(
            made.sandbox.run("python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'").await.unwrap().success()
        );
        assert!(local.delete(&made.id).await.unwrap());
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "host");
    assert!(receiver.recv(&mut [0; 8]).is_err());
}

fn metadata(world: &World) {
    let (secret, given) = (world.scratch.join("secret"), world.directory("given"));
    let files = [secret.clone(), given.join("file")];
    for file in &files {
        fs::write(file, "host").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let state = || files.clone().map(|file| fs::metadata(file).map(|m| (m.mode(), m.mtime(), m.mtime_nsec())).unwrap());
    let before = state();
    let program = format!(
        r#"
import os, subprocess
open("f", "w").close()
os.mkdir("d")
os.symlink("f", "inside")
os.symlink("{secret}", "outside")
d = os.open(".", os.O_RDONLY)
f = os.open("f", os.O_RDWR)
def mode(): return oct(os.stat("f").st_mode & 0o7777)
seen = []
os.chmod("f", 0o700); seen.append(mode())
os.chmod(os.getcwd() + "/inside", 0o750); seen.append(mode())
os.chmod("f", 0o711, dir_fd=d); seen.append(mode())
os.fchmod(f, 0o640); seen.append(mode())
os.chmod("/proc/self/fd/%d" % f, 0o600); seen.append(mode())
os.utime("f", (1, 2)); seen.append(int(os.stat("f").st_mtime))
os.utime(f, (1, 3)); seen.append(int(os.stat("f").st_mtime))
os.utime("inside", (1, 4), follow_symlinks=False); seen.append(int(os.lstat("inside").st_mtime))
subprocess.run(["chmod", "0755", "d/../f"], check=True); seen.append(mode())
print(seen)
loot = []
def attempt(what, action):
    try:
        action()
        loot.append(what)
    except OSError:
        pass
for path in ["{secret}", "outside", "{given}/file", "{given}", "/usr/bin/env", "/nowhere", "", "/proc/self/fd/999"]:
    attempt("chmod " + path, lambda: os.chmod(path, 0o777))
    attempt("utime " + path, lambda: os.utime(path, (1, 2)))
    attempt("now " + path, lambda: os.utime(path))
def by_descriptor():
    os.fchmod(os.open("{given}/file", os.O_RDONLY), 0o777)
attempt("fchmod", by_descriptor)
attempt("set-id", lambda: os.chmod("f", 0o4755))
attempt("set-id by descriptor", lambda: os.fchmod(f, 0o2755))
print(loot)
"#,
        secret = secret.display(),
        given = given.display()
    );
    let mounts = vec![parse_mount(given.to_str().unwrap()).unwrap()];
    let local = world.local_with(Options { mounts, ..Options::default() });
    run(async {
        let made = make(&local, &Wanted::default()).await;
        let expected = "['0o700', '0o750', '0o711', '0o640', '0o600', 2, 3, 4, '0o755']\n[]\n";
        assert_eq!(python(&made.sandbox, &program).await, expected);
        // Many at once don't block each other.
        let many = "for i in $(seq 300); do touch x$i; done; for i in $(seq 300); do chmod 700 x$i & done; wait; \
                    find . -name 'x*' -perm 700 | wc -l";
        assert_eq!(made.sandbox.run(many).await.unwrap().text(), "300\n");
        assert!(local.delete(&made.id).await.unwrap());
    });
    assert_eq!(state(), before);
}

fn signals(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let server = made.sandbox.start("echo $$ > pid; exec sleep 1000").await.unwrap();
        let line = "while ! [ -s pid ]; do sleep 0.01; done; kill $(cat pid)";
        let output = made.sandbox.run(line).await.unwrap();
        assert!(output.success(), "{}", output.text());
        let ended = made.sandbox.attach(&server.id, 0).await.unwrap().wait().await.unwrap();
        assert!(!matches!(ended.state, podbay_client::State::Lost | podbay_client::State::Running), "{ended:?}");

        // Whatever it can signal, it isn't podbayd: the next command runs.
        made.sandbox.run(Command { timeout_ms: 5_000, ..Command::shell("kill -KILL -1") }).await.ok();
        let instance = made.sandbox.hello().await.unwrap().instance;
        assert_eq!(made.sandbox.run("echo well").await.unwrap().text(), "well\n");
        assert_eq!(made.sandbox.hello().await.unwrap().instance, instance);
        assert!(local.delete(&made.id).await.unwrap());
    });
}

fn records(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let first = made.sandbox.run("echo printed").await.unwrap();
        let log = first.info.log.to_str().unwrap();
        assert_eq!(made.sandbox.run(format!("cat {log}").as_str()).await.unwrap().text(), "printed\n");
        if world.is_landlock() {
            let forge = format!("echo forged > {log} || rm -r $(dirname {log}) || touch $(dirname {log})/../../x");
            assert!(!made.sandbox.run(forge.as_str()).await.unwrap().success());
            assert_eq!(made.sandbox.run(format!("cat {log}").as_str()).await.unwrap().text(), "printed\n");
        }
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// In local sandboxes, shims died of a broken pipe, and the outcome of their commands was lost.
fn unread_input(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let command = Command { stdin: true, ..Command::shell("exec 0<&-; sleep 0.3; exit 7") };
        let mut exec = made.sandbox.spawn(command).await.unwrap();
        let mut control = exec.control();
        for _ in 0..8 {
            if !control.write(vec![b'x'; 256 << 10]).await.unwrap() {
                break;
            }
        }
        let info = exec.wait().await.unwrap();
        let podbay_client::State::Exited(exit) = &info.state else { panic!("{info:?}") };
        assert_eq!(exit.code, 7);

        // A reader that disconnects halfway.
        let info = made.sandbox.start("for i in $(seq 200); do seq 1000; sleep 0.005; done; exit 3").await.unwrap();
        for _ in 0..5 {
            let mut reader = made.sandbox.attach(&info.id, 0).await.unwrap();
            reader.next().await.unwrap();
        }
        let ended = made.sandbox.attach(&info.id, 0).await.unwrap().wait().await.unwrap();
        assert!(matches!(&ended.state, podbay_client::State::Exited(exit) if exit.code == 3), "{ended:?}");
        assert!(local.delete(&made.id).await.unwrap());
    });
}

fn zygote(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        // A command's parent is its shim, whose parent is the zygote.
        let line = "kill -KILL $(sed 's/.*) //' /proc/$PPID/stat | cut -d ' ' -f 2)";
        let output = made.sandbox.run(line).await.unwrap();
        assert!(output.success(), "{}", output.text());
        // A request may get lost while it is dying.
        until("commands run again", Duration::from_secs(5), async || {
            made.sandbox.run("echo again").await.unwrap().text() == "again\n"
        })
        .await;
        for _ in 0..3 {
            assert_eq!(made.sandbox.run("echo again").await.unwrap().text(), "again\n");
        }
        if world.is_landlock() {
            let socket = "import socket; socket.socket(socket.AF_UNIX)";
            let output = made.sandbox.run(Command::argv(["python3", "-c", socket])).await.unwrap();
            assert!(!output.success(), "commands of the second zygote are confined too");
        }
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// Root's workspace got a set-gid program with the sandbox's content: by `open`, by an ACL, by `openat2`.
fn set_id(world: &World) {
    let shared = world.directory("shared");
    let program = r#"
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, number, action):
    try:
        action()
        print(what, "worked")
    except OSError as error:
        if error.errno != number:
            print(what, error)
def openat2(how):
    if libc.syscall(437, -100, b"new", how, len(how)) < 0:
        raise OSError(ctypes.get_errno(), "openat2")
acl = struct.pack("<I" + "HHI" * 3, 2, 1, 7, 2**32 - 1, 4, 5, 2**32 - 1, 32, 5, 2**32 - 1)
open("own", "w").write("x")
for mode in 0o4755, 0o2644:
    refused("open", errno.EPERM, lambda: os.open("new", os.O_CREAT | os.O_WRONLY, mode))
    refused("O_TMPFILE", errno.EPERM, lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, mode))
    refused("mknod", errno.EPERM, lambda: os.mknod("new", mode))
    refused("chmod", errno.EPERM, lambda: os.chmod("own", mode))
    refused("openat2", errno.ENOSYS, lambda: openat2(struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, mode, 0)))
for file in "own", os.open("own", os.O_RDWR):
    refused("ACL", errno.ENOTSUP, lambda: os.setxattr(file, "system.posix_acl_access", acl))
"#;
    let local = world.local_with(Options { workspace: Some(shared.clone()), ..Options::default() });
    run(async {
        let made = make(&local, &Wanted::default()).await;
        assert_eq!(python(&made.sandbox, program).await, "");
        let line = "mkdir d && chmod 750 d && cp -a own copy && install -m 755 own installed && tar cf - own | tar xf - -C d && cat d/own";
        let output = made.sandbox.run(line).await.unwrap();
        assert_eq!((output.code(), output.text().as_ref()), (Some(0), "x"));
        // podbayd doesn't make one either, and a file that it replaces loses its set-id bits, as on a write.
        let owned = Write { mode: Some(0o4755), ..Write::new("made") };
        assert!(made.sandbox.write(&owned, "x").await.is_err());
        fs::set_permissions(shared.join("own"), fs::Permissions::from_mode(0o6755)).unwrap();
        made.sandbox.write(&Write::new("own"), "y").await.unwrap();
        // The same for commands of a second zygote.
        made.sandbox.run("kill -KILL $(sed 's/.*) //' /proc/$PPID/stat | cut -d ' ' -f 2)").await.unwrap();
        until("commands run again", Duration::from_secs(5), async || {
            made.sandbox.run("echo again").await.unwrap().text() == "again\n"
        })
        .await;
        assert_eq!(python(&made.sandbox, program).await, "");
        assert!(local.delete(&made.id).await.unwrap());
    });
    for entry in fs::read_dir(&shared).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode();
        assert_eq!(mode & 0o6000, 0, "{} has {mode:o}", entry.path().display());
    }
}

fn closed_directories(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let line =
            "mkdir -p a/b && touch a/b/c && cd a && mkdir -m 0 closed && mkdir -m 0500 d && umask 777 && mkdir e";
        let output = made.sandbox.run(line).await.unwrap();
        assert!(output.success(), "{}", output.text());
        assert!(local.delete(&made.id).await.unwrap());
        assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
    });
}

fn guardian(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &named(&world.id("guarded"))).await;
        made.sandbox.start("setsid sleep 1000 & sleep 1000").await.unwrap();
        made.sandbox.run("setsid sleep 1000 >/dev/null 2>&1 & echo").await.unwrap();
        let first = local.describe(&made.id).await.unwrap().first.unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(first as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        let patience = Duration::from_secs(10);
        until("nothing is left", patience, async || left_behind(&world.scratch).is_empty()).await;
    });
}

fn own_workspace(world: &World) {
    let workspaces = world.directory("w");
    let options = Options { workspace: Some(workspaces.join("{id}")), ..Options::default() };
    let local = world.local_with(options);
    run(async {
        for expected in ["", "kept\n"] {
            let made = make(&local, &named(&world.id("own"))).await;
            let output = made.sandbox.run("cat file 2>/dev/null; echo kept > file").await.unwrap();
            assert_eq!((output.code(), output.text().as_ref()), (Some(0), expected));
            assert!(local.delete(&made.id).await.unwrap());
        }
    });
}

fn no_namespaces(world: &World) {
    forbid_user_namespaces();
    assert_eq!(probe().isolation, Some(Isolation::Landlock));
    run(async {
        let default = Options { isolation: Isolation::Namespaces, ..Options::default() };
        let local = world.local().with(default);
        let error = local.get_or_create(&Wanted::default()).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("isolation to \"landlock\""), "{error}");
        let local = world.local().with(Options { isolation: Isolation::Landlock, ..Options::default() });
        let made = make(&local, &Wanted::default()).await;
        assert_eq!(made.sandbox.run("echo confined").await.unwrap().text(), "confined\n");
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// From here on, this process and its children can't make user namespaces, as on some machines.
fn forbid_user_namespaces() {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    const CLONE_NEWUSER: u64 = 0x1000_0000;
    #[cfg(target_arch = "x86_64")]
    const CALLS: [i64; 2] = [56, 272]; // clone, unshare
    #[cfg(target_arch = "aarch64")]
    const CALLS: [i64; 2] = [220, 97];
    let masked = SeccompCmpOp::MaskedEq(CLONE_NEWUSER);
    let rules = CALLS.map(|call| {
        let user = SeccompCondition::new(0, SeccompCmpArgLen::Dword, masked.clone(), CLONE_NEWUSER).unwrap();
        (call, vec![SeccompRule::new(vec![user]).unwrap()])
    });
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter =
        SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, SeccompAction::Errno(1), architecture);
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
