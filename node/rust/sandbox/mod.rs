//! `Sandbox`: created on first use, deleted on close. `src/sandbox.ts` documents its operations.

mod commands;
mod files;
mod transfers;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use podbay::{LazySandbox, Podbay};

use crate::promise::{Cancellation, promise};
use crate::results::session::{ProtectionReport, Welcome};

/// A sandbox that is created, or found, when it is first used.
#[napi]
pub struct NativeSandbox {
    inner: LazySandbox,
}

impl NativeSandbox {
    /// Wraps a sandbox that may not exist yet.
    pub fn new(inner: LazySandbox) -> Self {
        Self { inner }
    }

    /// Wraps a sandbox that exists.
    pub fn of(podbay: &Podbay, sandbox: podbay::Sandbox) -> Self {
        Self { inner: LazySandbox::of(podbay, sandbox) }
    }
}

#[napi]
#[allow(missing_docs)]
impl NativeSandbox {
    #[napi(getter)]
    pub fn id(&self) -> String {
        self.inner.id()
    }

    #[napi(getter)]
    pub fn mode(&self) -> String {
        self.inner.podbay().mode().to_owned()
    }

    #[napi(getter)]
    pub fn created(&self) -> Option<bool> {
        self.inner.created()
    }

    #[napi(getter)]
    pub fn replaced(&self) -> bool {
        self.inner.replaced()
    }

    #[napi(getter)]
    pub fn closed(&self) -> bool {
        self.inner.closed()
    }

    #[napi]
    pub fn open<'env>(
        &self,
        env: &'env Env,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, ()>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move {
            inner.open().await?;
            Ok(())
        })
    }

    #[napi]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, ()>> {
        let inner = self.inner.clone();
        promise(env, None, async move { Ok(inner.close().await?) })
    }

    #[napi]
    pub fn destroy<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, bool>> {
        let inner = self.inner.clone();
        promise(env, None, async move { Ok(inner.destroy().await?) })
    }

    #[napi]
    pub fn hello<'env>(
        &self,
        env: &'env Env,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Welcome>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move { Ok(inner.open().await?.hello().await?.into()) })
    }

    #[napi]
    pub fn protections<'env>(
        &self,
        env: &'env Env,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, ProtectionReport>> {
        let inner = self.inner.clone();
        promise(env, cancellation, async move { Ok(inner.open().await?.protection().await?.into()) })
    }
}
