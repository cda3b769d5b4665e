//! The protocol between podbayd and a command's shim.
//!
//! podbayd sends [`Request`]s, each as the head of a [message](podbay_proto::message) (input data follows its request).
//! The shim answers `Attach` with [records](podbay_proto::record), `Watch` with [`ShimReport`]s, and the others with one head.
//! The first connection is a socket pair and watches from the beginning; others are made to a socket in the command's directory.
//!
//! Each side assumes that the other is hostile: a command runs as podbayd's user and may try to pass for either.

use podbay_proto::exec::{Command, ExecId, Process, Target};
use serde::{Deserialize, Serialize};

use crate::exec_store::record::CommandOutcome;

/// The most input in one request.
pub const MAX_INPUT: usize = 1 << 20;

/// The longest message from a shim.
pub const MAX_REPORT: usize = 256 << 10;

/// How many processes a shim lists: enough to see what runs, and a bound on its messages.
pub const MAX_PROCESSES: usize = 1_000;

/// A request to a shim.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run this. The first request on the first connection.
    Start(Box<StartCommand>),
    /// Report on the command from now on.
    Watch,
    /// The answer to [`ShimReport::Room`].
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
        /// Which processes get it.
        target: Target,
    },
    /// Describe the command.
    Status,
}

/// What to run, with what only podbayd knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartCommand {
    /// The command's id.
    pub id: ExecId,
    /// The command; its working directory is filled in.
    pub command: Command,
    /// The log's path as the sandbox sees it.
    pub log: podbay_proto::RawPath,
    /// Where the outcome goes in the record.
    pub outcome_at: u64,
    /// When it was started: milliseconds since 1970.
    pub started_ms: u64,
    /// How many seccomp filters podbayd runs under, where that is known: commands run under more.
    pub podbayd_filters: Option<u32>,
    /// The file with the command's line, where that is too long for an argument.
    pub script: Option<podbay_proto::RawPath>,
}

/// What a shim reports on a watching connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum ShimReport {
    /// The shim runs. The kernel tells podbayd its process id.
    Begun,
    /// Its log has grown: are all logs together within their quota?
    Room,
    /// The command has ended.
    Ended {
        /// How.
        outcome: CommandOutcome,
        /// Processes that it started and that still live.
        processes: Vec<Process>,
    },
    /// No process of the command is left, and the shim exits.
    Gone,
}
