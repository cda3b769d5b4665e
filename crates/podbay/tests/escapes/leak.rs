//! Attacks that look for information.

use crate::attack::{Attack, Class::Leak, Pending, around, inside, known, verdict};
use crate::confinement::{LANDLOCK_ROOT, LANDLOCK_USER, POD_ROOT};

pub(crate) const ATTACKS: &[Attack] = &[
    inside(
        "callers-environment",
        Leak,
        "A token in the caller's environment, found in any process that can be inspected (Daytona's advisory of 2026-04-09)",
        ENVIRONMENT,
        &["environment"],
    ),
    inside("process-list", Leak, "Other users' command lines, which often contain passwords", PROCESSES, &["seen"])
        .open(&[known(LANDLOCK_ROOT, &["seen"], HOSTS_PROCESSES), known(LANDLOCK_USER, &["seen"], HOSTS_PROCESSES)]),
    inside(
        "network",
        Leak,
        "Data exfiltrated over TCP, UDP, DNS, raw and packet sockets, or to a cloud's metadata service",
        NETWORK,
        &["loopback"],
    ),
    inside(
        "cluster-credentials",
        Leak,
        "A service account's token, or the API server's address and network access to it",
        CREDENTIALS,
        &[],
    ),
    inside("kernel-memory", Leak, "The kernel's memory, log and addresses: kcore, kmsg, kallsyms", KERNEL, &[]).open(
        &[known(
            POD_ROOT,
            &["/proc/vmallocinfo"],
            "root in a pod is also root for the node's `/proc`, and can read addresses in `/proc/vmallocinfo`",
        )],
    ),
    inside(
        "machine-in-proc",
        Leak,
        "What `/proc` reveals about the machine beyond what programs need: keys of the user's session",
        MACHINE,
        &[],
    )
    .open(&[known(LANDLOCK_ROOT, &["keys"], HOSTS_PROC), known(LANDLOCK_USER, &["keys"], HOSTS_PROC)]),
    inside(
        "podbayds-memory",
        Leak,
        "What podbayd knows about other operations, read from its memory or environment",
        PODBAYD,
        &[],
    ),
    around("peers-files", Leak, "Files of another sandbox of the same caller, by their path on the host", peer),
];

const HOSTS_PROCESSES: &str = "there is no PID namespace: command lines of all processes can be read";
const HOSTS_PROC: &str = "it is the host's `/proc`, readable as far as its own rules allow";

const ENVIRONMENT: &str = r#"
canary = HOST["canary"].encode()
assert canary
for path in glob.glob("/proc/[0-9]*/environ"):
    def found():
        return canary in open(path, "rb").read()
    attempt("environment", found)
if any(canary.decode() in value for value in os.environ.values()):
    loot.append("own environment")
"#;

const PROCESSES: &str = r#"
attempt("seen", lambda: open("/proc/%d/cmdline" % HOST["pid"]).read() and b"escapes" in open("/proc/%d/cmdline" % HOST["pid"], "rb").read())
"#;

const NETWORK: &str = r#"
attempt("loopback", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", HOST["port"])))
attempt("mapped loopback", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", HOST["port"])))
attempt("metadata", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
attempt("internet", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)))
def answered():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01", ("1.1.1.1", 53))
        s.recv(512)
attempt("DNS", answered)
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
"#;

const CREDENTIALS: &str = r#"
for place in ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io/serviceaccount/token"]:
    attempt(place, lambda: open(place).read())
host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
if host:
    attempt("the API server", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, (host, int(port))))
for name in ["KUBECONFIG", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK"]:
    if name in os.environ:
        loot.append(name)
"#;

const KERNEL: &str = r#"
for path in ["/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware/efi/efivars", "/sys/kernel/debug/tracing/trace", "/proc/vmallocinfo"]:
    # Masked places can be opened and have nothing in them.
    attempt(path, lambda: len(os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 64)) > 0 if not os.path.isdir(path) else len(os.listdir(path)) > 0)
attempt("kallsyms", lambda: any(int(line.split()[0], 16) for line in open("/proc/kallsyms")))
attempt("dmesg", lambda: call("syslog", 3, ctypes.create_string_buffer(64), 64))
"#;

const MACHINE: &str = r#"
attempt("keys", lambda: len(open("/proc/keys").read()) > 0)
"#;

const PODBAYD: &str = r#"
def parent(pid):
    return int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
# A command's parent is its shim, above that are the zygote and podbayd, which have the same name.
name = lambda pid: open("/proc/%d/comm" % pid).read()
podbayd = os.getppid()
while parent(podbayd) and name(parent(podbayd)) == name(os.getppid()):
    podbayd = parent(podbayd)
assert podbayd != os.getppid()
for what in ["mem", "environ", "maps"]:
    attempt(what, lambda: os.read(os.open("/proc/%d/%s" % (podbayd, what), os.O_RDONLY), 1) if what != "mem" else os.open("/proc/%d/mem" % podbayd, os.O_RDONLY))
attempt("descriptors", lambda: os.readlink("/proc/%d/fd/0" % podbayd))
attempt("trace", lambda: call("ptrace", 0x4206, podbayd, 0, 0))
"#;

/// A second sandbox has a secret; the first one looks for it wherever the host keeps sandboxes.
fn peer(site: &crate::site::Site) -> Pending<'_> {
    Box::pin(async {
        let (one, other) = (site.make().await?, site.make().await?);
        let written =
            other.sandbox.run("echo of-the-peer > secret; pwd -P").await.map_err(|error| error.to_string())?;
        let place = written.text().trim_end().to_owned();
        // In both namespaces this is the attacker's own directory, where there is no such file.
        let home = site.scratch.join("h");
        let program = format!(
            "for start in [{place:?}, {home:?}, '/proc/1/root' + {home:?}]:\n    \
                 for directory, names, files in os.walk(start):\n        \
                     for file in files:\n            \
                         path = os.path.join(directory, file)\n            \
                         if os.path.isfile(path):\n                \
                             attempt(path, lambda: 'of-the-peer' in open(path, errors='replace').read(4096))\n"
        );
        let loot = site.loot(&one.sandbox, &program).await;
        site.end(one).await?;
        site.end(other).await?;
        verdict(loot?)
    })
}
