//! What can go wrong between a client and its sandbox.

use podbay_proto::ErrorCode;

/// The result of an operation on a sandbox.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a sandbox failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sandbox answered with an error.
    #[error(transparent)]
    Operation(#[from] podbay_proto::Error),

    /// The sandbox can't be reached, and retrying for a while didn't help.
    #[error("the sandbox can't be reached ({what}): {reason}; check with 'podbay list' that it is running")]
    Unreachable {
        /// The operation.
        what: &'static str,
        /// What the last try said.
        reason: String,
    },

    /// podbayd was restarted during a request that changes something: the change may or may not have happened.
    #[error("the sandbox was restarted during {what}: check what was changed before you try again")]
    SandboxRestarted {
        /// The operation.
        what: &'static str,
    },

    /// A command should have ended long ago, and the sandbox didn't say how it did: it may still run.
    #[error(
        "command {id} should have ended within {seconds} s, but its sandbox doesn't answer: check it with 'podbay ps', or delete the sandbox"
    )]
    DeadlineExceeded {
        /// The command.
        id: podbay_proto::exec::ExecId,
        /// Its time-out and grace period, and what the sandbox may take beyond them.
        seconds: u64,
    },

    /// The connection is open, but the sandbox doesn't answer, or has stopped in the middle of an answer.
    #[error(
        "no answer from the sandbox to {what} for {seconds} s, although it is connected. The operation may or may not have happened: check before you retry, or delete the sandbox"
    )]
    NoAnswer {
        /// The operation.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },

    /// The two sides speak different versions of the protocol.
    #[error("{0}")]
    VersionMismatch(String),

    /// What the sandbox sent isn't a valid answer.
    #[error("the sandbox's answer to {what} is invalid: {reason}")]
    BadAnswer {
        /// The operation.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },

    /// There is no such sandbox.
    #[error("there is no sandbox {0:?}; 'podbay list' shows all sandboxes")]
    SandboxNotFound(String),

    /// The object that stands for the sandbox was closed before.
    #[error("the sandbox {0:?} was closed: create a new one")]
    Closed(String),

    /// A sandbox can't be created, found or deleted.
    #[error("{0}")]
    Provider(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// A file of this machine can't be read or written.
    #[error("'{path}' on this machine: {source}")]
    Local {
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl Error {
    /// The sandbox's own code for the failure, if it is one of an operation.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Operation(error) => Some(error.code),
            _ => None,
        }
    }

    /// The kernel's error number of a program that couldn't be started: 2 (`ENOENT`) if it doesn't exist.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Operation(error) => error.errno,
            _ => None,
        }
    }

    pub(crate) fn local(path: impl AsRef<std::path::Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().display().to_string();
        move |source| Self::Local { path, source }
    }
}
