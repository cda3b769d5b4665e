//! Why a command of podbay's failed, and with which exit code.

use podbay::ErrorCode;
use serde::Serialize;

use crate::terminal::escape;

/// podbay itself failed.
pub const FAILED: u8 = 125;
/// The command was found and can't be started.
const CANNOT_START: u8 = 126;
/// The command wasn't found.
const NOT_FOUND: u8 = 127;
/// The kernel's number for what isn't there.
const ENOENT: i32 = 2;
/// What is added to a signal's number.
const BY_SIGNAL: u8 = 128;
/// Nobody reads the output any more.
const SIGPIPE: u8 = 13;

/// Why a command of podbay's failed.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// For programs: the sandbox's own code, or one of `usage`, `config`, `failed`, `broken_pipe`.
    code: String,
    /// For people.
    message: String,
    /// The path that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<podbay::RawPath>,
    exit_code: u8,
    /// Whether the message has more than one line, because a cluster said more.
    #[serde(skip)]
    lines: bool,
}

impl Failure {
    /// A failure of podbay's own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: "failed".to_owned(), message: message.into(), path: None, exit_code: FAILED, lines: false }
    }

    /// Nobody reads the output any more: an end without a word, as that of any program in a pipe.
    pub fn broken_pipe() -> Self {
        let message = "nobody reads the output any more".to_owned();
        Self { code: "broken_pipe".to_owned(), message, path: None, exit_code: BY_SIGNAL + SIGPIPE, lines: false }
    }

    /// The same with a code of its own for programs.
    #[must_use]
    pub fn coded(mut self, code: &str) -> Self {
        self.code = code.to_owned();
        self
    }

    /// The same with the words of the caller in front.
    #[must_use]
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// For a terminal: escaped, and with what a cluster said in lines of its own. Those are indented, so that none of them
    /// looks like one of podbay's.
    pub fn shown(&self) -> String {
        match self.lines {
            true => self.message.lines().map(escape).collect::<Vec<_>>().join("\n  "),
            false => escape(&self.message),
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Whether nobody is there to be told.
    pub fn is_quiet(&self) -> bool {
        self.code == "broken_pipe"
    }

    /// A failure of writing to standard output.
    pub fn output(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::broken_pipe(),
            _ => Self::new(format!("standard output can't be written: {error}; is there room where it goes?")),
        }
    }

    /// A file of this machine that can't be used.
    pub fn local(path: &std::path::Path, what: &str, error: &std::io::Error) -> Self {
        Self::new(format!("{} on this machine {what}: {error}", path.display())).coded("local_file")
    }
}

impl From<podbay::config::ConfigError> for Failure {
    fn from(error: podbay::config::ConfigError) -> Self {
        Self::new(error.to_string()).coded("config")
    }
}

impl From<podbay::Error> for Failure {
    fn from(error: podbay::Error) -> Self {
        let message = error.to_string();
        match error {
            podbay::Error::Operation(error) => {
                let exit_code = match error.code {
                    ErrorCode::SpawnFailed if error.errno == Some(ENOENT) => NOT_FOUND,
                    ErrorCode::SpawnFailed => CANNOT_START,
                    _ => FAILED,
                };
                let message = match error.code {
                    ErrorCode::PolicyDenied => format!("{message}; 'podbay config' shows the rules and who set them"),
                    ErrorCode::ExecNotFound => format!("{message}; 'podbay ps --all' shows those that are"),
                    ErrorCode::SpawnFailed if exit_code == NOT_FOUND => {
                        format!(
                            "{message}: is its name right? There are this machine's programs below /usr, or on a cluster those of the image"
                        )
                    }
                    _ => message,
                };
                Self { code: error.code.as_str().to_owned(), message, path: error.path, exit_code, lines: false }
            }
            podbay::Error::SandboxNotFound(_) => Self::new(message).coded("sandbox_not_found"),
            podbay::Error::Unreachable { .. } => Self::new(message).coded("unreachable"),
            podbay::Error::SandboxRestarted { .. } => Self::new(message).coded("sandbox_restarted"),
            podbay::Error::DeadlineExceeded { .. } => Self::new(message).coded("deadline_exceeded"),
            podbay::Error::VersionMismatch(_) => Self::new(message).coded("version_mismatch"),
            podbay::Error::Local { .. } => Self::new(message).coded("local_file"),
            podbay::Error::Provider(_) => Self { lines: true, ..Self::new(message) },
            _ => Self::new(message),
        }
    }
}
