//! What makes a request type an operation, and the table of all operations.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::RawPath;
use crate::exec::{Command, ExecId, Target};
use crate::files::Scope;

/// How long podbayd may take for an operation that usually takes milliseconds, on a machine that is busy with other things.
pub const PROMPT: Duration = Duration::from_secs(120);

/// How long podbayd may take for an operation whose work grows with what it finds: a tree to delete, or to copy to another
/// file system.
pub const LONG: Duration = Duration::from_secs(900);

/// One operation: the implementing type is its request.
///
/// An operation is one HTTP/2 request, `POST /v1/<NAME>`. Request and response are each a [message](crate::message).
pub trait Operation: Serialize + DeserializeOwned {
    /// The operation's name and the last part of its route.
    const NAME: &'static str;

    /// Whether it changes something. Such a request carries an id, and sending it twice has the effect of sending it once.
    const MUTATES: bool;

    /// Whether front ends offer it. Otherwise it is for providers alone.
    const FOR_USERS: bool = true;

    /// The head of the answer.
    type Output: Serialize + DeserializeOwned;

    /// What this request touches: rules decide on it and the audit log records it.
    fn subject(&self) -> Subject<'_>;

    /// The name in the audit log. It differs from [`NAME`](Self::NAME) where users know one action under one name and the
    /// protocol has several requests for it: running a command is `exec`, whether its output is collected or streamed.
    fn action(&self) -> &'static str {
        Self::NAME
    }

    /// How the request's paths are interpreted, for rules to narrow; nothing for an operation without paths.
    fn scope_mut(&mut self) -> Option<&mut Scope> {
        None
    }

    /// The command that this request starts, for clients that add to its environment.
    fn command_mut(&mut self) -> Option<&mut crate::exec::Command> {
        None
    }

    /// How long podbayd may take until it begins to answer a request that it has received. A caller that has waited longer
    /// takes it for stuck. `None` if the answer waits for something that may take any time: the end of a command, or a
    /// command that doesn't read its input.
    fn answer_within(&self) -> Option<Duration> {
        Some(PROMPT)
    }

    /// How many bytes of content were read or written, given the answer and the size of its payload.
    fn bytes(_answer: &Self::Output, _payload: u64) -> Option<u64> {
        None
    }
}

/// What a request touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The sandbox as a whole.
    Sandbox,
    /// A path; the working directory when the request names none.
    Path(Option<&'a RawPath>),
    /// Two paths.
    Move {
        /// The old path.
        from: &'a RawPath,
        /// The new path.
        to: &'a RawPath,
    },
    /// A search below a path; below the working directory when the request names none.
    Search {
        /// Where it starts.
        path: Option<&'a RawPath>,
        /// What is searched for: a glob pattern or a text.
        pattern: &'a [u8],
    },
    /// A text in a file. The payload is the old text followed by the new one.
    Edit {
        /// The file.
        path: &'a RawPath,
        /// How many bytes of the payload are the old text.
        old_length: u64,
    },
    /// A file to which the output of a command is written. The payload is what stands in the place of output that is left out.
    Output {
        /// The file.
        path: &'a RawPath,
        /// The command.
        id: &'a ExecId,
        /// The most bytes of output.
        cap: u64,
    },
    /// A command that is to be started.
    Command {
        /// Its id.
        id: &'a ExecId,
        /// The command.
        command: &'a Command,
    },
    /// A command that was started before.
    Exec(&'a ExecId),
    /// The standard input of a command that was started before. The payload is the data.
    Input {
        /// The command.
        id: &'a ExecId,
        /// How many bytes were written before.
        offset: u64,
        /// Whether standard input is closed after the data.
        close: bool,
    },
    /// A signal to a command that was started before.
    Signal {
        /// The command.
        id: &'a ExecId,
        /// The signal's number.
        signal: i32,
        /// Which processes get it.
        target: Target,
    },
}

impl std::fmt::Display for Subject<'_> {
    /// One line for people. A long command is cut.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sandbox => Ok(()),
            Self::Path(None) | Self::Search { path: None, .. } => f.write_str("."),
            Self::Path(Some(path))
            | Self::Search { path: Some(path), .. }
            | Self::Edit { path, .. }
            | Self::Output { path, .. } => path.fmt(f),
            Self::Move { from, to } => write!(f, "{from} -> {to}"),
            Self::Command { command, .. } => f.write_str(&command.summary()),
            Self::Exec(id) | Self::Input { id, .. } => id.fmt(f),
            Self::Signal { id, signal, .. } => write!(f, "{id} {signal}"),
        }
    }
}

/// What an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The connection and the sandbox itself.
    Session,
    /// Commands.
    Exec,
    /// Files.
    Files,
}

/// One row of the table of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The operation's name and the last part of its route.
    pub name: &'static str,
    /// Whether it changes something.
    pub mutates: bool,
    /// Whether front ends offer it.
    pub for_users: bool,
    /// What it is about.
    pub group: Group,
}

const fn facts<O: Operation>(group: Group) -> Facts {
    Facts { name: O::NAME, mutates: O::MUTATES, for_users: O::FOR_USERS, group }
}

/// Hands the list of all operations to a macro: those of sessions and commands, and the table of those on files.
macro_rules! every_operation {
    ($apply:ident) => {
        crate::file_operations!(every_operation $apply:);
    };
    ($apply:ident: $($section:ident {$(
        $(#[$doc:meta])* $module:ident: $request:ident -> $output:ident $(, from $new:ident)? $(, method $method:ident)?;
    )+})+) => {
        $apply! {
            Session in session: Hello, Lifetime, Protections;
            Exec in exec: Run, Start, Attach, Input, Signal, Status, List;
            Files in files: $($($request),+),+;
        }
    };
}
#[cfg(feature = "schema")]
pub(crate) use every_operation;

macro_rules! table {
    ($($group:ident in $module:ident: $($operation:ident),+;)+) => {
        /// All operations of this protocol version. Front ends are compared with those for users.
        pub static OPERATIONS: &[Facts] = &[$($(facts::<crate::$module::$operation>(Group::$group),)+)+];
    };
}
every_operation!(table);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Ls, Move, Read};

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let mut names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len(), "two operations have one name");
    }

    #[test]
    fn a_request_says_what_it_touches() {
        assert_eq!(Read::new("/a").subject().to_string(), "/a");
        assert_eq!(Ls::default().subject().to_string(), ".");
        assert_eq!(Move::new("a", "b").subject().to_string(), "a -> b");
        let id = ExecId::new("e1").unwrap();
        let signal = crate::exec::Signal { id: id.clone(), signal: 15, target: Target::All };
        assert_eq!(signal.subject().to_string(), "e1 15");
        let run = crate::exec::Run { id, command: Some(Command::argv(["echo", "a b"])), output_cap: 0 };
        assert_eq!((run.action(), run.subject().to_string()), ("exec", "echo a b".to_owned()));
    }
}
