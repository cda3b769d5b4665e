//! Operations on files. One module per operation; what they share stands in [`scope`] and [`entry`].
//!
//! Contents never stand in these types: they travel as the message's payload. Every request has a [`Scope`], which says
//! how its paths are to be understood and what it may touch.

pub mod delete;
pub mod download;
pub mod edit;
pub mod entry;
pub mod glob;
pub mod grep;
pub mod ls;
pub mod mkdir;
pub mod number;
pub mod read;
pub mod relocate;
pub mod scope;
pub mod stat;
pub mod tree;
pub mod write;

pub use delete::{Delete, DeleteOutput};
pub use download::{Download, DownloadOutput};
pub use edit::{Edit, EditOutput, LineEndings};
pub use entry::{Entry, Kind, Link, Partial, PartialReason, Time};
pub use glob::{Glob, GlobMatch, GlobOutput};
pub use grep::{FileMatches, Grep, GrepOutput, LineMatch};
pub use ls::{Ls, LsOutput};
pub use mkdir::{Mkdir, MkdirOutput};
pub use read::{ByteRange, ByteWindow, Encoding, LineWindow, Read, ReadOutput, Truncation};
pub use relocate::{Move, MoveOutput};
pub use scope::Scope;
pub use stat::{Stat, StatOutput};
pub use tree::{Tree, TreeEntry, TreeOutput};
pub use write::{Write, WriteOutput};

/// For fields that are true unless said otherwise.
pub(crate) fn yes() -> bool {
    true
}

/// For flags that are left out of the JSON when false.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}
