import ctypes, errno, glob, json, os, platform, signal, socket, struct, subprocess, sys, time

HOST = json.loads(sys.argv[1])
loot = []
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
# By name: the number on x86_64, and on 64-bit ARM.
CALLS = {
    "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fchmodat2": (452, 452),
    "openat2": (437, 437), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "fanotify_init": (300, 262), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "clone": (56, 220), "clone3": (435, 435), "personality": (135, 92),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "setuid": (105, 146), "setpriority": (141, 140), "sched_setscheduler": (144, 119), "ioprio_set": (251, 30), "sched_setattr": (314, 274),
}
# What the kernel answers when it refuses.
REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS}
# An address that is never mapped: a call that gets past all checks answers EFAULT.
WILD = ctypes.c_void_p(8)


def attempt(what, action):
    """Records what worked. An action that returns False didn't."""
    try:
        worked = action() is not False
    except (OSError, StopIteration):
        worked = False
    if worked:
        loot.append(what)


def call(name, *arguments):
    ctypes.set_errno(0)
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(CALLS[name][0 if X86 else 1]), *plain)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def reaches(what, name, *arguments):
    """Records calls that reach the kernel's code, whatever it then makes of the arguments."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno in REFUSED:
            return
    loot.append(what)


def parent(pid):
    return int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and parent(int(entry)) == pid:
                found.append(int(entry))
        except OSError:
            pass
    return found


def is_running(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def family():
    """A command's shim, the zygote that forked it, and podbayd."""
    shim = os.getppid()
    zygote = parent(shim)
    return shim, zygote, parent(zygote)


def connect(family, kind, address, protocol=0):
    with socket.socket(family, kind, protocol) as s:
        s.settimeout(1)
        s.connect(address)
