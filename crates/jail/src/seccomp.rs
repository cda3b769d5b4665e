//! The seccomp filter.
//!
//! It is a list of denied calls, not of allowed ones, because a sandbox must run whatever an agent installs. Two rules make that
//! safe: a call of another architecture kills the process, and calls that are newer than the list don't exist.
//!
//! `ptrace` and similar calls (`process_vm_readv`) are allowed: debugging is normal work. The pid namespace limits which
//! processes they reach, podbayd isn't dumpable and so can't be traced, and since Linux 4.8 a tracer can't get its tracee around
//! the filter.

mod denied;
mod other_processes;
mod past_landlock;
mod set_id;
mod sockets;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::{Deserialize, Serialize};

use self::denied::DENIED;
pub(crate) use self::past_landlock::LandlockProfile;
use self::sockets::{AUDITED, NETWORK, UNIX};
use crate::error::{FailedStep, Step};

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// The newest call that was reviewed: `file_setattr` of Linux 6.17. Later ones fail with ENOSYS, as on an older kernel. New
/// calls have the same number on all architectures.
const NEWEST: u32 = 469;

/// What confines the process besides the filter, which decides what the filter must refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Namespaces: UNIX, IPv4 and IPv6 sockets and route lookups are allowed.
    Namespaces,
    /// Landlock alone: nothing may reach the host past it.
    Landlock(LandlockProfile),
    /// A container that isn't Podbay's: set-id programs are allowed, because packages install them.
    Container,
}

/// Compiles the filter for this architecture.
pub(crate) fn compile(profile: Profile) -> Result<BpfProgram, FailedStep> {
    let make = || -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
        clone(&mut rules)?;
        terminals(&mut rules)?;
        personality(&mut rules)?;
        if profile != Profile::Container {
            set_id::refuse(&mut rules)?;
        }
        match profile {
            Profile::Namespaces | Profile::Container => {
                let [inet, inet6, netlink] = &NETWORK;
                let netlink = if profile == Profile::Container { &AUDITED } else { netlink };
                sockets::allow(&mut rules, libc::SYS_socket, &[&UNIX, inet, inet6, netlink])?;
                sockets::allow(&mut rules, libc::SYS_socketpair, &[&UNIX])?;
                if profile == Profile::Container {
                    other_processes::refuse(&mut rules)?;
                }
            }
            Profile::Landlock(allowed) => past_landlock::refuse(&mut rules, allowed)?,
        }
        Ok(prelude(profile).into_iter().chain(compile_rules(rules)?).collect())
    };
    make().map_err(std::io::Error::other).step(|| "compile the system call filter".into())
}

/// Fails calls that match a rule with EPERM, and kills other architectures.
fn compile_rules(rules: Rules) -> Built<BpfProgram> {
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), ARCH)?.try_into()
}

/// Compiles the filter of commands in namespaces, beyond podbayd's own.
fn compile_local_commands() -> Result<BpfProgram, FailedStep> {
    let make = || -> Built<BpfProgram> {
        let mut rules = Rules::new();
        other_processes::refuse(&mut rules)?;
        let missing = answers(&[(libc::SYS_openat2, libc::ENOSYS)]);
        Ok(missing.into_iter().chain(compile_rules(rules)?).collect())
    };
    make().map_err(std::io::Error::other).step(|| "compile the commands' system call filter".into())
}

/// Installs a filter for this process and everything that it starts.
pub(crate) fn install(program: &BpfProgram) -> Result<(), FailedStep> {
    seccompiler::apply_filter(program).map_err(std::io::Error::other).step(|| "install the system call filter".into())
}

/// The filter of commands, beyond podbayd's own. In a jail without namespaces, [`CommandConfinement`](crate::CommandConfinement)
/// includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandFilter {
    /// In namespaces on this machine: no `openat2`, which could make files with set-id bits, and no changes to the limits and
    /// priorities of other processes, such as podbayd.
    Local,
    /// In a container: none of the calls that are denied in a jail.
    Container,
    /// Allows everything. It still marks commands, because the kernel tells how many filters a process has.
    Mark,
}

impl CommandFilter {
    /// Installs the filter for this process and everything that it starts.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn install(self) -> Result<(), FailedStep> {
        match self {
            Self::Local => install(&compile_local_commands()?),
            Self::Container => install(&compile(Profile::Container)?),
            Self::Mark => install(&vec![operation(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)]),
        }
    }
}

/// The part before the compiled rules, with error numbers of its own. These calls don't exist: x32 calls (x86_64 calls with a
/// high bit set), calls newer than the list, and `clone3`, whose flags are behind a pointer (libc falls back to `clone`). The
/// compiled rules begin by killing other architectures.
fn prelude(profile: Profile) -> BpfProgram {
    let mut calls = vec![(libc::SYS_clone3, libc::ENOSYS)];
    if matches!(profile, Profile::Landlock(LandlockProfile { unix: false, .. })) {
        calls.push((libc::SYS_openat2, libc::ENOSYS));
    }
    if profile != Profile::Container {
        calls.extend(set_id::ATTRIBUTES.map(|call| (call, libc::EOPNOTSUPP)));
    }
    let mut program = answers(&calls);
    program.push(operation(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, NEWEST));
    program.push(answer(libc::ENOSYS));
    program
}

/// Fails some calls with an error, whatever their arguments, and continues with the others. The call's number stays loaded.
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

/// A rule that applies when all conditions hold. Each compares the low half of an argument, which is all that the kernel uses.
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

/// Faking input on a terminal.
fn terminals(rules: &mut Rules) -> Built<()> {
    // The same on both architectures, but with different types in each libc.
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    let calls = [TIOCSTI, TIOCLINUX];
    let denied = calls.iter().map(|call| rule(&[(1, Op::Eq, *call)])).collect::<Built<Vec<_>>>()?;
    rules.insert(libc::SYS_ioctl, denied);
    Ok(())
}

/// Allows the default, a query, no address randomisation (for debuggers) and a 32-bit `uname`; refuses the rest.
fn personality(rules: &mut Rules) -> Built<()> {
    let usual = [0, 0xffff_ffff, 0x0004_0000, 0x0008];
    rules.insert(libc::SYS_personality, vec![rule(&usual.map(|persona| (0, Op::Ne, persona)))?]);
    Ok(())
}
