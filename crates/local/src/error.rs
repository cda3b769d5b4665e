//! Why a local sandbox can't be had.

use std::path::PathBuf;

/// The result of an operation on local sandboxes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a local sandbox can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of Podbay's can't be used.
    #[error("{}: {what}: {source}", path.display())]
    Home {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },

    /// Somebody else could exchange what is in a directory for sandboxes, the program that is run included.
    #[error(
        "can't keep sandboxes in {}: {} {why}. Set PODBAY_HOME (or the setting `home`) to a directory of your own, or \
         leave it unset", path.display(), at.display()
    )]
    Untrusted {
        /// The directory for sandboxes.
        path: PathBuf,
        /// The directory on the way to it that isn't safe.
        at: PathBuf,
        /// Why not.
        why: String,
    },

    /// The sandbox couldn't be made.
    #[error("the sandbox can't be made: {0}")]
    Create(String),

    /// The options make no sense.
    #[error("the sandbox can't be like that: {0}")]
    BadOptions(String),

    /// This build has no podbayd for this machine.
    #[error("this build of Podbay has no podbayd for {0}; build it on such a machine, or set PODBAY_DAEMON_DIR")]
    NoDaemon(&'static str),

    /// A name that can't be a sandbox's.
    #[error(
        "{0:?} can't name a sandbox: use 1 to 63 lower-case letters, digits or '-', \
         beginning and ending with a letter or digit"
    )]
    BadName(String),

    /// There is no sandbox of that name.
    #[error("there is no sandbox {0:?} on this machine; 'podbay list' shows those that are")]
    SandboxNotFound(String),

    /// A sandbox doesn't end.
    #[error("the sandbox {id} doesn't end: {why}")]
    Stuck {
        /// Its id.
        id: String,
        /// What stays.
        why: String,
    },
}

impl Error {
    pub(crate) fn home(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Home { path, what, source }
    }
}

impl From<Error> for podbay_client::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::SandboxNotFound(id) => Self::SandboxNotFound(id),
            error => Self::Provider(Box::new(error)),
        }
    }
}
