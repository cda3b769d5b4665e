//! System calls that reach the host past Landlock, in a jail without namespaces.

use seccompiler::{SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompRule};

use super::sockets::{self, Family, NETWORK, UNIX_CONNECTED, UNIX_STREAMS};
use super::{Built, Rules, rule};

/// What a process without namespaces may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LandlockProfile {
    /// UNIX stream sockets, over which podbayd and its shims talk. Landlock doesn't restrict connections to the host's sockets,
    /// so commands can't have any.
    pub(crate) unix: bool,
    /// IPv4 and IPv6 sockets, and route lookups.
    pub(crate) network: bool,
    /// Changes of modes and times by path: for podbayd, for a user who owns nothing else on this host, and where a
    /// [`SeccompListener`](crate::SeccompListener) decides.
    pub(crate) metadata: bool,
}

/// Extended attributes, the host's System V and POSIX objects, priorities and memory of other processes.
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

/// Modes by path. `fchmod` needs an open file, which Landlock has checked.
const METADATA: &[libc::c_long] = &[
    libc::SYS_fchmodat,
    452, // fchmodat2
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// Owners by path, and times by obsolete calls.
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

/// Calls on sockets, for jails in which none can be made.
const OF_SOCKETS: &[libc::c_long] =
    &[libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// Refuses all of it, except what the profile allows.
pub(super) fn refuse(rules: &mut Rules, allowed: LandlockProfile) -> Built<()> {
    rules.extend(PAST_LANDLOCK.iter().map(|call| (*call, Vec::new())));
    rules.extend(OWNERS.iter().map(|call| (*call, Vec::new())));
    if !allowed.metadata {
        rules.extend(METADATA.iter().map(|call| (*call, Vec::new())));
        // With a path. Without one, the call is about a descriptor.
        let path = SeccompCondition::new(1, Len::Qword, Op::Ne, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![path])?]);
    }
    // On other processes: 0 is the caller.
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
    if allowed.unix {
        families.push(&UNIX_STREAMS);
    }
    if allowed.network {
        families.extend(&NETWORK);
    }
    if families.is_empty() {
        rules.extend(OF_SOCKETS.iter().map(|call| (*call, Vec::new())));
    }
    sockets::allow(rules, libc::SYS_socket, &families)?;
    // Interpreters wake their event loops with a socket pair.
    sockets::allow(rules, libc::SYS_socketpair, &[&UNIX_CONNECTED])?;
    Ok(())
}
