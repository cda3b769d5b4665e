//! A command's `record` file: what was started, written by podbayd, and how it ended, written by the shim.
//!
//! Two lines of JSON in a space of fixed size, which is written in full at the beginning, so that the second line can be
//! written on a full disk. A line counts once its final newline is there, so a half-written outcome is none.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use podbay_proto::exec::{Command, State};
use podbay_proto::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

/// The file's name in the command's directory.
pub const RECORD: &str = "record";

/// The size of the space for both lines.
pub const SPACE: usize = 8 << 10;

/// The most of an error's message that is kept.
const MESSAGE: usize = 1 << 10;

/// What was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    /// The command, shortened.
    pub command: String,
    /// When: milliseconds since 1970.
    pub started_ms: u64,
    /// How long it may run; 0 is forever.
    pub timeout_ms: u64,
    /// How long after TERM it is killed.
    pub grace_ms: u64,
}

impl Begun {
    /// A command that starts now.
    pub fn now(command: &Command) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            // Bounded here as well, to leave room for the outcome.
            command: command.summary().chars().take(256).collect(),
            started_ms: now.as_millis() as u64,
            timeout_ms: command.timeout_ms,
            grace_ms: command.grace_ms,
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// `Exited` or `Failed`; `Lost` if nobody knows.
    pub state: State,
    /// How many bytes it printed.
    pub output_bytes: u64,
    /// How many of these the log no longer has.
    pub dropped_bytes: u64,
    /// How many bytes of standard input it was given.
    pub input_bytes: u64,
}

impl CommandOutcome {
    /// The outcome of a command of which only the log is known.
    pub fn lost(output_bytes: u64) -> Self {
        Self { state: State::Lost, output_bytes, dropped_bytes: 0, input_bytes: 0 }
    }

    /// The outcome of a command that didn't run.
    pub fn failed(error: Error) -> Self {
        Self { state: State::Failed(error), output_bytes: 0, dropped_bytes: 0, input_bytes: 0 }
    }
}

/// The content of a record file.
#[derive(Debug)]
pub struct ExecRecord {
    /// What was started.
    pub begun: Begun,
    /// How it ended, if that was written.
    pub outcome: Option<CommandOutcome>,
    /// The offset of the outcome's line.
    pub outcome_at: u64,
}

impl ExecRecord {
    /// Writes the first line, and blanks for the second. Returns the second line's offset.
    ///
    /// # Errors
    /// When there is no room.
    pub fn begin(file: &File, begun: &Begun) -> io::Result<u64> {
        let mut space = line(begun)?;
        let outcome_at = space.len();
        space.resize(SPACE, b' ');
        file.write_all_at(&space, 0)?;
        Ok(outcome_at as u64)
    }

    /// Writes the second line.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn end(file: &File, outcome_at: u64, outcome: &CommandOutcome) -> io::Result<()> {
        let room = (SPACE as u64).saturating_sub(outcome_at) as usize;
        let mut json = line(outcome)?;
        if json.len() > room {
            json = line(&shortened(outcome))?;
        }
        if json.len() > room {
            return Err(io::Error::other("the outcome is too long for the record"));
        }
        file.write_all_at(&json, outcome_at)
    }

    /// Reads both lines.
    ///
    /// # Errors
    /// When the file can't be read, or isn't a record.
    pub fn read(file: &File) -> io::Result<Self> {
        let mut space = vec![0; SPACE];
        let mut count = 0;
        while count < SPACE {
            match file.read_at(&mut space[count..], count as u64)? {
                0 => break,
                more => count += more,
            }
        }
        let mut lines = space[..count].split_inclusive(|byte| *byte == b'\n');
        let mut next = || lines.next().and_then(|line| line.strip_suffix(b"\n"));
        let first =
            next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a command's record is damaged"))?;
        let begun = serde_json::from_slice(first)?;
        let outcome = next().and_then(|json| serde_json::from_slice::<CommandOutcome>(json).ok());
        // Shims write only these.
        let outcome = outcome.filter(|outcome| matches!(outcome.state, State::Exited(_) | State::Failed(_)));
        Ok(Self { begun, outcome, outcome_at: first.len() as u64 + 1 })
    }
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec(value)?;
    json.push(b'\n');
    Ok(json)
}

/// The outcome without what may be long: the path in an error, and the end of its message.
fn shortened(outcome: &CommandOutcome) -> CommandOutcome {
    let state = match &outcome.state {
        State::Failed(error) => {
            let message: String = error.message.chars().take(MESSAGE / 4).collect();
            State::Failed(Error::new(error.code, message).with_errno(error.errno))
        }
        State::Exited(_) | State::Running | State::Lost => outcome.state.clone(),
    };
    CommandOutcome { state, ..outcome.clone() }
}

/// Why a command couldn't be started.
pub fn not_started(why: impl std::fmt::Display) -> CommandOutcome {
    CommandOutcome::failed(Error::new(ErrorCode::SpawnFailed, why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(message: &str) -> CommandOutcome {
        CommandOutcome::failed(Error::at(ErrorCode::NotFound, &"/x".repeat(2000).into(), message))
    }

    #[test]
    fn a_half_written_outcome_is_none() {
        let file = tempfile::tempfile().unwrap();
        let begun = Begun::now(&Command::shell("true"));
        let at = ExecRecord::begin(&file, &begun).unwrap();
        assert!(ExecRecord::read(&file).unwrap().outcome.is_none());
        let whole = line(&CommandOutcome::failed(Error::new(ErrorCode::Io, "x"))).unwrap();
        for cut in 0..whole.len() {
            file.write_all_at(&whole[..cut], at).unwrap();
            assert!(ExecRecord::read(&file).unwrap().outcome.is_none(), "{cut}");
        }
        file.write_all_at(&whole, at).unwrap();
        let record = ExecRecord::read(&file).unwrap();
        assert!(record.outcome.is_some());
        assert_eq!((record.begun.started_ms, record.outcome_at), (begun.started_ms, at));
    }

    #[test]
    fn an_outcome_always_has_room() {
        let file = tempfile::tempfile().unwrap();
        let at = ExecRecord::begin(&file, &Begun::now(&Command::shell("x".repeat(100_000)))).unwrap();
        ExecRecord::end(&file, at, &outcome(&"ü\n\"".repeat(10_000))).unwrap();
        let read = ExecRecord::read(&file).unwrap().outcome.unwrap();
        assert!(matches!(read.state, State::Failed(error) if error.code == ErrorCode::NotFound));
        assert_eq!(file.metadata().unwrap().len(), SPACE as u64);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        assert!(ExecRecord::read(&file).is_err());
        file.write_all_at(&[b'x'; 3 * SPACE], 0).unwrap();
        assert!(ExecRecord::read(&file).is_err());
    }
}
