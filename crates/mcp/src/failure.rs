//! Why a tool failed, and what the model can do next.

use podbay::{Error, ErrorCode, ErrorName};

use crate::reply::{quoted, quoted_lines};

/// The most bytes of what a sandbox, a cluster or the model's own arguments say in a message.
const LONGEST: usize = 4_000;

/// Why a tool call has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The sandbox, or what finds and creates it, said no.
    Podbay(Error),
    /// The arguments don't fit the tool.
    Arguments(String),
    /// The client cancelled the call.
    Cancelled,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Podbay(error)
    }
}

impl From<podbay::OperationError> for Failure {
    fn from(error: podbay::OperationError) -> Self {
        Self::Podbay(error.into())
    }
}

impl Failure {
    /// For programs: the code of [`ErrorName`], or one of this server's own.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Podbay(error) => ErrorName::of(error).code,
            Self::Arguments(_) => "invalid_argument",
            Self::Cancelled => "cancelled",
        }
    }

    /// For the model: what failed, and what to do next.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Podbay(error) => {
                let said = match error {
                    // A cluster's events are on lines of their own.
                    Error::Provider(_) => quoted_lines(&error.to_string(), LONGEST),
                    _ => quoted(&error.to_string(), LONGEST),
                };
                let advice = advice(error);
                let gap = if advice.is_empty() { "" } else { "\n" };
                format!("{said}{gap}{advice}")
            }
            Self::Arguments(message) => quoted(message, LONGEST),
            Self::Cancelled => "the call was cancelled".to_owned(),
        }
    }
}

/// What a model can do about a failure. Empty where the message says it.
fn advice(error: &Error) -> &'static str {
    let Some(code) = error.code() else {
        return match error {
            Error::SandboxRestarted { .. } => {
                "Processes of the sandbox are gone and files are still there: check what the call has done, then continue."
            }
            Error::DeadlineExceeded { .. } | Error::NoAnswer { .. } => {
                "Call process_list to see what still runs, and process_kill to end it."
            }
            Error::Unreachable { .. } => "Try once more; if it fails again, tell the user.",
            _ => "Retrying won't help: tell the user what the message says.",
        };
    };
    match code {
        ErrorCode::NotFound => "Call ls or glob to find the right path.",
        ErrorCode::IsDirectory => "Call ls to see what is in the directory.",
        ErrorCode::NotADirectory => "Call ls on the parent directory to see what it is.",
        ErrorCode::AlreadyExists => "Call edit to change the file, or write without create_only to replace it.",
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly => "Use a path under the working directory or /tmp.",
        ErrorCode::PolicyDenied | ErrorCode::EscapesRoot => {
            "The user's rules forbid this: don't try to work around them; use another path or command, or ask the user."
        }
        ErrorCode::StringNotFound => {
            "Call read and copy the text to replace exactly as it stands there, with its white space."
        }
        ErrorCode::StringNotUnique => "Include more of the lines around it, or set replace_all.",
        ErrorCode::Conflict => "Call read to see the file as it is now, then try again.",
        ErrorCode::OffsetPastEnd => "Call read with a smaller offset.",
        ErrorCode::NotText => "Use run with a program that understands the file's format.",
        ErrorCode::TooLarge => "Use run with head, tail or another program that reads a part of it.",
        ErrorCode::InvalidPattern | ErrorCode::PatternTooBroad => "Use a simpler pattern.",
        ErrorCode::NoSpace => "Delete files that aren't needed any more.",
        ErrorCode::TimedOut => "Search a smaller directory, or use a narrower pattern.",
        ErrorCode::ExecNotFound => "Call process_list with all set to see the ids of all commands.",
        ErrorCode::SpawnFailed => "Check the program's name and the directory in cwd.",
        _ => "",
    }
}
