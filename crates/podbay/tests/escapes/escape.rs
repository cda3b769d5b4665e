//! Attacks that try to get out.

mod caller;

use crate::attack::{Attack, Class::Escape, LOCAL, around, inside, known};
use crate::confinement::LANDLOCK_ROOT;

pub(crate) const ATTACKS: &[Attack] = &[
    inside(
        "read-host-file",
        Escape,
        "A world-readable host file, by its path, through links, through `/proc`",
        READ,
        &["read", "list"],
    ),
    inside(
        "write-host-file",
        Escape,
        "A world-writable host file, changed by its path (Claude Code's CVE-2026-39861)",
        WRITE,
        &["append", "chmod"],
    ),
    inside(
        "touch-host-file",
        Escape,
        "A host file's timestamps, which Landlock doesn't cover",
        TOUCH,
        &["now", "then"],
    )
    .open(&[known(
        LANDLOCK_ROOT,
        &["now"],
        "for root, the timestamps of world-writable files can be set to the current time",
    )]),
    inside(
        "host-unix-socket",
        Escape,
        "A host service that listens on a path or an abstract name, as Docker and D-Bus do",
        SOCKETS,
        &["stream", "datagram", "abstract", "pair"],
    ),
    inside(
        "host-process",
        Escape,
        "The user's processes outside: signalled, traced, their memory, files and root opened",
        PROCESS,
        &["signal", "environ", "root", "descriptors", "limits", "priority"],
    ),
    inside(
        "trace-pid-1",
        Escape,
        "The sandbox's PID 1 traced, its memory and descriptors opened (bubblewrap's CVE-2026-41163)",
        PID_1,
        &[],
    ),
    inside(
        "new-namespaces",
        Escape,
        "A nested user namespace, for capabilities with which to attack the kernel",
        NAMESPACES,
        &[],
    ),
    inside(
        "change-mounts",
        Escape,
        "A read-only mount made writable, another root mounted (boxlite's CVE-2026-46695)",
        MOUNTS,
        &[],
    ),
    inside("device-nodes", Escape, "The host's disk, through a device node, existing or made with mknod", DEVICES, &[]),
    inside(
        "file-handles",
        Escape,
        "A host file opened by its handle, which needs no path (the Docker escape Shocker)",
        HANDLES,
        &[],
    ),
    inside(
        "set-id-files",
        Escape,
        "A set-id program left in a workspace on the host, for somebody else to run",
        SET_ID,
        &["open", "chmod", "fchmod", "mknod", "temporary file", "an access list"],
    )
    .only(LOCAL),
    inside(
        "odd-sockets",
        Escape,
        "Socket families and types that are rarely used, and whose kernel code is rarely audited",
        ODD_SOCKETS,
        &[],
    ),
    inside(
        "kernel-doors",
        Escape,
        "Kernel interfaces with a history of vulnerabilities: bpf, perf, userfaultfd, modules, kexec",
        DOORS,
        &[],
    ),
    inside("io-uring", Escape, "io_uring, which bypasses the system-call filter", IO_URING, &[]),
    inside("keyrings", Escape, "Keys of the host's session keyring, which no namespace isolates", KEYRINGS, &[]),
    inside(
        "type-into-terminal",
        Escape,
        "Text typed into the caller's terminal (bubblewrap's CVE-2017-5226, snapd's CVE-2019-7303)",
        TERMINAL,
        &[],
    ),
    inside(
        "leaked-descriptors",
        Escape,
        "A descriptor of the host left open in a command (runc's CVE-2024-21626)",
        DESCRIPTORS,
        &[],
    ),
    around(
        "working-directory-in-proc",
        Escape,
        "A working directory below `/proc/self/fd` that leads out of the sandbox (runc's CVE-2024-21626)",
        caller::working_directory,
    ),
    inside(
        "host-settings",
        Escape,
        "A program for the kernel to start as root: core_pattern, modprobe, release_agent",
        SETTINGS,
        &[],
    ),
    inside("become-root", Escape, "Root through set-uid programs, retained capabilities or changed ids", ROOT, &[]),
    around(
        "path-out-of-the-root",
        Escape,
        "A file operation led outside its root by links, `..` and prefixes (CVE-2025-53109, 53110)",
        caller::root_of_a_scope,
    ),
    around(
        "link-in-a-download",
        Escape,
        "A downloaded tree with links, through which later files are written (CVE-2025-62518)",
        caller::download,
    ),
    inside(
        "other-kinds-of-calls",
        Escape,
        "System calls of another architecture (x32, i386), unknown to the filter",
        OTHER_KINDS,
        &[],
    ),
];

const READ: &str = r#"
secret = HOST["secret"]
attempt("read", lambda: open(secret).read())
attempt("list", lambda: os.listdir(HOST["scratch"]))
def linked():
    os.symlink(secret, "symbolic")
    open("symbolic").read()
attempt("symbolic link", linked)
attempt("hard link", lambda: os.link(secret, "hard"))
attempt("rename", lambda: os.rename(secret, "moved"))
for where in ["/proc/1/root", "/proc/self/root", "/proc/%d/root" % HOST["pid"], "/proc/%d/cwd/../../../../.." % HOST["pid"]]:
    attempt("read below " + where, lambda: open(where + secret).read())
for place in ["/root", "/home", "/var/log", "/etc/shadow", "/etc/ssh", "/opt"]:
    # An image has such places of its own. Those of the host are known by what is in them.
    attempt(place, lambda: HOST["canary"] in open(place).read() if os.path.isfile(place) else HOST["scratch"] in os.listdir(place))
"#;

const WRITE: &str = r#"
secret = HOST["secret"]
attempt("append", lambda: open(secret, "a").write("x") and None)
attempt("truncate", lambda: os.truncate(secret, 0))
attempt("chmod", lambda: os.chmod(secret, 0o600))
attempt("own", lambda: os.chown(secret, os.getuid(), -1))
attempt("remove", lambda: os.remove(secret))
attempt("new file", lambda: open(HOST["scratch"] + "/new", "w"))
attempt("xattr", lambda: os.setxattr(secret, "user.x", b"x"))
"#;

const TOUCH: &str = r#"
attempt("now", lambda: os.utime(HOST["secret"]))
attempt("then", lambda: os.utime(HOST["secret"], (1, 2)))
"#;

const SOCKETS: &str = r#"
attempt("stream", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, HOST["stream"]))
attempt("datagram", lambda: connect(socket.AF_UNIX, socket.SOCK_DGRAM, HOST["datagram"]))
attempt("abstract", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + HOST["abstract"]))
def pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", HOST["datagram"])
attempt("pair", pair)
for path in ["/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"]:
    attempt(path, lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, path))
"#;

const PROCESS: &str = r#"
pid = HOST["pid"]
attempt("signal", lambda: os.kill(pid, 0))
attempt("pidfd", lambda: call("pidfd_getfd", call("pidfd_open", pid, 0), 1, 0))
attempt("environ", lambda: open("/proc/%d/environ" % pid).read())
attempt("memory", lambda: open("/proc/%d/mem" % pid, "rb"))
attempt("root", lambda: os.listdir("/proc/%d/root/" % pid))
attempt("descriptors", lambda: os.readlink("/proc/%d/fd/0" % pid))
attempt("cwd", lambda: os.listdir("/proc/%d/cwd/" % pid))
import resource
attempt("limits", lambda: resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)))
if "memory" not in loot:
    attempt("trace", lambda: call("ptrace", 16, pid, 0, 0))
"#;

const PID_1: &str = r#"
attempt("memory", lambda: open("/proc/1/mem", "rb"))
attempt("descriptors", lambda: os.readlink("/proc/1/fd/0"))
attempt("environ", lambda: open("/proc/1/environ").read())
attempt("program", lambda: open("/proc/1/exe", "rb"))
attempt("trace", lambda: call("ptrace", 0x4206, 1, 0, 0))
attempt("pidfd", lambda: call("pidfd_getfd", call("pidfd_open", 1, 0), 0, 0))
"#;

const NAMESPACES: &str = r#"
kinds = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}
for kind, flag in kinds.items():
    def unshared():
        child = os.fork()
        if child == 0:
            try:
                call("unshare", flag)
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0
    attempt("unshare " + kind, unshared)
    def cloned():
        # The upper half of the argument, which the kernel ignores, must not blind a filter.
        for flags in [flag | signal.SIGCHLD, flag | signal.SIGCHLD | 1 << 40]:
            child = call("clone", flags, 0, 0, 0, 0)
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    attempt("clone " + kind, cloned)
    name = {"mount": "mnt"}.get(kind, kind)
    # One's own user namespace can't be entered again in any case: EINVAL.
    if kind != "user":
        attempt("setns " + kind, lambda: call("setns", os.open("/proc/1/ns/" + name, os.O_RDONLY), 0))
"#;

const MOUNTS: &str = r#"
os.makedirs("m", exist_ok=True)
here = ctypes.c_char_p(b"m")
for target in [b"/usr", b"/", b"/proc", b"."]:
    attempt("remount " + target.decode(), lambda: call("mount", ctypes.c_char_p(b"none"), ctypes.c_char_p(target), 0, 32 | 4096, 0))
    attempt("unmount " + target.decode(), lambda: call("umount2", ctypes.c_char_p(target), 2))
    attempt("clone tree " + target.decode(), lambda: call("open_tree", -100, ctypes.c_char_p(target), 1))
    attributes = struct.pack("QQQQ", 0, 1, 0, 0)
    attempt("set attributes " + target.decode(), lambda: call("mount_setattr", -100, ctypes.c_char_p(target), 0, ctypes.c_char_p(attributes), 32))
for kind in [b"tmpfs", b"proc", b"overlay", b"cgroup"]:
    attempt("mount " + kind.decode(), lambda: call("mount", ctypes.c_char_p(b"none"), here, ctypes.c_char_p(kind), 0, 0))
    attempt("fsopen " + kind.decode(), lambda: call("fsopen", ctypes.c_char_p(kind), 0))
attempt("bind", lambda: call("mount", ctypes.c_char_p(b"/usr"), here, 0, 4096, 0))
attempt("pivot_root", lambda: call("pivot_root", here, here))
attempt("chroot", lambda: os.chroot("m"))
attempt("write below /usr", lambda: open("/usr/.podbay-test", "w") if os.statvfs("/usr").f_flag & os.ST_RDONLY else False)
"#;

const DEVICES: &str = r#"
import stat
for number in [(8, 0), (252, 0), (253, 0), (254, 0), (259, 0), (7, 0), (1, 1)]:
    kind = stat.S_IFCHR if number == (1, 1) else stat.S_IFBLK
    def made():
        os.mknod("node", kind | 0o666, os.makedev(*number))
        try:
            os.open("node", os.O_RDONLY)
        finally:
            os.remove("node")
    attempt("mknod %d:%d" % number, made)
for path in ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kvm", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop-control", "/dev/fuse", "/dev/net/tun", "/dev/vhost-net", "/dev/vsock"]:
    attempt(path, lambda: os.open(path, os.O_RDWR))
"#;

const HANDLES: &str = r#"
# Inode 2 is the root directory of most file systems.
for type, content in [(1, struct.pack("II", 2, 0)), (0x81, struct.pack("QI", 128, 0))]:
    handle = struct.pack("Ii", len(content), type) + content
    for place in ["/", "/usr", ".", "/etc/hosts"]:
        def opened():
            mount = os.open(place, os.O_RDONLY)
            call("open_by_handle_at", mount, ctypes.c_char_p(handle), os.O_RDONLY)
        attempt("handle at " + place, opened)
reaches("open_by_handle_at", "open_by_handle_at", -1, WILD, 0)
"#;

const SET_ID: &str = r#"
import stat
os.umask(0)
def way(what, action):
    try:
        action()
    except OSError:
        pass
    # A failed call may have left something all the same.
    for name in os.listdir("."):
        mode = os.lstat(name).st_mode
        if stat.S_ISREG(mode):
            if mode & 0o6000:
                loot.append(what)
            os.remove(name)
for mode in [0o4755, 0o2755, 0o6777]:
    way("open", lambda: os.open("f", os.O_CREAT | os.O_WRONLY, mode))
    way("mknod", lambda: os.mknod("f", stat.S_IFREG | mode))
    def opened():
        return os.open("f", os.O_CREAT | os.O_RDWR, 0o755)
    def chmod():
        opened()
        os.chmod("f", mode)
    way("chmod", chmod)
    way("fchmod", lambda: os.fchmod(opened(), mode))
    def fchmodat2():
        opened()
        call("fchmodat2", -100, ctypes.c_char_p(b"f"), mode, 0)
    way("fchmodat2", fchmodat2)
    way("openat2", lambda: call("openat2", -100, ctypes.c_char_p(b"f"), ctypes.c_char_p(struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, mode, 0)), 24))
    def temporary():
        file = os.open(".", os.O_TMPFILE | os.O_RDWR, mode)
        os.link("/proc/self/fd/%d" % file, "f", src_dir_fd=os.open("/", os.O_RDONLY))
    way("temporary file", temporary)
def listed():
    # Made without the right to run it, which an access list then gives.
    file = os.open("f", os.O_CREAT | os.O_RDWR, 0o2644)
    os.write(file, b"a program")
    entry = lambda tag, rights: struct.pack("HHI", tag, rights, 0xffffffff)
    os.setxattr(file, "system.posix_acl_access", struct.pack("I", 2) + entry(1, 7) + entry(4, 5) + entry(0x20, 5))
way("an access list", listed)
"#;

const ODD_SOCKETS: &str = r#"
IP = [("TCP by SCTP", socket.SOCK_STREAM, 132), ("SCTP", socket.SOCK_SEQPACKET, 0), ("DCCP", 6, 0), ("raw", socket.SOCK_RAW, 255), ("UDP-Lite", socket.SOCK_DGRAM, 136)]
for family in [socket.AF_INET, socket.AF_INET6]:
    for name, kind, protocol in IP:
        attempt("%s, family %d" % (name, family), lambda: socket.socket(family, kind, protocol))
names = {3: "AX.25", 4: "IPX", 5: "AppleTalk", 9: "X.25", 15: "KEY", 21: "RDS", 26: "LLC", 29: "CAN", 30: "TIPC", 31: "Bluetooth", 38: "ALG", 39: "NFC", 40: "vsock", 41: "KCM", 42: "QIPCRTR", 43: "SMC", 44: "XDP"}
for family, name in names.items():
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET]:
        attempt("%s, kind %d" % (name, kind), lambda: socket.socket(family, kind, 0))
"#;

const DOORS: &str = r#"
reaches("bpf", "bpf", 0, WILD, 128)
reaches("perf_event_open", "perf_event_open", WILD, 0, 0, 0, 0)
reaches("userfaultfd", "userfaultfd", 1)
reaches("fanotify_init", "fanotify_init", 0, 0)
reaches("kexec_load", "kexec_load", 0, 0, 0, 0)
reaches("kexec_file_load", "kexec_file_load", 99, 99, 0, 0, 0)
reaches("init_module", "init_module", WILD, 8, WILD)
reaches("finit_module", "finit_module", 99, WILD, 0)
reaches("delete_module", "delete_module", WILD, 0)
# READ_IMPLIES_EXEC and MMAP_PAGE_ZERO undo protections of the memory.
for persona in [0x00400000, 0x00100000]:
    reaches("personality %x" % persona, "personality", persona)
"#;

const IO_URING: &str = r#"
reaches("io_uring_setup", "io_uring_setup", 8, WILD)
reaches("io_uring_enter", "io_uring_enter", 99, 0, 0, 0, 0, 0)
reaches("io_uring_register", "io_uring_register", 99, 0, 0, 0)
"#;

const KEYRINGS: &str = r#"
user, name = ctypes.c_char_p(b"user"), ctypes.c_char_p(b"podbay")
reaches("add_key", "add_key", user, name, name, 1, -3)
reaches("request_key", "request_key", user, name, 0, 0)
for operation in range(10):
    reaches("keyctl %d" % operation, "keyctl", operation, -3, 0, 0, 0)
"#;

const TERMINAL: &str = r#"
import fcntl, termios
attempt("controlling terminal", lambda: os.open("/dev/tty", os.O_RDWR))
for number in range(3):
    attempt("descriptor %d is a terminal" % number, lambda: os.isatty(number))
def typed():
    # A terminal of our own, to see whether the kernel lets anybody type.
    ours, theirs = os.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            fcntl.ioctl(theirs, termios.TIOCSTI, b"x")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
attempt("TIOCSTI", typed)
"#;

const DESCRIPTORS: &str = r#"
for number in range(3, 1024):
    try:
        os.fstat(number)
    except OSError:
        continue
    loot.append("descriptor %d: %s" % (number, os.readlink("/proc/self/fd/%d" % number)))
for number in range(3):
    try:
        if os.path.isdir("/proc/self/fd/%d" % number):
            loot.append("descriptor %d is a directory" % number)
    except OSError:
        pass
"#;

const SETTINGS: &str = r#"
files = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/panic_on_oom", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/sys/power/state"]
files += glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True) + glob.glob("/sys/fs/cgroup/*/*release_agent")
for path in files:
    # Opening for writing is enough; nothing is written.
    attempt(path, lambda: os.open(path, os.O_WRONLY))
"#;

const ROOT: &str = r#"
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"]:
    if int(status[name], 16):
        loot.append(name + " " + status[name])
if status["NoNewPrivs"] != "1":
    loot.append("new privileges")
if status["Seccomp"] != "2":
    loot.append("no filter")
if os.getuid() != 0:
    attempt("setuid 0", lambda: os.setuid(0))
    attempt("setgid 0", lambda: os.setgid(0))
    attempt("setgroups", lambda: os.setgroups([0]))
    for program in ["/usr/bin/su", "/usr/bin/sudo", "/usr/bin/pkexec", "/usr/bin/newgrp"]:
        def elevated():
            output = subprocess.run([program, "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10).stdout
            return output.strip() == b"0"
        attempt(program, elevated)
"#;

const OTHER_KINDS: &str = r#"
if X86:
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(0x40000000 | 39)) > 0:
        loot.append("getpid of x32")
    import mmap
    # mov eax, 20 (getpid of i386); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    child = os.fork()
    if child == 0:
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        os._exit(42 if function() == os.getpid() else 0)
    status = os.waitpid(child, 0)[1]
    if os.waitstatus_to_exitcode(status) == 42:
        loot.append("getpid of i386")
"#;
