//! What podbayd and a command's shim say to each other.
//!
//! podbayd sends [`Request`]s, each as the head of a [message](podbay_proto::message) (input data follows its request).
//! The shim answers `Attach` with [records](podbay_proto::record), `Watch` with [`Report`]s, and the others with one head.
//! The first connection is a pair of sockets and watches from the beginning; others come to a socket in the command's directory.
//!
//! Either side takes the other for hostile: a command has podbayd's user and may try to be one or the other.

use podbay_proto::exec::{Command, ExecId, Process, Target};
use serde::{Deserialize, Serialize};

use crate::exec_store::record::CommandOutcome;

/// The most input that one request brings.
pub const MAX_INPUT: usize = 1 << 20;

/// The longest message from a shim.
pub const MAX_REPORT: usize = 256 << 10;

/// How many processes a shim names: enough to see what runs, and a bound for its messages.
pub const MAX_PROCESSES: usize = 1_000;

/// A request to a shim.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run this. The first request on the first connection.
    Start(Box<StartCommand>),
    /// Report what becomes of the command.
    Watch,
    /// The answer to [`Report::Room`].
    Room {
        /// Whether all logs together are too large.
        used_up: bool,
    },
    /// Send the output from an offset on, then the end.
    Attach {
        /// The first byte wanted.
        offset: u64,
    },
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
pub struct StartCommand {
    /// The command's name.
    pub id: ExecId,
    /// The command; its working directory is filled in.
    pub command: Command,
    /// The log's path as the sandbox sees it.
    pub log: podbay_proto::RawPath,
    /// Where the outcome's place is in the record.
    pub outcome_at: u64,
    /// When it was started, for those who ask: milliseconds since 1970.
    pub started_ms: u64,
    /// The file with the command's line, where that is too long for an argument.
    pub script: Option<podbay_proto::RawPath>,
}

/// What a shim says on a connection that watches.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// It is there. The kernel tells podbayd who says so.
    Begun,
    /// Its log has grown: is there room among all logs?
    Room,
    /// The command has ended.
    Ended {
        /// How.
        outcome: CommandOutcome,
        /// What it started and is still alive.
        processes: Vec<Process>,
    },
    /// Nothing of the command is left, and the shim goes.
    Gone,
}
