//! `Podbay`: finds, creates, lists and deletes sandboxes.

use std::collections::HashMap;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{Either, PromiseRaw};
use napi_derive::napi;
use podbay::provider::{Phase, Query};
use serde_json::{Map, Value as Json};

use crate::arguments::{WantedSandbox, podbay};
use crate::audit::{AuditFunction, WarningFunction};
use crate::conversions::duration;
use crate::failure::Failure;
use crate::promise::{Cancellation, promise};
use crate::results::providers::{Cleaned, Page, PoolStatus, Stats};
use crate::sandbox::NativeSandbox;

/// How long a sandbox must be unused to count as idle by default.
const IDLE: Duration = Duration::from_secs(300);

/// What to list.
#[napi(object, object_to_js = false)]
#[derive(Default)]
#[allow(missing_docs)]
pub struct ListOptions {
    pub labels: Option<HashMap<String, String>>,
    pub status: Option<String>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

impl ListOptions {
    fn query(self) -> Result<Query, Failure> {
        let phase = match self.status {
            None => None,
            Some(status) => Some(Phase::ALL.into_iter().find(|phase| phase.as_str() == status).ok_or_else(|| {
                Failure::Argument(format!(
                    "unknown status {status:?}: use pending, warm, running, suspended or terminated"
                ))
            })?),
        };
        let labels = self.labels.unwrap_or_default().into_iter().collect();
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        Ok(Query { labels, phase, limit, cursor: self.cursor })
    }
}

/// Returns the id of a thread's sandbox, whether or not it exists.
#[napi]
pub fn sandbox_id(tenant: String, thread: String) -> String {
    podbay::thread::sandbox_id(&tenant, &thread)
}

/// Settings, provider, rules and audit in one object.
#[napi]
pub struct NativePodbay {
    inner: podbay::Podbay,
}

#[napi]
#[allow(missing_docs)]
impl NativePodbay {
    #[napi(constructor)]
    pub fn new(
        settings: Map<String, Json>,
        audit: Option<AuditFunction>,
        warn: Option<WarningFunction>,
    ) -> napi::Result<Self> {
        Ok(Self { inner: podbay(settings, audit, warn)? })
    }

    #[napi(getter)]
    pub fn mode(&self) -> String {
        self.inner.mode().to_owned()
    }

    /// A sandbox that is created, or found, when it is first used.
    #[napi]
    pub fn lazy(&self, wanted: WantedSandbox) -> napi::Result<NativeSandbox> {
        let wanted = wanted.wanted(self.inner.can_leash())?;
        Ok(NativeSandbox::new(self.inner.lazy(wanted)))
    }

    #[napi]
    pub fn get_or_create<'env>(
        &self,
        env: &'env Env,
        wanted: WantedSandbox,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, NativeSandbox>> {
        let (podbay, wanted) = (self.inner.clone(), wanted.wanted(false)?);
        promise(env, cancellation, async move {
            let sandbox = podbay.get_or_create(wanted).await?;
            Ok(NativeSandbox::of(&podbay, sandbox))
        })
    }

    /// A thread's sandbox, which knows whether it replaces one that ended.
    #[napi]
    pub fn thread<'env>(
        &self,
        env: &'env Env,
        wanted: WantedSandbox,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, NativeSandbox>> {
        let podbay = self.inner.clone();
        let (tenant, thread) = (wanted.tenant.clone().unwrap_or_default(), wanted.thread.clone().unwrap_or_default());
        let wanted = WantedSandbox { id: None, thread: None, ..wanted }.wanted(false)?;
        promise(env, cancellation, async move {
            let sandbox = podbay.thread_with(&tenant, &thread, wanted).await?;
            Ok(NativeSandbox::of(&podbay, sandbox))
        })
    }

    #[napi]
    pub fn release<'env>(
        &self,
        env: &'env Env,
        tenant: String,
        thread: String,
    ) -> napi::Result<PromiseRaw<'env, bool>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.release(&tenant, &thread).await?) })
    }

    #[napi]
    pub fn reconnect<'env>(
        &self,
        env: &'env Env,
        id: String,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, NativeSandbox>> {
        let podbay = self.inner.clone();
        promise(env, cancellation, async move {
            let sandbox = podbay.reconnect(&id).await?;
            Ok(NativeSandbox::of(&podbay, sandbox))
        })
    }

    #[napi]
    pub fn list<'env>(
        &self,
        env: &'env Env,
        options: ListOptions,
        tenant: Option<String>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Page>> {
        let (podbay, mut query) = (self.inner.clone(), options.query()?);
        if let Some(tenant) = tenant {
            query.labels.extend(podbay::thread::labels(&tenant, None));
        }
        promise(env, cancellation, async move { Ok(podbay.list(&query).await?.into()) })
    }

    #[napi]
    pub fn delete<'env>(&self, env: &'env Env, id: String) -> napi::Result<PromiseRaw<'env, bool>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.delete(&id).await?) })
    }

    #[napi]
    pub fn suspend<'env>(&self, env: &'env Env, id: String) -> napi::Result<PromiseRaw<'env, ()>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.suspend(&id).await?) })
    }

    #[napi]
    pub fn resume<'env>(&self, env: &'env Env, id: String) -> napi::Result<PromiseRaw<'env, ()>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.resume(&id).await?) })
    }

    #[napi]
    pub fn cleanup<'env>(
        &self,
        env: &'env Env,
        max_idle: Option<Either<f64, String>>,
    ) -> napi::Result<PromiseRaw<'env, Cleaned>> {
        let (podbay, max_idle) = (self.inner.clone(), duration(max_idle)?);
        promise(env, None, async move { Ok(podbay.cleanup(max_idle).await?.into()) })
    }

    #[napi]
    pub fn stats<'env>(
        &self,
        env: &'env Env,
        idle: Option<Either<f64, String>>,
    ) -> napi::Result<PromiseRaw<'env, Stats>> {
        let (podbay, idle) = (self.inner.clone(), duration(idle)?.unwrap_or(IDLE));
        promise(env, None, async move { Ok(podbay.stats(idle).await?.into()) })
    }

    #[napi]
    pub fn pool_status<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, PoolStatus>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.pool_status().await?.into()) })
    }

    #[napi]
    pub fn refill<'env>(&self, env: &'env Env) -> napi::Result<PromiseRaw<'env, PoolStatus>> {
        let podbay = self.inner.clone();
        promise(env, None, async move { Ok(podbay.refill().await?.into()) })
    }
}
