//! A byte stream to podbayd in pieces, for connections that carry nothing but commands and their output.
//!
//! `podbayd connect --exchange ID` opens a stream and prints [`ExchangeOpened`]; each `podbayd exchange` hands over some bytes of
//! the client's, takes some of podbayd's, and prints an [`ExchangeAnswer`]. Both directions count their bytes, as TCP does: podbayd
//! takes every byte once, and keeps its own until the client has acknowledged them. So a client that gets no answer repeats the
//! same request.

use serde::{Deserialize, Serialize};

/// The most bytes that a client hands over at once.
pub const LARGEST_INPUT: usize = 4 << 20;

/// The most bytes that it gets at once, before they are encoded.
pub const LARGEST_OUTPUT: usize = 1 << 20;

/// The longest that podbayd waits for bytes before it answers without any.
pub const LONGEST_WAIT_MS: u64 = 60_000;

/// How many characters the name of a stream has. Clients choose it at random, in hexadecimal.
pub const SESSION_LENGTH: usize = 32;

/// What `podbayd connect --exchange` prints after its greeting, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeOpened {
    /// podbayd's program.
    pub program: String,
    /// The state directory of the podbayd that has the stream.
    pub state: String,
}

/// One exchange, as `podbayd exchange` hands it to the running podbayd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeRequest {
    /// The stream.
    pub session: String,
    /// The client counts its requests. One that waits is answered when there is a newer one.
    pub number: u64,
    /// Where in the client's bytes those of this request begin.
    pub offset: u64,
    /// How many there are. They follow the request.
    pub length: usize,
    /// How many of podbayd's bytes the client has: the answer continues there.
    pub acknowledged: u64,
    /// The most bytes that the answer may have.
    pub most: usize,
    /// How long to wait for the first of them, in milliseconds.
    pub wait_ms: u64,
    /// Opens the stream, which nobody must have opened before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Ends the stream, after what is handed over here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close: bool,
}

/// What `podbayd exchange` prints, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeAnswer {
    /// The stream's state.
    pub status: ExchangeStatus,
    /// How many of the client's bytes podbayd has.
    #[serde(default)]
    pub received: u64,
    /// Where in podbayd's bytes those of this answer begin.
    #[serde(default)]
    pub offset: u64,
    /// The bytes, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
}

impl ExchangeAnswer {
    /// An answer that carries nothing.
    pub fn only(status: ExchangeStatus) -> Self {
        Self { status, received: 0, offset: 0, data: String::new() }
    }
}

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeStatus {
    /// It is open.
    Open,
    /// It is open, but other clients are waiting too: the next request that only waits should come later.
    Busy,
    /// podbayd has closed it. There is nothing behind the bytes of this answer.
    Ended,
    /// podbayd doesn't know it, or no longer does. What happened to the bytes that it had is unknown.
    Gone,
}
