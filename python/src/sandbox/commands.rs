//! Running commands.

use podbay::{Command, DEFAULT_OUTPUT_CAP, Error, ExecId, SharedExec, Target};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use super::Sandbox;
use crate::conversions::{CommandLine, Content, Environment, SandboxPath, Seconds};
use crate::coroutine::Coroutine;
use crate::exec::{AsyncExec, Exec};
use crate::failure::Failure;
use crate::results::exec::{CommandInfo, ExecResult};
use crate::runtime::block_on;
use crate::sync_async::sync_and_async;

/// Options of a command.
struct CommandOptions {
    timeout: Option<Seconds>,
    cwd: Option<SandboxPath>,
    env: Option<Environment>,
    stdin: bool,
    merge: bool,
}

impl CommandOptions {
    fn command(self, line: CommandLine) -> Command {
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

/// Parses a command's id.
pub(super) fn exec_id(id: String) -> Result<ExecId, Failure> {
    Ok(ExecId::new(id).map_err(Error::from)?)
}

#[pymethods]
impl Sandbox {
    /// Starts a command and follows its events.
    ///
    /// stdin: keep standard input open for `Exec.write`.
    #[pyo3(signature = (command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false))]
    #[allow(clippy::too_many_arguments)]
    fn stream(
        &self,
        py: Python<'_>,
        command: CommandLine,
        timeout: Option<Seconds>,
        cwd: Option<SandboxPath>,
        env: Option<Environment>,
        stdin: bool,
        merge: bool,
    ) -> PyResult<Exec> {
        let command = CommandOptions { timeout, cwd, env, stdin, merge }.command(command);
        let inner = self.inner.clone();
        block_on(py, async move { Ok::<_, Failure>(SharedExec::spawn(inner.open().await?, command).await?) })
            .map(Exec::new)
    }

    /// Starts a command and follows its events.
    ///
    /// stdin: keep standard input open for `AsyncExec.write`.
    #[pyo3(signature = (command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false))]
    #[allow(clippy::too_many_arguments)]
    fn astream(
        &self,
        command: CommandLine,
        timeout: Option<Seconds>,
        cwd: Option<SandboxPath>,
        env: Option<Environment>,
        stdin: bool,
        merge: bool,
    ) -> Coroutine {
        let command = CommandOptions { timeout, cwd, env, stdin, merge }.command(command);
        let inner = self.inner.clone();
        let work = async move { Ok::<_, Failure>(SharedExec::spawn(inner.open().await?, command).await?) };
        Coroutine::converting("astream", work, |py, running| AsyncExec::new(running).into_py_any(py))
    }

    /// Follows a command that was started earlier, from an offset in its output.
    #[pyo3(signature = (id, offset=0))]
    fn attach(&self, py: Python<'_>, id: String, offset: u64) -> PyResult<Exec> {
        let inner = self.inner.clone();
        block_on(
            py,
            async move { Ok::<_, Failure>(SharedExec::attach(inner.open().await?, exec_id(id)?, offset).await?) },
        )
        .map(Exec::new)
    }

    /// Follows a command that was started earlier, from an offset in its output.
    #[pyo3(signature = (id, offset=0))]
    fn aattach(&self, id: String, offset: u64) -> Coroutine {
        let inner = self.inner.clone();
        let work =
            async move { Ok::<_, Failure>(SharedExec::attach(inner.open().await?, exec_id(id)?, offset).await?) };
        Coroutine::converting("aattach", work, |py, running| AsyncExec::new(running).into_py_any(py))
    }
}

sync_and_async! {
    impl Sandbox {
        /// Runs a command and waits for it to end. A command that fails isn't an exception; its result says so.
        ///
        /// command: a shell command line, or a sequence of program and arguments. timeout: seconds, enforced in the sandbox
        /// (default 300, 0 for no limit). stdin: the command's standard input, empty by default. merge: send both streams through
        /// one pipe, so that their order is exact. output_limit: how many bytes of output to return; beginning and end are kept.
        fn run / arun(
            inner, command: CommandLine, timeout: Option<Seconds>, cwd: Option<SandboxPath>, env: Option<Environment>,
            stdin: Option<Content>, merge: bool, output_limit: Option<u64>,
        ) [
            command, *, timeout=None, cwd=None, env=None, stdin=None, merge=false, output_limit=None
        ] -> ExecResult {
            let command = CommandOptions { timeout, cwd, env, stdin: stdin.is_some(), merge }.command(command);
            let sandbox = inner.open().await?;
            let cap = output_limit.unwrap_or(DEFAULT_OUTPUT_CAP);
            let output = match stdin {
                Some(input) => sandbox.run_with_input(command, input.0, cap).await?,
                None => sandbox.run_capped(command, cap).await?,
            };
            Ok(output.into())
        }

        /// Starts a command in the background. Pass its id to `attach`, `status` or `kill`.
        fn start / astart(
            inner, command: CommandLine, timeout: Option<Seconds>, cwd: Option<SandboxPath>, env: Option<Environment>, stdin: bool,
            merge: bool,
        ) [command, *, timeout=None, cwd=None, env=None, stdin=false, merge=false] -> CommandInfo {
            let command = CommandOptions { timeout, cwd, env, stdin, merge }.command(command);
            Ok(inner.open().await?.start(command).await?.into())
        }

        /// Returns a command's current state.
        fn status / astatus(inner, id: String) [id] -> CommandInfo {
            Ok(inner.open().await?.status(&exec_id(id)?).await?.into())
        }

        /// Lists commands, oldest first. With `running`, only those that have running processes.
        fn commands / acommands(inner, running: bool) [running=false] -> Vec<CommandInfo> {
            let list = inner.open().await?.commands(running).await?;
            Ok(list.into_iter().map(Into::into).collect())
        }

        /// Sends a signal to all processes of a command, or with `main` only to its first one. Returns how many got it.
        fn signal / asignal(inner, id: String, signal: i32, main: bool) [id, signal, *, main=false] -> u32 {
            let target = if main { Target::Main } else { Target::All };
            Ok(inner.open().await?.signal_to(&exec_id(id)?, signal, target).await?)
        }

        /// Kills all processes of a command. Returns how many there were.
        fn kill / akill(inner, id: String) [id] -> u32 {
            Ok(inner.open().await?.kill(&exec_id(id)?).await?)
        }
    }
}
