//! Attacks on the machine.

use crate::attack::{Attack, Class::HostDenial, LOCAL, Pending, around, inside, known, verdict};
use crate::confinement::{LANDLOCK_USER, POD_ROOT, POD_USER};
use crate::site::Site;

pub(crate) const ATTACKS: &[Attack] = &[
    inside("stop-the-machine", HostDenial, "Reboot, swap, clock, host name, accounting", MACHINE, &[]),
    inside(
        "take-the-processor",
        HostDenial,
        "Real-time scheduling, a negative nice value, real-time disk access",
        PRIORITY,
        &[],
    ),
    around("fork-bomb", HostDenial, FORK_BOMB, fork_bomb).only(LOCAL),
    inside(
        "pressure-files",
        HostDenial,
        "The machine's pressure files (PSI) opened for writing: each trigger makes the kernel work",
        PRESSURE,
        &["cpu", "io", "memory"],
    )
    .open(&[known(POD_ROOT, PRESSURE_FILES, PRESSURE_IN_PODS), known(POD_USER, PRESSURE_FILES, PRESSURE_IN_PODS)]),
];

const FORK_BOMB: &str = "A fork bomb against a limit of 64 processes: never more, except in landlock mode as an ordinary \
                         user without a control group: there 64 plus the threads that this user had when the sandbox was created";

const PRESSURE_FILES: &[&str] = &["cpu", "io", "memory"];
const PRESSURE_IN_PODS: &str = "a pod's `/proc` is the runtime's, and debuggers need to write there; the kernel \
                                allows ordinary users triggers of two seconds and more only";

const PRESSURE: &str = r#"
for name in ["cpu", "io", "memory"]:
    attempt(name, lambda: os.close(os.open("/proc/pressure/" + name, os.O_RDWR)))
"#;

const MACHINE: &str = r#"
# Wrong magic numbers and wild addresses: a kernel that lets these through answers EINVAL or EFAULT, and does nothing.
reaches("reboot", "reboot", 0, 0, 0, 0)
reaches("swapon", "swapon", WILD, 0)
reaches("swapoff", "swapoff", WILD)
reaches("acct", "acct", WILD)
reaches("settimeofday", "settimeofday", WILD, 0)
reaches("clock_settime", "clock_settime", 0, WILD)
reaches("sethostname", "sethostname", WILD, 1)
"#;

const PRIORITY: &str = r#"
attempt("nice", lambda: os.nice(-5))
attempt("FIFO", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))
attempt("real-time disk access", lambda: call("ioprio_set", 1, 0, 1 << 13))
"#;

fn fork_bomb(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let limits = podbay::local::JailLimits { processes: Some(64), ..Default::default() };
        let local = site.local(podbay::local::Options { limits, ..Default::default() })?;
        let made = crate::site::make(&local).await?;
        let program = r#"
children = []
try:
    while len(children) < 2000:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except OSError:
    pass
for child in children:
    os.kill(child, signal.SIGKILL)
import resource
limit = 64 if EXACT else resource.getrlimit(resource.RLIMIT_NPROC)[0]
# The attacker's own process counts too.
if len(children) >= limit:
    loot.append("%d processes at a limit of %d" % (len(children), limit))
"#;
        // The limit is exact in namespaces, in a cgroup, and for a user who runs nothing else. Otherwise the kernel counts all of
        // the user's threads together, those of other sandboxes included, so the sandbox's limit is its own plus those that ran
        // when it was created: as they end, it can have that many more. There is no race beyond that, because the kernel counts
        // a new process before it compares.
        let described = local.describe(&made.id).await.map_err(|error| error.to_string())?;
        let by_cgroup =
            described.limits.iter().any(|limit| limit.limit == "processes" && limit.by.as_deref() != Some("rlimit"));
        let exact = site.confinement != LANDLOCK_USER || by_cgroup;
        let program = format!("EXACT = {}\n{program}", if exact { "True" } else { "False" });
        let loot = site.loot(&made.sandbox, &program).await;
        crate::sandbox_denial::works(&made.sandbox).await?;
        podbay::provider::Provider::delete(&local, &made.id).await.map_err(|error| error.to_string())?;
        verdict(loot?)
    })
}
