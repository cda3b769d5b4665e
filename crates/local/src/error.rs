//! Errors of the local provider.

use std::path::PathBuf;

/// The result of an operation on local sandboxes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on local sandboxes failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory can't be used.
    #[error("{}: {what}: {source}", path.display())]
    Home {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// Another user could replace files in the home, including podbayd's program.
    #[error(
        "can't keep sandboxes in {}: {} {why}. Set PODBAY_HOME (or the setting `home`) to a directory of your own, or \
         leave it unset", path.display(), at.display()
    )]
    Untrusted {
        /// The home.
        path: PathBuf,
        /// The home or the directory above it that isn't safe.
        at: PathBuf,
        /// Why it isn't safe.
        why: String,
    },

    /// The sandbox couldn't be created.
    #[error("can't create the sandbox: {0}")]
    Create(String),

    /// An option of the sandbox is invalid.
    #[error("invalid sandbox options: {0}")]
    BadOptions(String),

    /// This build has no podbayd for this machine.
    #[error("this build of Podbay contains no podbayd for {0}; build it on a {0} machine, or set PODBAY_DAEMON_DIR")]
    NoDaemon(&'static str),

    /// An invalid name for a sandbox.
    #[error(
        "{0:?} can't name a sandbox: use 1 to 63 lower-case letters, digits or '-', \
         beginning and ending with a letter or digit"
    )]
    BadName(String),

    /// No sandbox has that name.
    #[error("there is no sandbox {0:?} on this machine; 'podbay list' shows all of them")]
    SandboxNotFound(String),

    /// A sandbox doesn't answer or can't be ended.
    #[error("the sandbox {id} is stuck: {why}")]
    Stuck {
        /// The sandbox's id.
        id: String,
        /// What is left of it, and why.
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
