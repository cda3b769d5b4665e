//! What the creator of a local sandbox and its supervisor agree on: files in the sandbox's directory, and a report.

use serde::{Deserialize, Serialize};

use crate::{InForce, Jail};

/// The file that says what to make.
pub const SPEC: &str = "spec.json";

/// The socket of the sandbox's podbayd, which the creator has bound.
pub const SOCKET: &str = "podbayd.sock";

/// The supervisor's own socket. Whoever connects asks for the end of the sandbox; the connection closes when it is over.
pub const CONTROL: &str = "supervisor.sock";

/// A local sandbox to be made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What it may see and use.
    pub jail: Jail,
    /// Seconds until it ends.
    #[serde(default)]
    pub ttl: Option<u64>,
    /// Seconds without use until it ends.
    #[serde(default)]
    pub idle_ttl: Option<u64>,
    /// It ends with its creator.
    #[serde(default)]
    pub leashed: bool,
}

/// What the supervisor says on the leash: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The sandbox is there.
    Ready {
        /// The supervisor's process id.
        supervisor: u32,
        /// Which limits hold, and by what.
        limits: Vec<InForce>,
    },
    /// It couldn't be made.
    Failed {
        /// Why, and what to do.
        message: String,
    },
}
