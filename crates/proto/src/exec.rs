//! Commands: starting them, reading their output, talking to them while they run.
//!
//! The caller names each command with an [`ExecId`]. Starting an id that exists attaches to it: a command runs once,
//! however often its request is sent.

mod command;

use serde::{Deserialize, Serialize};

use crate::{Error, Operation, RawPath, Subject};

pub use command::{Command, CommandLimits, ExecId, Program};

/// The default time limit of a command, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 300_000;

/// How many bytes of output a [`Run`] returns by default.
pub const DEFAULT_OUTPUT_CAP: u64 = 1 << 20;

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
    fn a_state_stands_beside_the_other_fields() {
        let json = r#"{"id":"a","command":"true","started_ms":1,"state":"lost","output_bytes":0,"log":"/l"}"#;
        assert_eq!(serde_json::from_str::<Info>(json).unwrap().state, State::Lost);
    }
}
