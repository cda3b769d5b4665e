//! The first request on a connection, and the headers and constants that both sides share.

use serde::{Deserialize, Serialize};

use crate::{Operation, RawPath, Subject, Version};

/// The header with the id of a mutating request.
pub const REQUEST_ID: &str = "podbay-request";

/// The header with the token, where podbayd listens on TCP.
pub const TOKEN: &str = "x-podbay-token";

/// Over TCP, a connection begins with an HTTP/1.1 request for this path with the header [`TOKEN`], which asks for an upgrade
/// to [`UPGRADE`]. Nothing else is understood before a token was accepted.
pub const TCP_PATH: &str = "/podbay/v1";

/// The protocol that a TCP connection is upgraded to: what any other byte stream to podbayd carries from its beginning.
pub const UPGRADE: &str = "podbay";

/// The port that podbayd listens on unless it is given another.
pub const PORT: u16 = 7777;

/// The byte that opens a connection for bulk transfers, before HTTP/2's own preface. A connection without it is for
/// everything else. The two differ in their windows: large ones give throughput, small ones low latency.
pub const BULK: u8 = b'B';

/// Bodies larger than this belong on the bulk connection.
pub const BULK_FROM: u64 = 1 << 20;

/// What `podbayd connect` prints before the byte stream begins, followed by a line feed.
pub const GREETING: &str = "podbayd ready";

/// Asks podbayd for its version and state.
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

    fn answer_within(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_secs(30))
    }

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// Sets how long the sandbox may live, counted from now; without a value there is no limit. The answer is what holds from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lifetime {
    /// Ends the sandbox after this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Ends the sandbox when it had no request and no running command for this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
}

impl Operation for Lifetime {
    const NAME: &'static str = "lifetime";
    // Users give lifetimes when they create a sandbox; a pod from a warm pool exists before that.
    const FOR_USERS: bool = false;
    const MUTATES: bool = true;
    type Output = Lifetime;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// Asks how podbayd is protected from commands, and what isn't protected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Protections {}

impl Operation for Protections {
    const NAME: &'static str = "protections";
    const MUTATES: bool = false;
    type Output = ProtectionReport;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
    }
}

/// How podbayd is protected from commands, which run as its user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProtectionReport {
    /// The Landlock ABI in use; 0 if the kernel has none.
    pub landlock_abi: u32,
    /// Each protection, in force or not. On the wire: `walls`.
    #[serde(rename = "walls")]
    pub protections: Vec<Protection>,
}

impl ProtectionReport {
    /// What isn't protected from commands.
    pub fn missing(&self) -> impl Iterator<Item = &Protection> {
        self.protections.iter().filter(|protection| !protection.in_force)
    }
}

/// One protection of podbayd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Protection {
    /// What it protects.
    pub what: ProtectionKind,
    /// Whether it is in force. On the wire: `stands`.
    #[serde(rename = "stands")]
    pub in_force: bool,
    /// How it is enforced, or why it isn't and what to do about it.
    pub detail: String,
}

/// What is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProtectionKind {
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
    /// Something that this version doesn't know.
    #[serde(other)]
    Unknown,
}

impl std::fmt::Display for ProtectionKind {
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

/// The version and state of podbayd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Welcome {
    /// Its protocol version.
    pub version: Version,
    /// Its version as a program.
    pub build: String,
    /// This process of podbayd: another value means that it was restarted and remembers no requests.
    pub instance: String,
    /// The working directory of commands, to which relative paths are relative.
    pub workdir: RawPath,
    /// Where it keeps its own files.
    pub state: RawPath,
    /// For how many milliseconds it has been idle; this request doesn't count.
    #[serde(default)]
    pub idle_ms: u64,
    /// How many commands have live processes.
    #[serde(default)]
    pub running: u32,
}
