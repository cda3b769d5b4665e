//! Why podbay failed, and with which exit code.

use podbay::{ErrorCode, ErrorName};
use serde::Serialize;

use crate::terminal::escape;

/// podbay itself failed.
pub const FAILED: u8 = 125;
/// The command doesn't exist.
const NOT_FOUND: u8 = 127;
/// The kernel's error number for a file that doesn't exist.
const ENOENT: i32 = 2;
/// What is added to a signal's number.
const BY_SIGNAL: u8 = 128;
/// Nobody reads the output.
const SIGPIPE: u8 = 13;

/// Why podbay failed.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// For programs: a code of [`ErrorName`], or one of the command line's own, such as `usage` and `broken_pipe`.
    code: String,
    /// The message for people.
    message: String,
    /// The path that the failure is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<podbay::RawPath>,
    exit_code: u8,
    /// Whether the message may have several lines, because it quotes a cluster.
    #[serde(skip)]
    lines: bool,
}

impl Failure {
    /// A failure of podbay's own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: "failed".to_owned(), message: message.into(), path: None, exit_code: FAILED, lines: false }
    }

    /// Nobody reads the output: podbay ends silently, as any program in a pipe does.
    pub fn broken_pipe() -> Self {
        let message = "nobody reads the output".to_owned();
        Self { code: "broken_pipe".to_owned(), message, path: None, exit_code: BY_SIGNAL + SIGPIPE, lines: false }
    }

    /// The same failure with its own code for programs.
    #[must_use]
    pub fn coded(mut self, code: &str) -> Self {
        self.code = code.to_owned();
        self
    }

    /// The same failure, with what it is about in front of the message.
    #[must_use]
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message for a terminal, escaped. Lines that quote a cluster are indented, so that none of them looks like one of
    /// podbay's own.
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

    /// Whether nobody can read the message.
    pub fn is_quiet(&self) -> bool {
        self.code == "broken_pipe"
    }

    /// A failure of writing to standard output.
    pub fn output(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::broken_pipe(),
            _ => Self::new(format!("can't write to standard output: {error}")),
        }
    }

    /// A file of this machine that can't be used.
    pub fn local(path: &std::path::Path, what: &str, error: &std::io::Error) -> Self {
        Self::new(format!("{} on this machine {what}: {error}", path.display())).coded("local_file")
    }
}

impl From<podbay::config::ConfigError> for Failure {
    fn from(error: podbay::config::ConfigError) -> Self {
        podbay::Error::from(error).into()
    }
}

impl From<podbay::Error> for Failure {
    fn from(error: podbay::Error) -> Self {
        let name = ErrorName::of(&error);
        let missing = error.code() == Some(ErrorCode::SpawnFailed) && error.errno() == Some(ENOENT);
        let exit_code = if missing { NOT_FOUND } else { name.exit_code };
        let message = match (&error, error.code()) {
            (podbay::Error::Operation(podbay::OperationError { path: Some(program), .. }), _) if missing => format!(
                "can't run '{program}': not found in the sandbox (local sandboxes see this machine's programs under /usr)"
            ),
            (_, Some(ErrorCode::PolicyDenied)) => {
                format!("{error}; 'podbay config' shows the rules and where they come from")
            }
            (_, Some(ErrorCode::ExecNotFound)) => format!("{error}; 'podbay ps --all' lists all commands"),
            _ => error.to_string(),
        };
        let lines = matches!(error, podbay::Error::Provider(_));
        let path = match error {
            podbay::Error::Operation(error) => error.path,
            _ => None,
        };
        Self { code: name.code.to_owned(), message, path, exit_code, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_isnt_there_ends_with_127_as_in_a_shell() {
        let failed = |errno| podbay::OperationError::new(ErrorCode::SpawnFailed, "x").with_errno(errno);
        assert_eq!(Failure::from(podbay::Error::from(failed(Some(ENOENT)))).exit_code(), 127);
        assert_eq!(Failure::from(podbay::Error::from(failed(Some(13)))).exit_code(), 126);
        assert_eq!(Failure::from(podbay::Error::SandboxNotFound("x".into())).exit_code(), FAILED);
    }
}
