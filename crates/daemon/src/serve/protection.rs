//! What podbayd reports about the walls between it and the commands.

use podbay_proto::session::{Protection, Wall, WallKind};

use super::Daemon;
use crate::sealed;
use crate::walls::Standing;

/// What confines a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces of ours, in which podbayd is the first process.
    Namespaces,
    /// Landlock and seccomp alone.
    Landlock,
    /// A container that Podbay didn't make.
    Container,
}

impl Daemon {
    /// How commands are walled off.
    pub async fn protection(&self) -> Protection {
        match self.execs.standing().await {
            Ok(standing) => self.told(&standing),
            Err(error) => {
                let lost =
                    Err(format!("the process that starts commands is gone: {error}; run a command to replace it"));
                Protection { landlock_abi: 0, walls: vec![wall(WallKind::Domain, lost, "")] }
            }
        }
    }

    fn told(&self, standing: &Standing) -> Protection {
        let Standing { domain, filter } = standing;
        let local = self.isolation != Isolation::Container;
        let signals = match self.isolation {
            Isolation::Namespaces => wall(WallKind::Signals, Ok(()), "PID 1 ignores signals from inside its namespace"),
            _ => wall(WallKind::Signals, domain.signals.clone(), "Landlock keeps signals inside the commands' domain"),
        };
        let directory = match self.isolation {
            Isolation::Landlock => wall(WallKind::Directory, Ok(()), "not among the places that commands can write"),
            _ => wall(WallKind::Directory, domain.directory.clone(), "read-only for commands, by Landlock"),
        };
        let socket = match self.peers.tells_all() {
            true => wall(WallKind::Socket, Ok(()), "podbayd hangs up on commands"),
            false => {
                let why = "podbayd hangs up on its own commands, but this kernel doesn't count seccomp filters, by which \
                           it would know those of a podbayd that ran before it";
                wall(WallKind::Socket, Err(why.into()), "")
            }
        };
        let calls = match local {
            true => wall(WallKind::SystemCalls, Ok(()), "the sandbox's seccomp filter"),
            false => wall(WallKind::SystemCalls, filter.clone(), "commands have a seccomp filter of their own"),
        };
        let program = match (local, sealed::is_running()) {
            (true, _) => {
                wall(WallKind::Program, Ok(()), "out of reach, and run again only from a sealed copy in memory")
            }
            (_, true) => wall(WallKind::Program, Ok(()), "runs from a sealed copy in memory"),
            (_, false) => {
                let why = "podbayd runs from its file: this container can't run programs from memory (vm.memfd_noexec, or \
                           its seccomp profile)";
                wall(WallKind::Program, Err(why.into()), "")
            }
        };
        let memory = match (self.isolation, &domain.domain) {
            // There is no other process to protect than podbayd's own, and none of them can be traced.
            (Isolation::Namespaces, Err(_)) => wall(WallKind::Domain, Ok(()), "podbayd's processes aren't dumpable"),
            (_, domain) => wall(WallKind::Domain, domain.clone(), "commands run in a Landlock domain of their own"),
        };
        Protection {
            landlock_abi: u32::try_from(domain.abi).unwrap_or(0),
            walls: vec![memory, signals, directory, socket, calls, program],
        }
    }
}

fn wall(what: WallKind, stands: Result<(), String>, how: &str) -> Wall {
    match stands {
        Ok(()) => Wall { what, stands: true, detail: how.into() },
        Err(why) => Wall { what, stands: false, detail: why },
    }
}
