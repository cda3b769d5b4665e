//! What of the stock runtime's API is used, whoever carries the requests.

use std::fmt::Debug;

use bytes::Bytes;
use serde::Deserialize;

/// What a command printed, as the stock runtime's `/execute` returns it.
#[derive(Debug, Deserialize)]
pub(super) struct Executed {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) exit_code: i32,
}

/// Why a request to the runtime has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiFailure {
    /// There was no answer, or one of the router: it may or may not have been served, and may be sent again.
    #[error("{0}")]
    Unavailable(String),
    /// Sending it again doesn't help.
    #[error("{0}")]
    Refused(String),
}

/// The stock runtime's API in one pod.
///
/// Paths are relative to the directory that the runtime starts commands in, and of plain ASCII letters, digits, `.` and `-`.
pub(super) trait RuntimeApi: Debug + Send + Sync + 'static {
    /// Runs a program with arguments, without a shell.
    fn execute(&self, words: &[String]) -> impl Future<Output = Result<Executed, ApiFailure>> + Send;

    /// Writes a file.
    fn upload(&self, path: &str, content: Bytes) -> impl Future<Output = Result<(), ApiFailure>> + Send;
}
