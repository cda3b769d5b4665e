//! Commands in a sandbox.

use podbay::{Command, DEFAULT_OUTPUT_CAP, Error, ExecId, Target};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use super::Sandbox;
use crate::coroutine::Coroutine;
use crate::exec::{AsyncExec, Exec, Running};
use crate::failure::Failure;
use crate::results::exec::{CommandInfo, ExecResult};
use crate::runtime::block;
use crate::text::{Content, Environment, Line, RemotePath, Seconds};
use crate::twins::twins;

/// How a command is to be run.
struct Manner {
    timeout: Option<Seconds>,
    cwd: Option<RemotePath>,
    env: Option<Environment>,
    stdin: bool,
    merge: bool,
}

impl Manner {
    fn command(self, line: Line) -> Command {
        let command = Command::from(line);
        Command {
            timeout_ms: self.timeout.map_or(command.timeout_ms, Seconds::milliseconds),
            cwd: self.cwd.map(|cwd| cwd.0),
            env: self.env.map(|env| env.0).unwrap_or_default(),
            stdin: self.stdin,
            merge: self.merge,
            ..command
        }
    }
}

/// The name of a command, as a user gave it.
fn exec_id(id: String) -> Result<ExecId, Failure> {
    Ok(ExecId::new(id).map_err(Error::from)?)
}

#[pymethods]
impl Sandbox {
    /// Starts a command and returns what it does, event by event.
    ///
    /// stdin: keeps standard input open for `Exec.write`.
    #[pyo3(signature = (command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false))]
    #[allow(clippy::too_many_arguments)]
    fn stream(
        &self,
        py: Python<'_>,
        command: Line,
        timeout: Option<Seconds>,
        cwd: Option<RemotePath>,
        env: Option<Environment>,
        stdin: bool,
        merge: bool,
    ) -> PyResult<Exec> {
        let command = Manner { timeout, cwd, env, stdin, merge }.command(command);
        let inner = self.inner.clone();
        block(py, async move { Running::spawn(inner.open().await?, command).await }).map(Exec::new)
    }

    /// Starts a command and returns what it does, event by event.
    ///
    /// stdin: keeps standard input open for `AsyncExec.write`.
    #[pyo3(signature = (command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false))]
    #[allow(clippy::too_many_arguments)]
    fn astream(
        &self,
        command: Line,
        timeout: Option<Seconds>,
        cwd: Option<RemotePath>,
        env: Option<Environment>,
        stdin: bool,
        merge: bool,
    ) -> Coroutine {
        let command = Manner { timeout, cwd, env, stdin, merge }.command(command);
        let inner = self.inner.clone();
        let work = async move { Running::spawn(inner.open().await?, command).await };
        Coroutine::settling("astream", work, |py, running| AsyncExec::new(running).into_py_any(py))
    }

    /// Returns what a command does that was started before, from an offset in its output on.
    #[pyo3(signature = (id, offset=0))]
    fn attach(&self, py: Python<'_>, id: String, offset: u64) -> PyResult<Exec> {
        let inner = self.inner.clone();
        block(py, async move { Running::attach(inner.open().await?, exec_id(id)?, offset).await }).map(Exec::new)
    }

    /// Returns what a command does that was started before, from an offset in its output on.
    #[pyo3(signature = (id, offset=0))]
    fn aattach(&self, id: String, offset: u64) -> Coroutine {
        let inner = self.inner.clone();
        let work = async move { Running::attach(inner.open().await?, exec_id(id)?, offset).await };
        Coroutine::settling("aattach", work, |py, running| AsyncExec::new(running).into_py_any(py))
    }
}

twins! {
    impl Sandbox {
        /// Runs a command to its end. One that fails is no error: its result says so.
        ///
        /// command: a line for the shell, or a sequence of program and arguments. timeout: seconds, enforced in the sandbox; 300
        /// unless given, 0 for ever. stdin: what it reads; nothing unless given. merge: both streams go one way, in exactly the
        /// order in which they were written. output_limit: the most bytes of output, of which the beginning and the end are kept.
        fn run / arun(
            inner, command: Line, timeout: Option<Seconds>, cwd: Option<RemotePath>, env: Option<Environment>,
            stdin: Option<Content>, merge: bool, output_limit: Option<u64>,
        ) [
            command, *, timeout=None, cwd=None, env=None, stdin=None, merge=false, output_limit=None
        ] -> ExecResult {
            let command = Manner { timeout, cwd, env, stdin: stdin.is_some(), merge }.command(command);
            let open = inner.open().await?;
            let cap = output_limit.unwrap_or(DEFAULT_OUTPUT_CAP);
            let output = match stdin {
                Some(input) => open.guarded.run_with_input(command, input.0, cap).await?,
                None => open.guarded.run_capped(command, cap).await?,
            };
            Ok(output.into())
        }

        /// Starts a command and leaves it running; `attach`, `status` and `kill` find it by its id.
        fn start / astart(
            inner, command: Line, timeout: Option<Seconds>, cwd: Option<RemotePath>, env: Option<Environment>, stdin: bool,
            merge: bool,
        ) [command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false] -> CommandInfo {
            let command = Manner { timeout, cwd, env, stdin, merge }.command(command);
            Ok(inner.open().await?.guarded.start(command).await?.into())
        }

        /// Tells about a command.
        fn status / astatus(inner, id: String) [id] -> CommandInfo {
            Ok(inner.open().await?.guarded.status(&exec_id(id)?).await?.into())
        }

        /// Lists commands, oldest first; with `running` only those of which something is alive.
        fn commands / acommands(inner, running: bool) [running=false] -> Vec<CommandInfo> {
            let list = inner.open().await?.guarded.commands(running).await?;
            Ok(list.into_iter().map(Into::into).collect())
        }

        /// Sends a signal to everything that a command started, or with `main` to its own process only; to how many.
        fn signal / asignal(inner, id: String, signal: i32, main: bool) [id, signal, *, main=false] -> u32 {
            let target = if main { Target::Main } else { Target::All };
            Ok(inner.open().await?.guarded.signal_to(&exec_id(id)?, signal, target).await?)
        }

        /// Kills everything that a command started; how many processes there were.
        fn kill / akill(inner, id: String) [id] -> u32 {
            Ok(inner.open().await?.guarded.kill(&exec_id(id)?).await?)
        }
    }
}
