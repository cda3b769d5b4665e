//! Results about the sandbox itself.

use podbay::ProtectionKind;

use super::{from_milliseconds, result_class};
use crate::conversions::SandboxPath;

fn protection_kind(kind: ProtectionKind) -> &'static str {
    match kind {
        ProtectionKind::Domain => "domain",
        ProtectionKind::Signals => "signals",
        ProtectionKind::Directory => "directory",
        ProtectionKind::Socket => "socket",
        ProtectionKind::SystemCalls => "system_calls",
        ProtectionKind::Program => "program",
        ProtectionKind::Unknown => "unknown",
    }
}

result_class! {
    /// The podbayd of a sandbox.
    Welcome(podbay::Welcome) as welcome, repr(version, build, workdir) {
        /// Its protocol version.
        version: String = welcome.version.to_string(),
        /// Its build.
        build: &str = &welcome.build,
        /// Identifies this run of podbayd; another value means that it was restarted.
        instance: &str = &welcome.instance,
        /// The working directory of commands.
        workdir: SandboxPath = (&welcome.workdir).into(),
        /// Where podbayd keeps its own files.
        state: SandboxPath = (&welcome.state).into(),
        /// How long nothing has been running, in seconds.
        idle: f64 = from_milliseconds(welcome.idle_ms),
        /// How many commands still have running processes.
        running: u32 = welcome.running,
    }

    /// How commands, which run as podbayd's user, are kept from interfering with podbayd.
    ProtectionReport(podbay::ProtectionReport) as report, repr(landlock_abi, protections) {
        /// The Landlock ABI in use; 0 if the kernel has none.
        landlock_abi: u32 = report.landlock_abi,
        /// Each protection, in force or not.
        protections: Vec<Protection> = report.protections.iter().cloned().map(Protection).collect(),
    }

    /// One protection of podbayd against commands.
    Protection(podbay::Protection) as protection, repr(kind, in_force, detail) {
        /// What it protects: `domain` (podbayd's memory), `signals`, `directory`, `socket`, `system_calls` or `program`.
        kind: &'static str = protection_kind(protection.what),
        /// Whether it is in force.
        in_force: bool = protection.in_force,
        /// How it is enforced, or why it isn't and what to do about that.
        detail: &str = &protection.detail,
    }
}
