//! Commands: starting them, reading their output, talking to them while they run.
//!
//! The caller names each command with an [`ExecId`]. Starting an id that exists attaches to it: a command runs once,
//! however often its request is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode, Operation, RawPath, Result, Subject};

/// The default time limit of a command, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 300_000;

/// How many bytes of output a [`Run`] returns by default.
pub const DEFAULT_OUTPUT_CAP: u64 = 1 << 20;

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
pub struct Limits {
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
    /// Whether standard input stays open for [`Input`]. Otherwise it is empty.
    #[serde(default)]
    pub stdin: bool,
    /// Sends standard error to standard output: one stream, in exactly the order in which it was written. Otherwise there are two
    /// streams, and what is written to both within microseconds may be reordered.
    #[serde(default)]
    pub merge: bool,
    /// Limits on the command.
    #[serde(default)]
    pub limits: Limits,
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
            limits: Limits::default(),
        }
    }

    /// Ends the command after this time. Zero lets it run for ever; the default is 300 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        // Less than a millisecond isn't «for ever».
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

    /// Keeps standard input open for [`Input`].
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

/// What a command used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Processor time in user mode, in microseconds, of the command and the children that it waited for.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// Peak resident memory of the largest process, in bytes.
    pub peak_memory: u64,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exit {
    /// The exit code; 128 + n when signal n ended it, 124 after a time-out.
    pub code: i32,
    /// The signal that ended it, such as `SIGKILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether it timed out.
    #[serde(default)]
    pub timed_out: bool,
    /// Whether it was ended on request.
    #[serde(default)]
    pub killed: bool,
    /// Whether the kernel killed something in its cgroup because memory ran out.
    #[serde(default)]
    pub out_of_memory: bool,
    /// From start to end, in microseconds.
    pub duration_us: u64,
    /// What it used.
    pub usage: Usage,
}

/// The state of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum State {
    /// It is running.
    Running,
    /// It has ended.
    Exited(Exit),
    /// Its program couldn't be started.
    Failed(Error),
    /// Its shim is gone and left no record of its end: the outcome is unknown, and the command is never run again.
    Lost,
}

/// A process that a command started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Its id inside the sandbox.
    pub pid: i32,
    /// Its name, as the kernel has it.
    pub name: String,
}

/// A command in lists and results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Info {
    /// Its id.
    pub id: ExecId,
    /// The command in one line.
    pub command: String,
    /// When it was started, in milliseconds since 1970 by the sandbox's clock.
    pub started_ms: u64,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
    /// How many bytes it has printed.
    pub output_bytes: u64,
    /// How many of these bytes the log no longer has.
    #[serde(default)]
    pub dropped_bytes: u64,
    /// The log file in the sandbox: the whole output up to 64 MiB. Beyond that, its first 16 MiB and, as a ring buffer after
    /// them, its last 48 MiB.
    pub log: RawPath,
    /// How many bytes of standard input were accepted.
    #[serde(default)]
    pub input_bytes: u64,
    /// Its live processes, including background processes that outlive it.
    #[serde(default)]
    pub processes: Vec<Process>,
}

/// Starts a command and returns at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Start {
    /// Its id.
    pub id: ExecId,
    /// The command.
    pub command: Command,
}

impl Operation for Start {
    const NAME: &'static str = "exec.start";
    const MUTATES: bool = true;
    type Output = Info;

    fn subject(&self) -> Subject<'_> {
        Subject::Command { id: &self.id, command: &self.command }
    }

    fn command_mut(&mut self) -> Option<&mut Command> {
        Some(&mut self.command)
    }
}

/// Starts a command, or finds the one with that id, waits for its end and returns its output.
///
/// The payload of the answer is the output in order of arrival; [`RunOutput`] says how to take it apart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Its id.
    pub id: ExecId,
    /// The command. If absent, an unknown id is `exec_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// The most bytes of output to return. If there is more, the beginning and the end are returned.
    #[serde(default = "default_cap")]
    pub output_cap: u64,
}

fn default_cap() -> u64 {
    DEFAULT_OUTPUT_CAP
}

impl Operation for Run {
    const NAME: &'static str = "exec.run";
    const MUTATES: bool = true;
    type Output = RunOutput;

    fn answer_within(&self) -> Option<std::time::Duration> {
        None
    }

    fn subject(&self) -> Subject<'_> {
        match &self.command {
            Some(command) => Subject::Command { id: &self.id, command },
            None => Subject::Exec(&self.id),
        }
    }

    fn command_mut(&mut self) -> Option<&mut Command> {
        self.command.as_mut()
    }

    fn action(&self) -> &'static str {
        "exec"
    }
}

/// The answer to [`Run`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutput {
    /// The command.
    #[serde(flatten)]
    pub info: Info,
    /// Which stream wrote how many bytes of the payload, in order.
    pub runs: Vec<(Stream, u64)>,
    /// Where bytes were left out, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

/// Bytes left out of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cut {
    /// The offset in the payload at which they are missing.
    pub at: u64,
    /// How many bytes are missing.
    pub bytes: u64,
}

/// One of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Starts a command, or finds the one with that id, and streams its output from an offset on.
///
/// The payload of the answer is a sequence of [records](crate::record), the last of which says how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attach {
    /// Its id.
    pub id: ExecId,
    /// The command. If absent, an unknown id is `exec_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// How many bytes of output to skip, because the caller has them.
    #[serde(default)]
    pub offset: u64,
}

impl Operation for Attach {
    const NAME: &'static str = "exec.attach";
    const MUTATES: bool = true;
    type Output = Attached;

    fn subject(&self) -> Subject<'_> {
        match &self.command {
            Some(command) => Subject::Command { id: &self.id, command },
            None => Subject::Exec(&self.id),
        }
    }

    fn command_mut(&mut self) -> Option<&mut Command> {
        self.command.as_mut()
    }

    fn action(&self) -> &'static str {
        if self.command.is_some() { "exec" } else { Self::NAME }
    }
}

/// The head of the answer to [`Attach`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attached {
    /// Whether this request started the command.
    pub started: bool,
}

/// Writes to a command's standard input. The payload is the data, at most 1 MiB.
///
/// The offset makes it safe to send twice: bytes that were accepted before are skipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Input {
    /// The command.
    pub id: ExecId,
    /// How many bytes were written before.
    pub offset: u64,
    /// Closes standard input after the data.
    #[serde(default)]
    pub close: bool,
}

impl Operation for Input {
    const NAME: &'static str = "exec.input";
    const MUTATES: bool = true;
    type Output = InputTaken;

    fn answer_within(&self) -> Option<std::time::Duration> {
        None
    }

    fn subject(&self) -> Subject<'_> {
        Subject::Input { id: &self.id, offset: self.offset, close: self.close }
    }
}

/// The answer to [`Input`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputTaken {
    /// How many bytes were accepted since the start.
    pub total: u64,
    /// Whether the command no longer reads: it has ended or closed its input.
    pub closed: bool,
}

/// Which processes get a signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Target {
    /// Everything that the command started, background processes included.
    #[default]
    All,
    /// The command's own process only.
    Main,
}

/// Sends a signal to a command. KILL to all is repeated until no process is left.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Signal {
    /// The command.
    pub id: ExecId,
    /// The signal's number.
    pub signal: i32,
    /// Which processes get it.
    #[serde(default)]
    pub target: Target,
}

impl Operation for Signal {
    const NAME: &'static str = "exec.signal";
    const MUTATES: bool = true;
    type Output = Signalled;

    fn subject(&self) -> Subject<'_> {
        Subject::Signal { id: &self.id, signal: self.signal, target: self.target }
    }
}

/// The answer to [`Signal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Signalled {
    /// How many processes got it; 0 when all had ended.
    pub processes: u32,
}

/// Describes one command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The command.
    pub id: ExecId,
}

impl Operation for Status {
    const NAME: &'static str = "exec.status";
    const MUTATES: bool = false;
    type Output = Info;

    fn subject(&self) -> Subject<'_> {
        Subject::Exec(&self.id)
    }
}

/// Lists commands, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct List {
    /// Only commands with live processes.
    pub running: bool,
}

impl Operation for List {
    const NAME: &'static str = "exec.list";
    const MUTATES: bool = false;
    type Output = Vec<Info>;

    fn subject(&self) -> Subject<'_> {
        Subject::Sandbox
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

    #[test]
    fn a_state_stands_beside_the_other_fields() {
        let json = r#"{"id":"a","command":"true","started_ms":1,"state":"lost","output_bytes":0,"log":"/l"}"#;
        assert_eq!(serde_json::from_str::<Info>(json).unwrap().state, State::Lost);
    }
}
