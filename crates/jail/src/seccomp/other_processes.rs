//! Limits and priorities of other processes.
//!
//! The kernel lets a process change those of any other process of its user, which podbayd's is, and doesn't ask Landlock: a
//! command could leave podbayd without descriptors or processor time. CPU affinity stays allowed, because threads set their
//! own by number.

use seccompiler::{SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompRule};

use super::{Built, Rules, rule};

const PRIO_USER: u64 = 2;
const IOPRIO_WHO_USER: u64 = 3;

/// Refuses to change them. The process number 0 is the caller's own.
pub(super) fn refuse(rules: &mut Rules) -> Built<()> {
    // Without new limits the call only reads.
    let limits =
        vec![SeccompCondition::new(0, Len::Dword, Op::Ne, 0)?, SeccompCondition::new(2, Len::Qword, Op::Ne, 0)?];
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(limits)?]);
    for call in [libc::SYS_sched_setattr, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler] {
        rules.insert(call, vec![rule(&[(0, Op::Ne, 0)])?]);
    }
    for (call, user) in [(libc::SYS_setpriority, PRIO_USER), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)] {
        rules.insert(call, vec![rule(&[(1, Op::Ne, 0)])?, rule(&[(0, Op::Eq, user)])?]);
    }
    Ok(())
}
