//! What keeps commands away from podbayd, which runs as the same user: with both kinds of isolation, and on older kernels.

use std::time::Duration;

use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, ProtectionKind, Sandbox};
use podbay_local::Local;

use crate::harness::{Case, World, make, run, until};

pub(crate) const CASES: &[Case] = &[
    ("podbayd can't be signalled, traced or inspected", podbayd),
    ("commands signal and trace each other", each_other),
    ("podbayd's directory can't be changed", directory),
    ("the zygote's successor is out of reach", successor),
    ("kill 1 doesn't end a sandbox", first_process),
    ("files of the whole machine are masked", machine),
    ("a sandbox tells what is open", told),
    ("older kernels: what Landlock lacks is told, and work goes on", older_kernels),
];

/// Runs a case in a sandbox of its own.
fn within(world: &World, attack: impl AsyncFnOnce(&Local, &Sandbox)) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        attack(&local, &made.sandbox).await;
        assert!(local.delete(&made.id).await.unwrap());
    });
}

async fn python(sandbox: &Sandbox, program: &str) -> String {
    let output = sandbox.run(Command::argv(["python3", "-c", program])).await.unwrap();
    assert!(output.success(), "{:?}: {}", output.exit(), output.text());
    output.text().into_owned()
}

/// Follows parent links from a command to podbayd: the shim, the zygote, podbayd.
const FAMILY: &str = "
import os, signal, ctypes
def parent(pid):
    return int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
shim = os.getppid(); zygote = parent(shim); podbayd = parent(zygote)
libc = ctypes.CDLL(None, use_errno=True)
def attach(pid):
    if libc.ptrace(16, pid, None, None) != 0:
        return ctypes.get_errno()
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, None, None)
    return 0
def opens(path, flags=os.O_RDONLY):
    try:
        os.close(os.open(path, flags))
        return True
    except OSError:
        return False
";

/// A command could stop, kill or trace every process of its user, including podbayd.
fn podbayd(world: &World) {
    within(world, async |_, sandbox| {
        let program = format!(
            "{FAMILY}
for number in (0, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, signal.SIGCONT):
    try:
        os.kill(podbayd, number)
        print('signalled with', number)
    except PermissionError:
        pass
print(attach(podbayd) != 0, [name for name in ('mem', 'environ', 'maps', 'exe', 'fd/0', 'root', 'cwd')
                             if opens(f'/proc/{{podbayd}}/{{name}}')])
try:
    os.chmod(f'/proc/{{podbayd}}/exe', 0)
    print('chmod')
except OSError:
    pass
"
        );
        assert_eq!(python(sandbox, &program).await, "True []\n");
        assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n");
    });
}

/// An agent inspects and ends the server that it started with an earlier command.
fn each_other(world: &World) {
    // There, each command has a domain of its own, and can't inspect others.
    let traces = !world.is_landlock() && yama() == 0;
    within(world, async |_, sandbox| {
        let server = sandbox.start("echo $$ > pid; exec sleep 1000").await.unwrap();
        let line = "while ! [ -s pid ]; do sleep 0.01; done; cat pid";
        let pid = sandbox.run(line).await.unwrap().text().trim().to_owned();
        if traces {
            let looks =
                format!("{FAMILY}print(attach({pid}), os.readlink('/proc/{pid}/fd/0'), opens('/proc/{pid}/maps'))");
            assert_eq!(python(sandbox, &looks).await, "0 /dev/null True\n");
        }
        let output = sandbox.run(format!("kill {pid}").as_str()).await.unwrap();
        assert!(output.success(), "{}", output.text());
        let ended = sandbox.attach(&server.id, 0).await.unwrap().wait().await.unwrap();
        assert!(matches!(ended.state, podbay_client::State::Exited(_)), "{ended:?}");
    });
}

/// This machine's `ptrace_scope`: above 0, only parents may trace.
fn yama() -> u32 {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    scope.trim().parse().unwrap_or(0)
}

/// A FIFO or a link to /dev/zero in podbayd's directory hung or ended podbayd, and commands could change each other's logs.
fn directory(world: &World) {
    within(world, async |_, sandbox| {
        let state = sandbox.hello().await.unwrap().state.to_str().unwrap().to_owned();
        let log = sandbox.run("echo first").await.unwrap().info.log.to_str().unwrap().to_owned();
        let attacks = format!(
            "{FAMILY}
state, log = {state:?}, {log:?}
def tries(name, act):
    try:
        act()
        print(name)
    except OSError:
        pass
tries('mkdir', lambda: os.mkdir(state + '/new'))
tries('mkfifo', lambda: os.mkfifo(state + '/exec/z'))
tries('mkdir', lambda: os.mkdir(state + '/exec/y'))
tries('symlink', lambda: os.symlink('/dev/zero', state + '/exec/x'))
tries('write', lambda: open(log, 'w'))
tries('append', lambda: open(log, 'a'))
tries('truncate', lambda: os.truncate(log, 0))
tries('unlink', lambda: os.unlink(log))
tries('rename', lambda: os.rename(log, log + '2'))
tries('rename away', lambda: os.rename(log, '/tmp/log'))
tries('link', lambda: os.link(log, os.getcwd() + '/link'))
tries('rename all', lambda: os.rename(state + '/exec', state + '/other'))
try: names = os.listdir(state)
except OSError: names = []
for name in names:
    if os.path.isfile(state + '/' + name):
        tries('write ' + name, lambda: open(state + '/' + name, 'a'))
        tries('unlink ' + name, lambda: os.unlink(state + '/' + name))
"
        );
        assert_eq!(python(sandbox, &attacks).await, "");
        assert_eq!(sandbox.run(format!("cat {log}").as_str()).await.unwrap().text(), "first\n");
        // Commands can still write where they may: in directories, between them, and in new ones.
        let work = "mkdir a b && echo x > a/f && mv a/f b/g && ln b/g a/h && mv b c && cat c/g && \
                    d=$(mktemp -d) && mv c/g $d/ && cat $d/g && echo y > /dev/null";
        let output = sandbox.run(work).await.unwrap();
        assert_eq!((output.code(), output.text().as_ref()), (Some(0), "x\nx\n"));
    });
}

/// The successor of a killed zygote was traceable for a moment, and its file on the host could be changed through /proc/PID/exe
/// (as in CVE-2019-5736).
fn successor(world: &World) {
    within(world, async |_, sandbox| {
        // Starts before the kill, and looks for a process that it can trace.
        let attack = format!(
            "{FAMILY}
import time
loot, known, end = set(), set(os.listdir('/proc')), time.time() + 2
os.kill(zygote, signal.SIGKILL)
while time.time() < end:
    for pid in set(os.listdir('/proc')) - known:
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            if 'podbayd' in open(f'/proc/{{pid}}/comm').read() and os.readlink(f'/proc/{{pid}}/exe'):
                loot.add('exe')
                if attach(int(pid)) == 0:
                    loot.add('traced')
        except OSError:
            pass
print(sorted(loot))
"
        );
        let attacker = sandbox.start(Command::argv(["python3", "-c", attack.as_str()])).await.unwrap();
        until("commands run again", Duration::from_secs(10), async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            sandbox.run("echo again").await.is_ok_and(|output| output.text() == "again\n")
        })
        .await;
        let ended = sandbox.attach(&attacker.id, 0).await.unwrap().wait().await.unwrap();
        let log = sandbox.run(format!("cat {}", ended.log.to_str().unwrap()).as_str()).await.unwrap();
        assert_eq!(log.text(), "[]\n", "{ended:?}");
        // podbayd is protected from its commands as well.
        let program = format!("{FAMILY}\ntry: os.kill(podbayd, 0)\nexcept PermissionError: print('denied')");
        assert_eq!(python(sandbox, &program).await, "denied\n");
        let protection = sandbox.protection().await.unwrap();
        assert_eq!(protection.missing().collect::<Vec<_>>(), Vec::<&podbay_client::Protection>::new());
    });
}

/// `kill 1` ended the sandbox.
fn first_process(world: &World) {
    if world.is_landlock() {
        return;
    }
    within(world, async |_, sandbox| {
        let instance = sandbox.hello().await.unwrap().instance;
        sandbox.run("for s in TERM INT HUP USR1 STOP KILL; do kill -$s 1; done; sleep 0.2").await.unwrap();
        assert_eq!(sandbox.hello().await.unwrap().instance, instance);
    });
}

/// A sandbox could open the machine's pressure files for writing, and read how its kernel was configured and started.
fn machine(world: &World) {
    within(world, async |_, sandbox| {
        let pressure =
            "print([name for name in ('cpu', 'io', 'memory') if opens('/proc/pressure/' + name, os.O_RDWR)])";
        assert_eq!(python(sandbox, &format!("{FAMILY}\n{pressure}\n")).await, "[]\n");
        // Without namespaces, /proc is the host's, and readable.
        if world.is_landlock() {
            return;
        }
        let program = "print([open('/proc/' + name, 'rb').read() for name in ('cmdline', 'config.gz') \
                       if os.path.exists('/proc/' + name)])";
        let said = python(sandbox, &format!("{FAMILY}\n{program}\n")).await;
        assert!(said == "[b'']\n" || said == "[b'', b'']\n", "{said}");
    });
}

fn told(world: &World) {
    within(world, async |_, sandbox| {
        let protection = sandbox.protection().await.unwrap();
        assert!(protection.landlock_abi >= 6, "{protection:?}");
        assert!(protection.protections.len() >= 6 && protection.missing().count() == 0, "{protection:#?}");
    });
}

/// Landlock can't be used before ABI 2, and doesn't stop signals before ABI 6. Either way a sandbox works, and reports that.
fn older_kernels(world: &World) {
    let Ok(abi) = std::env::var("PODBAY_LANDLOCK_ABI") else {
        for abi in ["0", "1", "2", "5"] {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .arg("--case")
                .arg("older kernels: what Landlock lacks is told, and work goes on")
                .arg(&world.scratch)
                .env("PODBAY_LANDLOCK_ABI", abi)
                .status();
            assert!(status.unwrap().success(), "ABI {abi}");
        }
        return;
    };
    // Without namespaces, ABI 6 is required.
    if world.is_landlock() {
        run(async {
            let error = world.local().get_or_create(&Wanted::default()).await.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(&format!("ABI {abi}")) || abi == "0", "{error}");
        });
        return;
    }
    within(world, async |_, sandbox| {
        let work = "mkdir a b && echo x > a/f && mv a/f b/g && ln b/g a/h && cat b/g";
        let output = sandbox.run(work).await.unwrap();
        assert_eq!((output.code(), output.text().as_ref()), (Some(0), "x\n"), "ABI {abi}");
        let protection = sandbox.protection().await.unwrap();
        assert_eq!(protection.landlock_abi.to_string(), abi);
        let open: Vec<_> = protection.missing().map(|protection| protection.what).collect();
        let forge = "touch $(dirname $(ls /run/podbay/*/ -d | head -1))/forged";
        let forged = sandbox.run(forge).await.unwrap().success();
        if abi.parse::<u32>().unwrap() < 2 {
            assert_eq!(open, [ProtectionKind::Directory]);
            assert!(forged, "what is told to be open is");
        } else {
            assert_eq!(open, []);
            assert!(!forged, "what is told to be closed is");
        }
        // podbayd is PID 1, which the kernel protects from signals even without Landlock.
        let instance = sandbox.hello().await.unwrap().instance;
        sandbox.run("kill -TERM 1; kill -STOP 1; kill -KILL 1; sleep 0.1").await.unwrap();
        assert_eq!(sandbox.hello().await.unwrap().instance, instance);
    });
}
