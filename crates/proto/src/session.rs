//! The first request on a connection, and the names that both sides use on every other.

use serde::{Deserialize, Serialize};

use crate::{Operation, RawPath, Subject, Version};

/// The header with the id of a mutating request.
pub const REQUEST_ID: &str = "podbay-request";

/// The header with the token, where podbayd listens on TCP.
pub const TOKEN: &str = "x-podbay-token";

/// The byte that opens a connection for bulk transfers, before HTTP/2's own preface. A connection without it is for
/// everything else. The two differ in their windows: large ones are fast, small ones answer soon.
pub const BULK: u8 = b'B';

/// Bodies larger than this belong on the bulk connection.
pub const BULK_FROM: u64 = 1 << 20;

/// What `podbayd connect` prints before the byte stream begins: this, then a line feed.
pub const GREETING: &str = "podbayd ready";

/// Asks podbayd who it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The client's protocol version.
    pub version: Version,
}

impl Operation for Hello {
    const NAME: &'static str = "hello";
    const MUTATES: bool = false;
    type Output = Welcome;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// Says how long the sandbox may go on, counted from now; what isn't given has no limit. Answered with what holds from then on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lifetime {
    /// Ends it after so many milliseconds, whatever happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Ends it when for so many milliseconds no request was under way and no command ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
}

impl Operation for Lifetime {
    const NAME: &'static str = "lifetime";
    const MUTATES: bool = true;
    type Output = Lifetime;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// Asks how commands are walled off from podbayd, and what is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Protections {}

impl Operation for Protections {
    const NAME: &'static str = "protections";
    const MUTATES: bool = false;
    type Output = Protection;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// How commands, which run as podbayd's user, are walled off from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Protection {
    /// The ABI of Landlock in use; 0 where the kernel has none.
    pub landlock_abi: u32,
    /// Each wall, standing or not.
    pub walls: Vec<Wall>,
}

impl Protection {
    /// What is open to commands.
    pub fn open(&self) -> impl Iterator<Item = &Wall> {
        self.walls.iter().filter(|wall| !wall.stands)
    }
}

/// One wall between commands and podbayd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wall {
    /// What it protects.
    pub what: WallKind,
    /// Whether it is in force.
    pub stands: bool,
    /// How it is enforced, or why it isn't and what to do about it.
    pub detail: String,
}

/// What a wall protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WallKind {
    /// podbayd's and PID 1's memory and files in `/proc`: commands can't trace or inspect them.
    Domain,
    /// podbayd and PID 1: commands can't signal them.
    Signals,
    /// podbayd's directory, with logs and results: commands can't change it.
    Directory,
    /// podbayd's socket: commands can't use it.
    Socket,
    /// The kernel: commands have fewer system calls.
    SystemCalls,
    /// podbayd's own program: commands can't change what runs.
    Program,
    /// One that this version doesn't know.
    #[serde(other)]
    Unknown,
}

impl std::fmt::Display for WallKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Domain => "podbayd's memory",
            Self::Signals => "signals to podbayd and PID 1",
            Self::Directory => "podbayd's directory",
            Self::Socket => "podbayd's socket",
            Self::SystemCalls => "system calls",
            Self::Program => "podbayd's program",
            Self::Unknown => "another part of podbayd",
        })
    }
}

/// Who podbayd is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Welcome {
    /// Its protocol version.
    pub version: Version,
    /// Its build.
    pub build: String,
    /// This run of podbayd: another value means that it was restarted and remembers no requests.
    pub instance: String,
    /// The working directory of commands and the start of relative paths.
    pub workdir: RawPath,
    /// Where it keeps its own files.
    pub state: RawPath,
    /// For how long nothing has been under way, in milliseconds; asking this doesn't count.
    #[serde(default)]
    pub idle_ms: u64,
    /// How many commands have something alive.
    #[serde(default)]
    pub running: u32,
}
