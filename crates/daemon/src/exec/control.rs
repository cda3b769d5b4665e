//! What podbayd and a command's shim say to each other, on a unix socket in the command's directory.
//!
//! podbayd sends [`Request`]s, each as the head of a [message](podbay_proto::message) (input data follows its request).
//! The shim answers `Attach` and `Wait` with [records](podbay_proto::record) and the others with one head.

use podbay_proto::exec::{Command, ExecId, Target};
use serde::{Deserialize, Serialize};

/// The socket's name in the command's directory.
pub const SOCKET: &str = "ctl";

/// The file that says how it ended. Where it is missing and nobody holds the directory's lock, the outcome is unknown.
pub const ENDED: &str = "ended";

/// What that file is called until then. It says what is being run, and has the space for the rest: one file for both, because
/// making and removing files is most of what a short command costs.
pub const BEGUN: &str = ".ended";

/// The script of a command that is too long for an argument.
pub const SCRIPT: &str = "script";

/// The most input that one request brings.
pub const MAX_INPUT: usize = 1 << 20;

/// A request to a shim.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run this. The first request on the first connection.
    Start(Box<Start>),
    /// Send the output from an offset on, then the end.
    Attach {
        /// The first byte wanted.
        offset: u64,
    },
    /// Send the end only.
    Wait,
    /// Write to standard input; that many bytes follow.
    Input {
        /// How many bytes were written before.
        offset: u64,
        /// Close it behind them.
        close: bool,
        /// How many follow.
        length: usize,
    },
    /// Send a signal.
    Signal {
        /// Its number.
        signal: i32,
        /// Whom it is for.
        target: Target,
    },
    /// Tell about the command.
    Status,
}

/// What to run, with what only podbayd knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The command's name.
    pub id: ExecId,
    /// The command; its working directory is filled in.
    pub command: Command,
    /// The log's path as the sandbox sees it.
    pub log: podbay_proto::RawPath,
}
