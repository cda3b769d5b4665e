//! Running commands.

use std::collections::HashMap;

use napi::Env;
use napi::bindgen_prelude::{Either, PromiseRaw, Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::{Command, DEFAULT_OUTPUT_CAP, Error, ExecId, Target};

use super::NativeSandbox;
use crate::conversions::{copied, milliseconds, natural, optional_path, path};
use crate::exec::NativeExec;
use crate::failure::Failure;
use crate::promise::{Cancellation, promise};
use crate::results::exec::{CommandInfo, ExecResult};

/// A shell command line, or a program and its arguments.
type CommandLine = Either<Utf16String, Vec<Utf16String>>;

/// Options of a command.
#[napi(object, object_to_js = false)]
#[allow(missing_docs)]
pub struct CommandOptions {
    pub timeout: Option<f64>,
    pub cwd: Option<Utf16String>,
    pub env: Option<HashMap<String, Utf16String>>,
    pub stdin: Option<bool>,
    pub merge: Option<bool>,
}

impl CommandOptions {
    fn command(self, line: CommandLine) -> Result<Command, Failure> {
        let command = match line {
            Either::A(line) => Command::shell(path(&line)),
            Either::B(words) if words.is_empty() => {
                let message = "the command is an empty array: its first item names the program";
                return Err(Failure::Argument(message.to_owned()));
            }
            Either::B(words) => Command::argv(words.iter().map(|word| path(word)).collect::<Vec<_>>()),
        };
        let env = self.env.unwrap_or_default();
        Ok(Command {
            timeout_ms: self.timeout.map_or(Ok(command.timeout_ms), milliseconds)?,
            cwd: optional_path(self.cwd),
            env: env.iter().map(|(name, value)| (name.clone(), path(value))).collect(),
            stdin: self.stdin.unwrap_or(false),
            merge: self.merge.unwrap_or(false),
            ..command
        })
    }
}

/// Parses a command's id.
pub(super) fn exec_id(id: String) -> Result<ExecId, Failure> {
    Ok(ExecId::new(id).map_err(Error::from)?)
}

#[napi]
#[allow(missing_docs)]
impl NativeSandbox {
    #[napi]
    pub fn run<'env>(
        &self,
        env: &'env Env,
        command: CommandLine,
        options: CommandOptions,
        input: Option<Uint8Array>,
        output_limit: Option<i64>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, ExecResult>> {
        let (inner, input) = (self.inner.clone(), input.map(|input| copied(&input)));
        let command = Command { stdin: input.is_some(), ..options.command(command)? };
        let cap = output_limit.map_or(DEFAULT_OUTPUT_CAP, natural);
        promise(env, cancellation, async move {
            let sandbox = inner.open().await?;
            let output = match input {
                Some(input) => sandbox.run_with_input(command, input, cap).await?,
                None => sandbox.run_capped(command, cap).await?,
            };
            Ok(output.into())
        })
    }

    #[napi]
    pub fn stream<'env>(
        &self,
        env: &'env Env,
        command: CommandLine,
        options: CommandOptions,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, NativeExec>> {
        let (inner, command) = (self.inner.clone(), options.command(command)?);
        promise(env, cancellation, async move { NativeExec::spawn(inner.open().await?, command).await })
    }

    #[napi]
    pub fn attach<'env>(
        &self,
        env: &'env Env,
        id: String,
        offset: i64,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, NativeExec>> {
        let (inner, offset) = (self.inner.clone(), natural(offset));
        promise(env, cancellation, async move { NativeExec::attach(inner.open().await?, exec_id(id)?, offset).await })
    }

    #[napi]
    pub fn start<'env>(
        &self,
        env: &'env Env,
        command: CommandLine,
        options: CommandOptions,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, CommandInfo>> {
        let (inner, command) = (self.inner.clone(), options.command(command)?);
        promise(env, cancellation, async move { Ok(inner.open().await?.start(command).await?.into()) })
    }

    #[napi]
    pub fn status<'env>(
        &self,
        env: &'env Env,
        id: String,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, CommandInfo>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move { Ok(inner.open().await?.status(&exec_id(id)?).await?.into()) })
    }

    #[napi]
    pub fn commands<'env>(
        &self,
        env: &'env Env,
        running: bool,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Vec<CommandInfo>>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move {
            let list = inner.open().await?.commands(running).await?;
            Ok(list.into_iter().map(Into::into).collect())
        })
    }

    #[napi]
    pub fn signal<'env>(
        &self,
        env: &'env Env,
        id: String,
        signal: i32,
        main: bool,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, u32>> {
        let (inner, target) = (self.inner.clone(), if main { Target::Main } else { Target::All });
        promise(
            env,
            cancellation,
            async move { Ok(inner.open().await?.signal_to(&exec_id(id)?, signal, target).await?) },
        )
    }

    #[napi]
    pub fn kill<'env>(
        &self,
        env: &'env Env,
        id: String,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, u32>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move { Ok(inner.open().await?.kill(&exec_id(id)?).await?) })
    }
}
