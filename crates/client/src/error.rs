//! What can go wrong between a client and its sandbox.

use podbay_proto::ErrorCode;

/// The result of an operation on a sandbox.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a sandbox failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sandbox answered that it can't.
    #[error(transparent)]
    Operation(#[from] podbay_proto::Error),

    /// The sandbox can't be reached, and trying again for a while didn't help.
    #[error("the sandbox can't be reached for {what}: {reason}. Is it still running? 'podbay list' tells")]
    Unreachable {
        /// The operation.
        what: &'static str,
        /// What the last try said.
        reason: String,
    },

    /// podbayd was restarted while a request that changes something was under way: it may have been served or not.
    #[error("the sandbox was restarted during {what}: look at what it changed before trying again")]
    SandboxRestarted {
        /// The operation.
        what: &'static str,
    },

    /// A command's time was up long ago, and the sandbox didn't say how it ended: it may still run.
    #[error(
        "command {id} should have ended within {seconds} s, but its sandbox doesn't answer: check it with 'podbay ps', or delete the sandbox"
    )]
    DeadlineExceeded {
        /// The command.
        id: podbay_proto::exec::ExecId,
        /// Its time-out and grace period, and what the sandbox may take beyond them.
        seconds: u64,
    },

    /// The two sides speak different versions of the protocol.
    #[error("{0}")]
    VersionMismatch(String),

    /// What came from the sandbox isn't an answer.
    #[error("the sandbox's answer to {what} makes no sense: {reason}")]
    BadAnswer {
        /// The operation.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },

    /// There is no such sandbox.
    #[error("there is no sandbox {0:?}; 'podbay list' shows those that are")]
    SandboxNotFound(String),

    /// The object that stands for the sandbox was closed before.
    #[error("the sandbox {0:?} was closed: create a new one")]
    Closed(String),

    /// A sandbox can't be made, found or removed.
    #[error("{0}")]
    Provider(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// A file on this side can't be read or written.
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

    /// The kernel's error number of a program that couldn't be started: 2 (`ENOENT`) when there is none of that name.
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
