//! Connects a command with this process: its output to ours, our input and signals to it.

mod input;
mod lines;
pub mod signals;
mod writer;

use podbay::{Event, Exec, Info, State, Stream};

use crate::failure::{FAILED, Failure};
use crate::output::Output;
use lines::Lines;
use writer::Writer;

/// What is passed on to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// Standard input.
    pub input: bool,
    /// Signals. Otherwise they end the session and the command keeps running.
    pub signals: bool,
}

/// How a session ended.
#[derive(Debug)]
pub enum SessionEnd {
    /// With the command.
    Ended(Box<Info>),
    /// By a signal to this process, while the command was still running.
    Interrupted(u8),
}

/// Whether standard input has anything to pass on. `/dev/null` has nothing, and Rust puts it there when standard input is closed.
pub fn has_input() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        let null = rustix::fs::stat("/dev/null");
        !null.is_ok_and(|null| (stat.st_dev, stat.st_ino) == (null.st_dev, null.st_ino))
    })
}

/// Streams a command's output until the command or this process ends.
///
/// # Errors
/// When the sandbox is lost, or nobody reads the output. The command may still be running then.
pub async fn follow(exec: &mut Exec, passing: Passing, output: &Output) -> Result<SessionEnd, Failure> {
    let (control, signalled) = (exec.control(), exec.control());
    // Before anything is shown: whoever sees the first line may answer it with Ctrl-C.
    let signals = signals::Signals::open()?;
    let events = events(exec, output.is_json());
    let input = async {
        match passing.input {
            true => input::pass(control, output).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ended = events => ended.map(SessionEnd::Ended),
        signal = signals::pass(signals, signalled, passing.signals) => signal.map(SessionEnd::Interrupted),
        failure = input => Err(failure),
    }
}

/// Writes what the command prints.
async fn events(exec: &mut Exec, json: bool) -> Result<Box<Info>, Failure> {
    let mut writer = Writer::default();
    let mut lines = Lines::default();
    if json {
        writer.write(Stream::Stdout, lines.started(exec.id())).await?;
    }
    loop {
        match exec.next().await? {
            Some(Event::Output(stream, data)) if json => {
                if let Some(line) = lines.output(stream, &data) {
                    writer.write(Stream::Stdout, line).await?;
                }
            }
            Some(Event::Output(stream, data)) => writer.write(stream, data).await?,
            Some(Event::Lost(bytes)) if json => writer.write(Stream::Stdout, lines.lost(bytes)).await?,
            Some(Event::Lost(bytes)) => {
                let text = format!("podbay: {bytes} bytes of output are missing here: the log keeps only 64 MiB\n");
                writer.write(Stream::Stderr, text.into()).await?;
            }
            Some(Event::End(info)) => {
                if json {
                    writer.write(Stream::Stdout, lines.end(&info, exit_code(&info).unwrap_or(FAILED))).await?;
                }
                writer.finish().await?;
                return Ok(info);
            }
            None => {
                return Err(Failure::new(
                    "the command's output was cut off; 'podbay ps --all' shows whether it still runs",
                ));
            }
        }
    }
}

/// The exit code for a command that has ended.
///
/// # Errors
/// When it is unknown how it ended.
pub fn exit_code(info: &Info) -> Result<u8, Failure> {
    match &info.state {
        // What isn't an exit code comes from a podbayd that was tampered with; it isn't taken for success.
        State::Exited(exit) => Ok(u8::try_from(exit.code).unwrap_or(u8::MAX)),
        _ => Err(Failure::new(format!(
            "the outcome of command {} is unknown, because its supervisor was killed. It wasn't run again",
            info.id
        ))
        .coded("lost")),
    }
}

/// Explains why a command was ended.
pub fn explain(info: &Info, output: &Output) {
    let State::Exited(exit) = &info.state else { return };
    if exit.timed_out {
        output.note("the command timed out (--timeout) and was ended with everything that it started");
    }
    if exit.out_of_memory {
        output.note("the command ran out of memory; raise the limit with --memory");
    }
}
