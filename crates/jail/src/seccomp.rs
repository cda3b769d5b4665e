//! The seccomp filter: system calls that nothing inside needs, and that kernels were broken by.
//!
//! A list of what is denied, not of what is allowed: a sandbox must run whatever an agent installs.
//! What keeps that sound are the fixed parts around it: calls of other architectures kill, calls
//! newer than this list don't exist.
//!
//! `ptrace` and its like (`process_vm_readv`) are allowed: debuggers and tracers are normal work, the pid namespace bounds whom it can
//! reach, podbayd is not dumpable and so out of its reach, and since Linux 4.8 a tracer can't carry
//! its tracee past the filter.

mod set_id;
mod sockets;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::{Deserialize, Serialize};

use self::sockets::{AUDITED, Family, NETWORK, UNIX, UNIX_CONNECTED, UNIX_STREAMS};
use crate::error::{FailedStep, Step};

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// The newest call that was looked at: `file_setattr` of Linux 6.17. Later ones answer ENOSYS, as on
/// an older kernel. The numbers are the same on all architectures.
const NEWEST: u32 = 469;

/// Denied whatever the arguments.
const DENIED: &[libc::c_long] = &[
    // mounts and roots
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    // namespaces
    libc::SYS_unshare,
    libc::SYS_setns,
    // keys
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // large and often broken subsystems
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_vmsplice,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // the machine
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // files by other names than paths
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // other processes
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// libc has no name for it on every target.
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: libc::c_long = 320;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: libc::c_long = 294;
/// Linux 6.15; libc has no name for it yet.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Profile which walls the filter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Namespaces: UNIX, IPv4 and IPv6 sockets and route lookups can be made.
    Namespaces,
    /// Landlock alone: nothing that reaches the host past it.
    Landlock(LandlockProfile),
    /// Somebody else's container: packages with set-id programs can be installed there.
    Container,
}

/// What may be done beside Landlock alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LandlockProfile {
    /// UNIX stream sockets can be made: podbayd and its shims speak by them. Landlock doesn't keep anybody from
    /// connecting to the host's, so commands can't have them.
    pub(crate) unix: bool,
    /// IPv4 and IPv6 sockets and route lookups can be made.
    pub(crate) network: bool,
    /// Modes and times can be changed by path: by one of ours, by a user who has nothing on this host but the sandbox,
    /// or because something else looks at it.
    pub(crate) metadata: bool,
}

/// Compiles the filter for this architecture.
pub(crate) fn compile(beside: Profile) -> Result<BpfProgram, FailedStep> {
    let make = || -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
        clone(&mut rules)?;
        terminals(&mut rules)?;
        personality(&mut rules)?;
        if beside != Profile::Container {
            set_id::refuse(&mut rules)?;
        }
        match beside {
            Profile::Namespaces | Profile::Container => {
                let [inet, inet6, netlink] = &NETWORK;
                let netlink = if beside == Profile::Container { &AUDITED } else { netlink };
                sockets::allow(&mut rules, libc::SYS_socket, &[&UNIX, inet, inet6, netlink])?;
                sockets::allow(&mut rules, libc::SYS_socketpair, &[&UNIX])?;
            }
            Profile::Landlock(alone) => past_landlock(&mut rules, alone)?,
        }
        let denied: BpfProgram =
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), ARCH)?
                .try_into()?;
        Ok(prelude(beside).into_iter().chain(denied).collect())
    };
    make().map_err(std::io::Error::other).step(|| "compile the system call filter".into())
}

/// Installs it for this process and all that it starts.
pub(crate) fn install(program: &BpfProgram) -> Result<(), FailedStep> {
    seccompiler::apply_filter(program).map_err(std::io::Error::other).step(|| "install the system call filter".into())
}

/// What commands can't call although podbayd can. Where there is Landlock alone, a [`CommandConfinement`](crate::CommandConfinement) has this in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandFilter {
    /// In namespaces on this machine: no `openat2`, by which files with set-id bits could be made.
    Local,
    /// In somebody else's container: none of the calls that a jail doesn't have.
    Container,
    /// Everything podbayd can. It marks commands all the same: the kernel tells how many filters a process has.
    Mark,
}

impl CommandFilter {
    /// Installs it for this process and all that it starts.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn install(self) -> Result<(), FailedStep> {
        let mut program = match self {
            Self::Local => answers(&[(libc::SYS_openat2, libc::ENOSYS)]),
            Self::Container => return install(&compile(Profile::Container)?),
            Self::Mark => Vec::new(),
        };
        program.push(operation(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
        install(&program)
    }
}

/// Before the compiled rules, with answers of their own: x32 calls (which carry a high bit under x86_64's name), calls newer
/// than this list, and `clone3`, whose flags are behind a pointer (libc falls back to `clone`), don't exist. The rules
/// themselves begin by killing other architectures.
fn prelude(beside: Profile) -> BpfProgram {
    let mut calls = vec![(libc::SYS_clone3, libc::ENOSYS)];
    if matches!(beside, Profile::Landlock(LandlockProfile { unix: false, .. })) {
        calls.push((libc::SYS_openat2, libc::ENOSYS));
    }
    if beside != Profile::Container {
        calls.extend(set_id::ATTRIBUTES.map(|call| (call, libc::EOPNOTSUPP)));
    }
    let mut program = answers(&calls);
    program.push(operation(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, NEWEST));
    program.push(answer(libc::ENOSYS));
    program
}

/// Answers some calls with an error, whatever their arguments, and goes on with the others. The call's number stays loaded.
fn answers(calls: &[(libc::c_long, i32)]) -> BpfProgram {
    const NUMBER_OFFSET: u32 = 0;
    let mut program = vec![operation(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER_OFFSET)];
    for (call, errno) in calls {
        program.push(operation(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        program.push(answer(*errno));
    }
    program
}

fn answer(errno: i32) -> sock_filter {
    operation(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
}

fn operation(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Built<T> = Result<T, seccompiler::BackendError>;

/// All conditions hold; each looks at the low half of an argument, which is all that the kernel takes.
fn rule(conditions: &[(u8, Op, u64)]) -> Built<SeccompRule> {
    let conditions = conditions
        .iter()
        .map(|(argument, op, value)| SeccompCondition::new(*argument, Len::Dword, op.clone(), *value))
        .collect::<Built<Vec<_>>>()?;
    SeccompRule::new(conditions)
}

fn any_bit(argument: u8, bits: &[u64]) -> Built<Vec<SeccompRule>> {
    bits.iter().map(|bit| rule(&[(argument, Op::MaskedEq(*bit), *bit)])).collect()
}

fn clone(rules: &mut Rules) -> Built<()> {
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    rules.insert(libc::SYS_clone, any_bit(0, &namespaces.map(|flag| flag as u64))?);
    Ok(())
}

/// Typing into somebody's terminal.
fn terminals(rules: &mut Rules) -> Built<()> {
    // The same on both architectures; each libc gives them another type.
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    let calls = [TIOCSTI, TIOCLINUX];
    let denied = calls.iter().map(|call| rule(&[(1, Op::Eq, *call)])).collect::<Built<Vec<_>>>()?;
    rules.insert(libc::SYS_ioctl, denied);
    Ok(())
}

/// Linux as it is, asking, without address randomisation (debuggers), 32-bit answers of uname.
fn personality(rules: &mut Rules) -> Built<()> {
    let usual = [0, 0xffff_ffff, 0x0004_0000, 0x0008];
    rules.insert(libc::SYS_personality, vec![rule(&usual.map(|persona| (0, Op::Ne, persona)))?]);
    Ok(())
}

/// What Landlock doesn't cover: removing extended attributes, the host's System V and POSIX objects, the priorities of
/// other processes.
const PAST_LANDLOCK: &[libc::c_long] = &[
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    466, // removexattrat
    469, // file_setattr
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

/// Modes by path. `fchmod` works on what could be opened.
const METADATA: &[libc::c_long] = &[
    libc::SYS_fchmodat,
    452, // fchmodat2
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// Owners by path, and times by calls that no library makes any more.
const OWNERS: &[libc::c_long] = &[
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// What nobody needs who can't make a socket.
const OF_SOCKETS: &[libc::c_long] =
    &[libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

fn past_landlock(rules: &mut Rules, alone: LandlockProfile) -> Built<()> {
    rules.extend(PAST_LANDLOCK.iter().map(|call| (*call, Vec::new())));
    rules.extend(OWNERS.iter().map(|call| (*call, Vec::new())));
    if !alone.metadata {
        rules.extend(METADATA.iter().map(|call| (*call, Vec::new())));
        // With a path; without one it works on a descriptor.
        let path = SeccompCondition::new(1, Len::Qword, Op::Ne, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![path])?]);
    }
    // Of other processes; 0 is oneself.
    let others = [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ];
    for call in others {
        rules.insert(call, vec![rule(&[(0, Op::Ne, 0)])?]);
    }
    let mut families: Vec<&Family> = Vec::new();
    if alone.unix {
        families.push(&UNIX_STREAMS);
    }
    if alone.network {
        families.extend(&NETWORK);
    }
    if families.is_empty() {
        rules.extend(OF_SOCKETS.iter().map(|call| (*call, Vec::new())));
    }
    sockets::allow(rules, libc::SYS_socket, &families)?;
    // Interpreters wake their event loops by a pair.
    sockets::allow(rules, libc::SYS_socketpair, &[&UNIX_CONNECTED])?;
    Ok(())
}
