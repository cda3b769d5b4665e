//! Why an operation failed.

use crate::RawPath;
use serde::{Deserialize, Serialize};

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure of one operation, as podbayd reports it.
///
/// The code is for programs, the message for people: it says what failed, on what, and where it helps what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Error {
    /// What kind of failure it is.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: String,
    /// The path that the failure is about, as the caller would write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<RawPath>,
    /// A number that belongs to the failure: the lines of a file that is shorter than the offset, the occurrences of a text that
    /// isn't unique, the size of a file that is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The kernel's error number, where a program couldn't be started: `ENOENT` (2) means that there is none of that name,
    /// everything else that it is there and can't be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl Error {
    /// An error about no path in particular.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), path: None, count: None, errno: None }
    }

    /// An error about `path`, which stands at the beginning of the message.
    pub fn at(code: ErrorCode, path: &RawPath, message: impl std::fmt::Display) -> Self {
        Self { code, message: format!("'{path}': {message}"), path: Some(path.clone()), count: None, errno: None }
    }

    /// The same error with its number.
    #[must_use]
    pub fn with_count(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    /// The same error with the kernel's number for it.
    #[must_use]
    pub fn with_errno(mut self, errno: Option<i32>) -> Self {
        self.errno = errno;
        self
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The kinds of failure. In JSON and in the language packages they are the strings of [`ErrorCode::as_str`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
            /// A code that this build doesn't know: the other side is newer.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl ErrorCode {
            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Unknown => "unknown",
                }
            }
        }
    };
}

codes! {
    /// There is nothing at the path.
    NotFound = "not_found",
    /// The kernel refused: the sandbox's user may not do that.
    PermissionDenied = "permission_denied",
    /// A file was wanted and the path is a directory.
    IsDirectory = "is_directory",
    /// A directory was wanted and the path, or a part of it, is something else.
    NotADirectory = "not_a_directory",
    /// A regular file was wanted and the path is a device, a pipe or a socket.
    NotAFile = "not_a_file",
    /// Something is there already and the caller asked not to replace it.
    AlreadyExists = "already_exists",
    /// A directory that had to be empty isn't.
    NotEmpty = "not_empty",
    /// The path can't be one: empty, too long, a NUL byte, or relative where an absolute one is wanted.
    InvalidPath = "invalid_path",
    /// A link or `..` leads out of the directory that the operation is confined to.
    EscapesRoot = "escapes_root",
    /// A path or command rule forbids it.
    PolicyDenied = "policy_denied",
    /// An argument makes no sense.
    InvalidArgument = "invalid_argument",
    /// The file is larger than the operation takes.
    TooLarge = "too_large",
    /// Text was wanted and the file isn't UTF-8.
    NotText = "not_text",
    /// A line offset lies behind the end of the file.
    OffsetPastEnd = "offset_past_end",
    /// The text to replace isn't in the file.
    StringNotFound = "string_not_found",
    /// The text to replace is in the file more than once.
    StringNotUnique = "string_not_unique",
    /// The file was changed by someone else in the middle of the operation. Nothing was written.
    Conflict = "conflict",
    /// A glob pattern can't be used.
    InvalidPattern = "invalid_pattern",
    /// A glob pattern expands to too many alternatives.
    PatternTooBroad = "pattern_too_broad",
    /// No room is left on the device, or a quota is used up.
    NoSpace = "no_space",
    /// The file system is read-only.
    ReadOnly = "read_only",
    /// Too many symbolic links in the path: a loop.
    LinkLoop = "link_loop",
    /// The caller went away in the middle of the operation.
    Cancelled = "cancelled",
    /// The operation took longer than it may.
    TimedOut = "timed_out",
    /// This sandbox can't do that.
    Unsupported = "unsupported",
    /// There is no command with that id.
    ExecNotFound = "exec_not_found",
    /// The program of a command couldn't be started.
    SpawnFailed = "spawn_failed",
    /// The two sides speak different versions of the protocol.
    VersionMismatch = "version_mismatch",
    /// The token is missing or wrong.
    Unauthorized = "unauthorized",
    /// The message wasn't understood.
    BadMessage = "bad_message",
    /// There is no operation of that name.
    UnknownOperation = "unknown_operation",
    /// The kernel reported something that has no code of its own.
    Io = "io",
    /// A defect of podbayd.
    Internal = "internal",
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_their_names_and_new_ones_are_tolerated() {
        let json = serde_json::to_string(&ErrorCode::EscapesRoot).unwrap();
        assert_eq!(json, r#""escapes_root""#);
        assert_eq!(serde_json::from_str::<ErrorCode>(&json).unwrap(), ErrorCode::EscapesRoot);
        assert_eq!(serde_json::from_str::<ErrorCode>(r#""from_the_future""#).unwrap(), ErrorCode::Unknown);
    }
}
