//! Results about the sandbox itself.

use podbay::{Protection, WallKind};

use super::{from_milliseconds, result_class};
use crate::conversions::SandboxPath;

fn wall_kind(kind: WallKind) -> &'static str {
    match kind {
        WallKind::Domain => "domain",
        WallKind::Signals => "signals",
        WallKind::Directory => "directory",
        WallKind::Socket => "socket",
        WallKind::SystemCalls => "system_calls",
        WallKind::Program => "program",
        WallKind::Unknown => "unknown",
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
    Protections(Protection) as protection, repr(landlock_abi, walls) {
        /// The Landlock ABI in use; 0 if the kernel has none.
        landlock_abi: u32 = protection.landlock_abi,
        /// Each protection, in force or not.
        walls: Vec<Wall> = protection.walls.iter().cloned().map(Wall).collect(),
    }

    /// One protection of podbayd against commands.
    Wall(podbay::Wall) as wall, repr(kind, stands, detail) {
        /// What it protects: `domain` (podbayd's memory), `signals`, `directory`, `socket`, `system_calls` or `program`.
        kind: &'static str = wall_kind(wall.what),
        /// Whether it is in force.
        stands: bool = wall.stands,
        /// How it is enforced, or why it isn't and what to do about that.
        detail: &str = &wall.detail,
    }
}
