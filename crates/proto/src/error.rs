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
    /// A number that belongs to the failure: how many lines a file has that is shorter than the offset, how often a text
    /// occurs that isn't unique, how large a file is that is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The kernel's error number of a program that couldn't be started: `ENOENT` (2) if it doesn't exist, any other number if
    /// it exists and can't be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl Error {
    /// An error about no path in particular.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), path: None, count: None, errno: None }
    }

    /// An error about `path`, with which the message begins.
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
            /// Every code that this build knows, with what it means.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, concat!($($doc),+)),)+];

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
    /// Nothing exists at the path.
    NotFound = "not_found",
    /// The kernel refused: the sandbox's user isn't allowed to do that.
    PermissionDenied = "permission_denied",
    /// The path is a directory, and the operation needs a file.
    IsDirectory = "is_directory",
    /// The path, or a part of it, isn't a directory.
    NotADirectory = "not_a_directory",
    /// The path is a device, a pipe or a socket, and the operation needs a regular file.
    NotAFile = "not_a_file",
    /// Something exists at the path, and the caller asked not to replace it.
    AlreadyExists = "already_exists",
    /// The directory isn't empty.
    NotEmpty = "not_empty",
    /// The path is empty, too long, contains a NUL byte, or is relative where it must be absolute.
    InvalidPath = "invalid_path",
    /// A link or `..` leads out of the directory that the operation is confined to.
    EscapesRoot = "escapes_root",
    /// A path or command rule forbids it.
    PolicyDenied = "policy_denied",
    /// An argument is invalid.
    InvalidArgument = "invalid_argument",
    /// The file is larger than the operation accepts.
    TooLarge = "too_large",
    /// The file isn't UTF-8, and the operation needs text.
    NotText = "not_text",
    /// The line offset is past the end of the file.
    OffsetPastEnd = "offset_past_end",
    /// The text to replace isn't in the file.
    StringNotFound = "string_not_found",
    /// The text to replace occurs more than once in the file.
    StringNotUnique = "string_not_unique",
    /// Someone else changed the file during the operation. Nothing was written.
    Conflict = "conflict",
    /// The glob pattern is invalid.
    InvalidPattern = "invalid_pattern",
    /// The glob pattern expands to too many alternatives.
    PatternTooBroad = "pattern_too_broad",
    /// No space is left on the device, or a quota is used up.
    NoSpace = "no_space",
    /// The file system is read-only.
    ReadOnly = "read_only",
    /// The path has too many symbolic links: a loop.
    LinkLoop = "link_loop",
    /// The caller gave up during the operation.
    Cancelled = "cancelled",
    /// The operation took longer than its time limit.
    TimedOut = "timed_out",
    /// This sandbox doesn't support that.
    Unsupported = "unsupported",
    /// No command has that id.
    ExecNotFound = "exec_not_found",
    /// The command's program couldn't be started.
    SpawnFailed = "spawn_failed",
    /// The two sides speak different versions of the protocol.
    VersionMismatch = "version_mismatch",
    /// The token is missing or wrong.
    Unauthorized = "unauthorized",
    /// The message couldn't be understood.
    BadMessage = "bad_message",
    /// No operation has that name.
    UnknownOperation = "unknown_operation",
    /// The kernel reported an error that has no code of its own.
    Io = "io",
    /// A bug in podbayd.
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
