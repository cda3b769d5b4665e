//! Running commands: their events, their input, their end. `src/exec.ts` is what users see.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use podbay::{Command, ExecId, Sandbox, SharedExec};

use crate::conversions::{copied, number};
use crate::failure::Failure;
use crate::promise::{Cancellation, promise};
use crate::results::exec::{CommandInfo, ExecEvent};

/// A running command.
#[napi]
pub struct NativeExec {
    running: Arc<SharedExec>,
}

impl NativeExec {
    /// Starts a command.
    pub async fn spawn(sandbox: Sandbox, command: Command) -> Result<Self, Failure> {
        Ok(Self { running: SharedExec::spawn(sandbox, command).await? })
    }

    /// Follows a command that was started earlier.
    pub async fn attach(sandbox: Sandbox, id: ExecId, offset: u64) -> Result<Self, Failure> {
        Ok(Self { running: SharedExec::attach(sandbox, id, offset).await? })
    }
}

#[napi]
#[allow(missing_docs)]
impl NativeExec {
    #[napi(getter)]
    pub fn id(&self) -> String {
        self.running.id().as_str().to_owned()
    }

    #[napi(getter)]
    pub fn offset(&self) -> i64 {
        number(self.running.offset())
    }

    #[napi(getter)]
    pub fn ended(&self) -> bool {
        self.running.ended().is_some()
    }

    #[napi]
    pub fn next<'env>(
        &self,
        env: &'env Env,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Option<ExecEvent>>> {
        let running = self.running.clone();
        promise(env, cancellation, async move { Ok(running.next().await?.map(Into::into)) })
    }

    #[napi]
    pub fn write<'env>(&self, env: &'env Env, data: &[u8]) -> napi::Result<PromiseRaw<'env, bool>> {
        let (running, data) = (self.running.clone(), copied(data));
        promise(env, None, async move { Ok(running.write(data).await?) })
    }

    #[napi]
    pub fn close_input<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, ()>> {
        let running = self.running.clone();
        promise(env, None, async move { Ok(running.close_input().await?) })
    }

    #[napi]
    pub fn signal<'env>(&self, env: &'env Env, signal: i32) -> napi::Result<PromiseRaw<'env, u32>> {
        let running = self.running.clone();
        promise(env, None, async move { Ok(running.signal(signal).await?) })
    }

    #[napi]
    pub fn kill<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, u32>> {
        let running = self.running.clone();
        promise(env, None, async move { Ok(running.kill().await?) })
    }

    #[napi]
    pub fn wait<'env>(
        &self,
        env: &'env Env,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, CommandInfo>> {
        let running = self.running.clone();
        promise(env, cancellation, async move { Ok(running.wait().await?.into()) })
    }
}
