//! Writing a whole file.

use serde::{Deserialize, Serialize};

use super::{Scope, Time};
use crate::exec::ExecId;
use crate::{Operation, RawPath, Subject};

/// Creates or replaces a file. The content is the request's payload, of any size.
///
/// The write is atomic: readers see the old file or the new one, never a part. Links are followed; mode and owner of a replaced
/// file stay. Where an atomic write isn't possible (the directory isn't writable, the file is a mount point or belongs to someone
/// else) the file is overwritten in place once all of the content has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Write {
    /// The file.
    pub path: RawPath,
    /// How paths are interpreted.
    #[serde(default)]
    pub scope: Scope,
    /// The length of the payload, if it is known. A payload of another length is refused and changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Fails with `already_exists` when something exists at the path, even a dangling link.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub create_only: bool,
    /// Creates missing parent directories.
    #[serde(default = "super::yes")]
    pub parents: bool,
    /// Permission bits. When absent: those of the file that is replaced, or 0666 minus the umask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Takes the content from a command's output, which then needn't leave the sandbox. The payload is what stands in the place
    /// of output that is left out. A podbayd that doesn't know this field refuses the request, because `length` isn't the
    /// payload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_of: Option<CommandOutput>,
}

/// The output of a command that was started before, as far as it has been printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandOutput {
    /// The command.
    pub id: ExecId,
    /// The most bytes of output. If there is more, the beginning and the end are taken.
    pub cap: u64,
}

impl Write {
    /// A request to create or replace the file at `path`.
    pub fn new(path: impl Into<RawPath>) -> Self {
        Self {
            path: path.into(),
            scope: Scope::default(),
            length: None,
            create_only: false,
            parents: true,
            mode: None,
            output_of: None,
        }
    }

    /// Fails with `already_exists` when there is something at the path.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.create_only = true;
        self
    }

    /// Fails when the directory above doesn't exist.
    #[must_use]
    pub fn without_parents(mut self) -> Self {
        self.parents = false;
        self
    }

    /// Gives the file these permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }
}

impl Operation for Write {
    const NAME: &'static str = "write";
    const MUTATES: bool = true;
    type Output = WriteOutput;

    fn subject(&self) -> Subject<'_> {
        match &self.output_of {
            Some(CommandOutput { id, cap }) => Subject::Output { path: &self.path, id, cap: *cap },
            None => Subject::Path(Some(&self.path)),
        }
    }

    fn answer_within(&self) -> Option<std::time::Duration> {
        // A slow disk takes a mebibyte a second.
        let disk = std::time::Duration::from_secs(self.length.unwrap_or(0) >> 20);
        Some(crate::operation::PROMPT.saturating_add(disk))
    }

    fn scope_mut(&mut self) -> Option<&mut Scope> {
        Some(&mut self.scope)
    }

    fn bytes(answer: &WriteOutput, _: u64) -> Option<u64> {
        Some(answer.size)
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WriteOutput {
    /// The file's path: absolute, in the caller's view. An artefact that was redirected has its real path here.
    pub path: RawPath,
    /// Bytes written.
    pub size: u64,
    /// Whether the file is new.
    pub created: bool,
    /// Whether the file was overwritten in place, not replaced atomically.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub in_place: bool,
    /// Permission bits.
    pub mode: u32,
    /// The time of the write.
    pub modified: Time,
    /// How many line breaks a command's output had, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_breaks: Option<u64>,
}
