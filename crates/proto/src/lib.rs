//! What goes over the wire between podbayd and its clients.
//!
//! Each operation is defined once, here: its request, its result, its errors and what it touches. The daemon serves these types,
//! the client sends them, and every front end is compared with [`OPERATIONS`]. This crate does no I/O.
//!
//! A message is a *head* in JSON followed by a *payload* of raw bytes, as [`message`] describes. File contents and command
//! output travel in the payload, never inside JSON.

#[cfg(feature = "http")]
pub mod body;
pub mod error;
pub mod exchange;
pub mod exec;
pub mod files;
pub mod layout;
pub mod message;
pub mod operation;
pub mod path;
pub mod record;
#[cfg(feature = "schema")]
pub mod schema;
pub mod session;
#[cfg(feature = "token")]
pub mod token;
pub mod utf8;

pub use error::{Error, ErrorCode, Result};
pub use operation::{Group, OPERATIONS, Operation, Subject};
pub use path::RawPath;

/// The protocol's version. Sides with different major versions refuse each other; a higher minor version only adds.
pub const VERSION: Version = Version { major: 1, minor: 0 };

/// A protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Version {
    /// Incremented when old and new can't talk to each other.
    pub major: u32,
    /// Incremented when something is added.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
