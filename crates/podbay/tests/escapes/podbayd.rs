//! Attacks on podbayd, which runs as the commands' user: its processes, sockets::sockets, records, deadlines and program.

mod sockets;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use podbay::{Command, Sandbox, State};

use crate::attack::{
    Attack, Class::Escape, Class::SandboxDenial, Fault, Pending, Step, around, inside, known, verdict,
};
use crate::confinement::{LANDLOCK_ROOT, LANDLOCK_USER, POD_ROOT};
use crate::sandbox_denial::{run, works};
use crate::site::Site;

pub(crate) const ATTACKS: &[Attack] = &[
    around(
        "replace-own-program",
        Escape,
        "podbayd's program changed through `/proc/PID/exe`, also while a killed zygote is replaced (runc's CVE-2019-5736)",
        program,
    ),
    around(
        "stop-the-shim",
        SandboxDenial,
        "A command stops or kills the process that watches its time-out: podbayd still ends it in time and answers",
        stop_the_shim,
    ),
    around(
        "signal-podbayd",
        SandboxDenial,
        "Every signal to podbayd and PID 1, by kill, by thread and by descriptor",
        signals,
    ),
    around(
        "podbayds-limits",
        SandboxDenial,
        "podbayd left without descriptors or processor time, by prlimit, setpriority and the like, which check only the user",
        limits,
    ),
    around(
        "podbayds-sockets",
        SandboxDenial,
        "Requests sent through podbayd's socket or another command's control socket, also by an orphan",
        sockets::sockets,
    ),
    around(
        "flood-podbayds-sockets",
        SandboxDenial,
        "Hundreds of idle connections to each of podbayd's sockets: the caller's requests still get through",
        sockets::flood,
    ),
    around(
        "forge-records",
        SandboxDenial,
        "Logs and results of other commands changed, removed or planted by a command",
        forge,
    )
    .open(&[known(POD_ROOT, &["change", "create", "move", "remove"], ROOT_DIRECTORY)]),
    around(
        "wedge-podbayd",
        SandboxDenial,
        "Pipes, links to /dev/zero, endless files, modes and locks in podbayd's directory: it neither blocks nor dies",
        wedge,
    ),
    inside(
        "oom-score",
        SandboxDenial,
        "A command makes itself less likely to be killed than podbayd when memory runs out",
        OOM_SCORE,
        &[],
    )
    .open(&[known(LANDLOCK_ROOT, &["not marked"], NOT_MARKED), known(LANDLOCK_USER, &["not marked"], NOT_MARKED)]),
];

const ROOT_DIRECTORY: &str = "root may create files in `/` and `/run`, as many servers do, and Landlock can't leave a \
                              hole for podbayd's directory there; `raw.read_only_root` or another user closes it";
const NOT_MARKED: &str = "`/proc` isn't writable there, so commands can't be marked as the first to be killed";

async fn state_of(sandbox: &Sandbox) -> Step<String> {
    let hello = sandbox.hello().await.map_err(|error| error.to_string())?;
    hello.state.to_str().map(str::to_owned).ok_or_else(|| "podbayd's directory has an odd name".to_owned())
}

async fn instance_of(sandbox: &Sandbox) -> Step<String> {
    Ok(sandbox.hello().await.map_err(|error| error.to_string())?.instance)
}

fn broken<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Broken(what.into()))
}

/// All regular files below a directory called podbayd, with mode and content. Not the note on which of them was compared, which any
/// sandbox that starts at the same time may write again: who changes it gains nothing without changing the program.
fn programs(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if metadata.is_dir() {
            found.extend(programs(&entry.path()));
        } else if metadata.is_file() && name.contains("podbayd") && !name.ends_with(".compared") {
            let content = std::fs::read(entry.path()).unwrap_or_default();
            found.push((entry.path(), metadata.permissions().mode(), content));
        }
    }
    found
}

fn program(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        // Other sandboxes come and go below the same home; the programs stay.
        let bin = site.scratch.join("h/bin");
        let before = programs(&bin);
        if site.is_local() && before.is_empty() {
            return broken("podbayd's program isn't where this looks for it");
        }
        // A killed zygote is replaced when the next command needs one.
        let traffic = async {
            loop {
                let _ = made.sandbox.run("true").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let loot = tokio::select! {
            loot = site.loot(&made.sandbox, PROGRAM) => loot,
            () = traffic => unreachable!("it has no end"),
        };
        works(&made.sandbox).await?;
        site.end(made).await?;
        let mut loot = loot?;
        let after = programs(&bin);
        loot.extend(before.iter().filter(|file| !after.contains(file)).map(|(path, ..)| path.display().to_string()));
        verdict(loot)
    })
}

const PROGRAM: &str = r#"
import shutil
def attempts(pid):
    path = "/proc/%d/exe" % pid
    worked = set()
    for what, action in [
        ("read", lambda: os.close(os.open(path, os.O_RDONLY))),
        ("write", lambda: os.close(os.open(path, os.O_WRONLY))),
        ("truncate", lambda: os.truncate(path, 0)),
        ("mode", lambda: os.chmod(path, 0o700)),
        ("times", lambda: os.utime(path)),
    ]:
        try:
            action()
            worked.add(what)
        except OSError:
            pass
    return worked
# The control: a program of ours is within reach.
shutil.copy("/bin/sleep", "podbayd")
own = subprocess.Popen(["./podbayd", "60"])
time.sleep(0.1)
worked = attempts(own.pid)
assert {"read", "mode"} <= worked, "the attempts prove nothing: %s" % worked
own.kill()
shim, zygote, podbayd = family()
for name, pid in [("shim", shim), ("zygote", zygote), ("podbayd", podbayd), ("PID 1", 1)]:
    loot += ["%s of %s" % (what, name) for what in attempts(pid)]
# The next zygote must not have a moment in which it isn't protected yet.
zygotes, seen = [zygote], 0
for again in range(3):
    for pid in zygotes:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    begun, before = time.time(), seen
    # On a busy machine it takes a while until there is one.
    while time.time() < begun + (15 if seen == before else 1.5):
        zygotes = [pid for pid in children(podbayd) if pid not in (zygote, shim) and is_running(pid)]
        seen += len(zygotes)
        for pid in zygotes:
            loot += ["%s of a new process of podbayd's" % what for what in attempts(pid)]
assert seen, "the zygote wasn't replaced"
"#;

/// Whether a command with little time has ended as it should.
async fn ended_in_time(sandbox: &Sandbox, line: &str, marker: &str) -> Step {
    let begun = Instant::now();
    let command = Command { timeout_ms: 1_000, grace_ms: 300, ..Command::shell(line) };
    let output = run(sandbox, command).await?;
    let took = begun.elapsed();
    // A command may also kill its shim; then nobody knows how it ended.
    let lost = output.info.state == State::Lost;
    if took > Duration::from_secs(12) || !(lost || output.exit().is_some_and(|exit| exit.timed_out)) {
        return Err(format!("{line}: {:?} after {took:?}", output.info.state));
    }
    works(sandbox).await?;
    let look = format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep {marker}'; true");
    let left = run(sandbox, look.as_str()).await?;
    // The line that looks is there too.
    let left: u32 = left.text().trim().parse().map_err(|_| format!("{line}: can't count: {}", left.text()))?;
    if left > 1 { Err(format!("{line}: its processes are left")) } else { Ok(()) }
}

fn stop_the_shim(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        // A number that no other sleep on this machine has.
        let marker = format!("41.{}", std::process::id());
        for line in [
            "sleep 0.2; kill -STOP $PPID; sleep M",
            "sleep 0.2; setsid sh -c '(sleep M &) ; sleep M' & kill -STOP $PPID; sleep M",
            "sleep 0.2; kill -STOP -1; sleep M",
            "sleep 0.2; kill -KILL $PPID; sleep M",
            "trap '' TERM HUP; sleep 0.2; while :; do kill -STOP $PPID; sleep M & sleep 0.05; done",
        ] {
            ended_in_time(&made.sandbox, &line.replace('M', &marker), &marker).await?;
        }
        site.end(made).await?;
        Ok(())
    })
}

fn signals(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let before = instance_of(&made.sandbox).await?;
        let loot = site.loot(&made.sandbox, SIGNALS).await;
        works(&made.sandbox).await?;
        let after = instance_of(&made.sandbox).await?;
        site.end(made).await?;
        if before == after { verdict(loot?) } else { broken("podbayd was ended") }
    })
}

const SIGNALS: &str = r#"
shim, zygote, podbayd = family()
# The same ways reach what they may.
os.kill(shim, 0)
signal.pidfd_send_signal(os.pidfd_open(shim), 0)
call("tgkill", shim, shim, 0)
numbers = [number for number in range(65) if number not in (signal.SIGKILL, signal.SIGSTOP)] + [signal.SIGSTOP, signal.SIGKILL]
for name, pid in [("podbayd", podbayd), ("PID 1", 1)]:
    for number in numbers:
        attempt("kill " + name, lambda: os.kill(pid, number))
        attempt("thread of " + name, lambda: call("tgkill", pid, pid, number))
        attempt("descriptor of " + name, lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number))
        attempt("queue for " + name, lambda: call("rt_sigqueueinfo", pid, number, WILD))
# Signals that announce data. That they can be asked for says nothing; podbayd must not get them.
import fcntl
for number in [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP]:
    read, write = os.pipe()
    try:
        fcntl.fcntl(read, fcntl.F_SETOWN, podbayd)
        fcntl.fcntl(read, 10, number)
        fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
        os.write(write, b"x")
    except OSError:
        pass
"#;

fn limits(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let loot = site.loot(&made.sandbox, LIMITS).await;
        works(&made.sandbox).await?;
        site.end(made).await?;
        verdict(loot?)
    })
}

const LIMITS: &str = r#"
import resource
files = resource.RLIMIT_NOFILE
# One's own are one's own business.
resource.prlimit(0, files, resource.prlimit(0, files))
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
shim, zygote, podbayd = family()
for name, pid in [("shim", shim), ("zygote", zygote), ("PID 1", 1), ("podbayd", podbayd)]:
    attempt("priority of " + name, lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt("policy of " + name, lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
    attempt("policy of " + name, lambda: os.sched_setparam(pid, os.sched_param(0)))
    attributes = struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0)
    attempt("policy of " + name, lambda: call("sched_setattr", pid, ctypes.c_char_p(attributes), 0))
    attempt("disk access of " + name, lambda: call("ioprio_set", 1, pid, 3 << 13))
    for limit in [resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, files]:
        attempt("limits of " + name, lambda: resource.prlimit(pid, limit, (0, 0)))
attempt("priority of the user", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("priority of the user", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
attempt("disk access of the user", lambda: call("ioprio_set", 3, os.getuid(), 3 << 13))
"#;

fn forge(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let state = state_of(&made.sandbox).await?;
        let first = run(&made.sandbox, "echo first").await?;
        let log = first.info.log.to_string_lossy().into_owned();
        let loot = site.loot(&made.sandbox, &format!("STATE, LOG = {state:?}, {log:?}\n{FORGE}")).await;
        works(&made.sandbox).await?;
        site.end(made).await?;
        verdict(loot?)
    })
}

const FORGE: &str = r#"
exec = os.path.dirname(os.path.dirname(LOG))
for place in [STATE, exec, os.path.dirname(LOG)]:
    attempt("create", lambda: open(place + "/forged", "w"))
    attempt("create", lambda: os.mkdir(place + "/forged-directory"))
    attempt("create", lambda: os.mkfifo(place + "/forged-pipe"))
    attempt("create", lambda: os.symlink("/dev/zero", place + "/forged-link"))
for directory, names, files in os.walk(STATE):
    for file in files:
        path = os.path.join(directory, file)
        if os.path.isfile(path) and "forged" not in path:
            attempt("change", lambda: open(path, "r+b"))
attempt("change", lambda: os.truncate(LOG, 0))
attempt("link", lambda: os.link(LOG, "link"))
attempt("move", lambda: (os.rename(exec, exec + "-moved"), os.rename(exec + "-moved", exec)))
attempt("move", lambda: os.rename(LOG, LOG + "-moved"))
attempt("remove", lambda: os.unlink(LOG if os.path.exists(LOG) else LOG + "-moved"))
"#;

fn wedge(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let sandbox = &made.sandbox;
        let before = instance_of(sandbox).await?;
        let state = state_of(sandbox).await?;
        let first = run(sandbox, "echo kept").await?;
        let exec = Path::new(&*first.info.log.to_string_lossy()).parent().and_then(Path::parent).map(Path::to_owned);
        let exec = exec.ok_or("the log has an odd path".to_owned())?;
        // Where the directory is protected much of this fails, which is as good.
        site.loot(sandbox, &format!("STATE, EXEC = {state:?}, {:?}\n{WEDGE}", exec.display().to_string())).await?;
        let begun = Instant::now();
        let listed = sandbox.commands(false).await.map_err(|error| error.to_string())?;
        works(sandbox).await?;
        let took = begun.elapsed();
        let after = instance_of(sandbox).await?;
        site.end(made).await?;
        match (before == after, listed.iter().any(|info| info.command == "echo kept")) {
            (true, true) if took < Duration::from_secs(8) => Ok(()),
            other => broken(format!("the same podbayd, commands listed: {other:?} after {took:?}")),
        }
    })
}

const WEDGE: &str = r#"
import fcntl
def tries(action):
    try:
        action()
    except OSError:
        pass
for name in "zyxw":
    tries(lambda: os.mkdir(EXEC + "/" + name))
for file in ["record", "output", "ended", "ctl", "index"]:
    tries(lambda: os.mkfifo(EXEC + "/z/" + file))
    tries(lambda: os.symlink("/dev/zero", EXEC + "/y/" + file))
    tries(lambda: os.mkdir(EXEC + "/w/" + file))
    def sparse():
        with open(EXEC + "/x/" + file, "w") as f:
            f.truncate(1 << 40)
    tries(sparse)
# Locks are held for longer than the caller waits.
places = [STATE, EXEC] + [os.path.join(directory, file) for directory, _, files in os.walk(STATE) for file in files]
if os.fork() == 0:
    os.setsid()
    for number in range(3):
        os.close(number)
    kept = []
    for path in places:
        def lock():
            kept.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
            fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        tries(lock)
    time.sleep(20)
    os._exit(0)
time.sleep(0.5)
for path in [EXEC + "/z", EXEC, STATE]:
    tries(lambda: os.chmod(path, 0))
"#;

const OOM_SCORE: &str = r#"
# The shim marks a command right after its start.
time.sleep(0.5)
read = lambda pid: int(open("/proc/%s/oom_score_adj" % pid).read())
_, _, podbayd = family()
level = read(podbayd)
if read("self") <= level:
    loot.append("not marked")
else:
    for value in range(read("self") - 1, -1001, -1):
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write(str(value))
        except OSError:
            pass
    # In a pod the bound is the container runtime's, which needs CAP_SYS_RESOURCE to set it, as it has on any usual node.
    if read("self") < level and (podbayd == 1 or HOST["sys_resource"]):
        loot.append("below podbayd")
    # A supervisor with CAP_SYS_RESOURCE can forbid commands to lower it at all; nobody else can.
    elif read("self") < 1000 and podbayd == 1 and HOST["sys_resource"]:
        loot.append("lowered")
"#;
