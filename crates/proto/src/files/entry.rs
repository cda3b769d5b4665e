//! One entry of a directory.

use serde::{Deserialize, Serialize};

use crate::RawPath;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something else, or a kind that this build doesn't know.
    #[serde(other)]
    Other,
}

/// A moment: seconds and nanoseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds after that second, below 1,000,000,000.
    pub nanos: u32,
}

/// Where a symbolic link leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// The link's text, unchanged.
    pub target: RawPath,
    /// What its target is; absent when the target doesn't exist or is outside the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_kind: Option<Kind>,
}

/// One entry of a directory, as `lstat` describes it: links aren't followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// The directory's path, as requested, joined with the name.
    pub path: RawPath,
    /// What it is.
    pub kind: Kind,
    /// The size in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Time,
    /// Permission bits, including set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// For a symbolic link: where it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// Why a result isn't complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PartialReason {
    /// A limit on time, number of results or result size was reached.
    Budget,
    /// Something below the start couldn't be read.
    Unreadable,
    /// A reason that this build doesn't know.
    #[serde(other)]
    Other,
}

/// A result that isn't complete says so with this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Partial {
    /// Why. `unreadable` outranks `budget`.
    pub reason: PartialReason,
    /// One sentence for people: which limit was reached, or which path couldn't be read first and why.
    pub detail: String,
    /// How many directories and files couldn't be read.
    #[serde(default)]
    pub unreadable: u64,
    /// Whether a limit was reached as well.
    #[serde(default)]
    pub limit_reached: bool,
}
