//! What podbayd reports about how commands are kept from interfering with it.

use podbay_proto::session::{Protection, ProtectionKind, ProtectionReport};

use super::Daemon;
use crate::command_restrictions::EnforcedRestrictions;
use crate::sealed;

/// What confines a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxIsolation {
    /// Namespaces of ours, in which podbayd is the first process.
    Namespaces,
    /// Landlock and seccomp alone.
    Landlock,
    /// A container that Podbay didn't make.
    Container,
}

impl Daemon {
    /// How podbayd is protected from commands.
    pub async fn protection(&self) -> ProtectionReport {
        match self.execs.enforced_restrictions().await {
            Ok(enforced) => self.report_from(&enforced),
            Err(error) => {
                let lost =
                    Err(format!("the process that starts commands is gone: {error}; run a command to replace it"));
                ProtectionReport { landlock_abi: 0, protections: vec![protection(ProtectionKind::Domain, lost, "")] }
            }
        }
    }

    fn report_from(&self, enforced: &EnforcedRestrictions) -> ProtectionReport {
        let EnforcedRestrictions { domain, filter } = enforced;
        let local = self.isolation != SandboxIsolation::Container;
        let signals = match self.isolation {
            SandboxIsolation::Namespaces => {
                protection(ProtectionKind::Signals, Ok(()), "PID 1 ignores signals from inside its namespace")
            }
            _ => protection(
                ProtectionKind::Signals,
                domain.signals.clone(),
                "Landlock keeps signals inside the commands' domain",
            ),
        };
        let directory = match self.isolation {
            SandboxIsolation::Landlock => {
                protection(ProtectionKind::Directory, Ok(()), "not among the directories that commands can write to")
            }
            _ => protection(ProtectionKind::Directory, domain.directory.clone(), "read-only for commands, by Landlock"),
        };
        let socket = match self.peers.tells_all() {
            true => protection(ProtectionKind::Socket, Ok(()), "podbayd closes connections from commands"),
            false => {
                let why = "podbayd closes connections from its own commands, but can't recognise commands that an \
                           earlier podbayd started: this kernel doesn't report the number of seccomp filters";
                protection(ProtectionKind::Socket, Err(why.into()), "")
            }
        };
        let calls = match local {
            true => protection(ProtectionKind::SystemCalls, Ok(()), "the sandbox's seccomp filter"),
            false => {
                protection(ProtectionKind::SystemCalls, filter.clone(), "commands have a seccomp filter of their own")
            }
        };
        let program = match (local, sealed::is_running()) {
            (true, _) => protection(
                ProtectionKind::Program,
                Ok(()),
                "out of reach of commands, and restarted only from a sealed copy in memory",
            ),
            (_, true) => protection(ProtectionKind::Program, Ok(()), "runs from a sealed copy in memory"),
            (_, false) => {
                let why = "podbayd runs from its file: this container can't run programs from memory (vm.memfd_noexec, or \
                           its seccomp profile)";
                protection(ProtectionKind::Program, Err(why.into()), "")
            }
        };
        let memory = match (self.isolation, &domain.domain) {
            // There is no other process to protect than podbayd's own, and none of them can be traced.
            (SandboxIsolation::Namespaces, Err(_)) => {
                protection(ProtectionKind::Domain, Ok(()), "podbayd's processes aren't dumpable")
            }
            (_, domain) => {
                protection(ProtectionKind::Domain, domain.clone(), "commands run in a Landlock domain of their own")
            }
        };
        ProtectionReport {
            landlock_abi: u32::try_from(domain.abi).unwrap_or(0),
            protections: vec![memory, signals, directory, socket, calls, program],
        }
    }
}

fn protection(what: ProtectionKind, enforced: Result<(), String>, how: &str) -> Protection {
    match enforced {
        Ok(()) => Protection { what, in_force: true, detail: how.into() },
        Err(why) => Protection { what, in_force: false, detail: why },
    }
}
