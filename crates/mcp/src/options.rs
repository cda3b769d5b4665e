//! What a server allows its sessions.

use std::time::Duration;

use podbay::provider::Wanted;

/// What a server allows its sessions. Arguments of tools can narrow it, never widen it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The sandbox that all sessions share, and that stays when they end. Otherwise each session has one of its own.
    pub sandbox: Option<String>,
    /// How the sandbox of a session is made: labels, lifetimes, leash. The id is ignored.
    pub wanted: Wanted,
    /// The longest that a call of `run` lasts.
    pub timeout: Duration,
    /// The most bytes of text in the result of a tool.
    pub max_output: u64,
}

impl Options {
    /// The default of [`timeout`](Self::timeout).
    pub const TIMEOUT: Duration = Duration::from_secs(300);

    /// The default of [`max_output`](Self::max_output): what fits into the context that common clients leave for one result.
    pub const MAX_OUTPUT: u64 = 64 << 10;

    /// The least [`max_output`](Self::max_output) that leaves room for a page of text.
    pub const MIN_OUTPUT: u64 = 256;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sandbox: None,
            wanted: Wanted { leashed: true, ..Wanted::default() },
            timeout: Self::TIMEOUT,
            max_output: Self::MAX_OUTPUT,
        }
    }
}
