//! What is to be run, and under which id.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DEFAULT_TIMEOUT_MS;
use crate::{Error, ErrorCode, RawPath, Result};

/// The id of a command: 1 to 64 letters, digits, `-` or `_`.
///
/// It becomes the name of a directory, so nothing else is accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecId(String);

impl ExecId {
    /// Checks an id.
    ///
    /// # Errors
    /// `invalid_argument` when it has a character or a length that isn't allowed.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
            let shown: String = name.chars().take(80).collect();
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!("{shown:?} can't be the id of a command: use 1 to 64 letters, digits, '-' or '_'"),
            ));
        }
        Ok(Self(name))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ExecId {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl From<ExecId> for String {
    fn from(id: ExecId) -> Self {
        id.0
    }
}

impl std::fmt::Display for ExecId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Program {
    /// A line for `sh -c`.
    Shell(RawPath),
    /// A program and its arguments, without a shell.
    Argv(Vec<RawPath>),
}

/// Limits on one command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandLimits {
    /// The largest file that the command can write, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    /// The most memory for the command and everything it starts, in bytes. Needs a cgroup; `unsupported` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The most processes and threads at once. Needs a cgroup; `unsupported` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// A command to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Command {
    /// What to run.
    pub program: Program,
    /// Where to run it: the sandbox's working directory by default, to which a relative path is relative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<RawPath>,
    /// Environment variables on top of the sandbox's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, RawPath>,
    /// Its time limit in milliseconds; 0 means none.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// How many milliseconds after TERM a command that timed out is killed.
    #[serde(default = "default_grace")]
    pub grace_ms: u64,
    /// Whether standard input stays open for [`Input`](super::Input). Otherwise it is empty.
    #[serde(default)]
    pub stdin: bool,
    /// Sends standard error to standard output: one stream, in exactly the order in which it was written. Otherwise there are two
    /// streams, and what is written to both within microseconds may be reordered.
    #[serde(default)]
    pub merge: bool,
    /// Limits on the command.
    #[serde(default)]
    pub limits: CommandLimits,
}

/// A line for the shell.
impl From<&str> for Command {
    fn from(line: &str) -> Self {
        Self::shell(line)
    }
}

/// A line for the shell.
impl From<String> for Command {
    fn from(line: String) -> Self {
        Self::shell(line)
    }
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_MS
}

fn default_grace() -> u64 {
    2_000
}

impl Command {
    /// A line for the shell, with the default time-out.
    pub fn shell(line: impl Into<RawPath>) -> Self {
        Self::new(Program::Shell(line.into()))
    }

    /// A program with arguments, with the default time-out.
    pub fn argv<A: Into<RawPath>>(words: impl IntoIterator<Item = A>) -> Self {
        Self::new(Program::Argv(words.into_iter().map(Into::into).collect()))
    }

    fn new(program: Program) -> Self {
        Self {
            program,
            cwd: None,
            env: BTreeMap::new(),
            timeout_ms: default_timeout(),
            grace_ms: default_grace(),
            stdin: false,
            merge: false,
            limits: CommandLimits::default(),
        }
    }

    /// Ends the command after this time. Zero lets it run forever; the default is 300 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        // Less than a millisecond isn't «forever».
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.timeout_ms = if timeout.is_zero() { 0 } else { ms.max(1) };
        self
    }

    /// Runs the command in this directory.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<RawPath>) -> Self {
        self.cwd = Some(directory.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<RawPath>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Keeps standard input open for [`Input`](super::Input).
    #[must_use]
    pub fn stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Sends standard error where standard output goes.
    #[must_use]
    pub fn merge(mut self) -> Self {
        self.merge = true;
        self
    }

    /// The command in one line for lists, cut to 200 characters.
    pub fn summary(&self) -> String {
        let text = match &self.program {
            Program::Shell(line) => line.to_string(),
            Program::Argv(words) => words.iter().map(RawPath::to_string).collect::<Vec<_>>().join(" "),
        };
        let mut line: String = text.chars().take(200).collect();
        if line.len() < text.len() {
            line.push('…');
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_a_path() {
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert_eq!(ExecId::new(bad).unwrap_err().code, ErrorCode::InvalidArgument, "{bad:?}");
        }
        assert!(ExecId::new("x".repeat(64)).is_ok());
        assert!(serde_json::from_str::<ExecId>(r#""../x""#).is_err());
    }

    #[test]
    fn a_command_needs_nothing_but_its_program() {
        let command: Command = serde_json::from_str(r#"{"program":{"shell":"true"}}"#).unwrap();
        assert_eq!(command, Command::shell("true"));
        assert_eq!(command.timeout_ms, DEFAULT_TIMEOUT_MS);
        assert!(serde_json::from_str::<Command>(r#"{"program":{"shell":"true"},"timeout_ms":-1}"#).is_err());
    }
}
