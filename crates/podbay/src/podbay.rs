//! The entry point: settings, provider, rules and audit in one object.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podbay_client::description::Description;
use podbay_client::provider::{Cleaned, Listed, Page, Pending, PoolStatus, Provided, Provider, Query, Stats, Wanted};
use podbay_client::{Error, ErrorCode, Origin, Owner, Result, Sandbox};
use tokio::sync::OnceCell;

use crate::audit::{Audit, RecordedEffect};
use crate::builder::Builder;
use crate::config::{Config, Mode, how_to_get_a_pool, how_to_suspend};
use crate::guard::{self, Lifecycle};
use crate::lazy::LazySandbox;
use crate::policy::Policy;
use crate::thread::{self, Recent};

/// Creates, finds, lists and deletes sandboxes. Every sandbox that it returns obeys its rules, and its audit log records
/// what is done with it.
///
/// Cheap to clone; all clones are the same object. The provider is set up when it is first needed.
///
/// ```no_run
/// # async fn example() -> podbay::Result<()> {
/// use podbay::Podbay;
///
/// let podbay = Podbay::from_env()?;
/// let sandbox = podbay.thread("acme", "conversation-7").await?;
/// println!("{}", sandbox.run("ls").await?.text());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Podbay(Arc<Inner>);

pub(crate) struct Inner {
    config: Config,
    policy: Policy,
    audit: Audit,
    /// Whether anything decides on operations or records them.
    guarded: bool,
    provider: OnceCell<Arc<dyn Provider>>,
    /// Which daemon was behind an id when this process last saw it: only to tell the caller when it is another.
    seen: Mutex<Recent>,
}

impl std::fmt::Debug for Podbay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Podbay").field("mode", &self.mode()).finish_non_exhaustive()
    }
}

impl Podbay {
    /// Sandboxes on this machine, with the default settings. No file and no environment variable is read.
    ///
    /// # Errors
    /// Never at present: the provider is set up when it is first needed.
    pub fn local() -> Result<Self> {
        Self::builder().set("mode", "local").build()
    }

    /// The settings of this process: the user's file, `podbay.toml` in the working directory, and `PODBAY_…` variables.
    ///
    /// # Errors
    /// When a setting is unknown or invalid, or the audit log can't be opened.
    pub fn from_env() -> Result<Self> {
        Self::new(Config::of_process()?)
    }

    /// These settings.
    ///
    /// # Errors
    /// When the audit log can't be opened.
    pub fn new(config: Config) -> Result<Self> {
        Self::builder().config(config).build()
    }

    /// Settings, rules, audit or a provider given by code. It starts with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of(config: Config, policy: Policy, audit: Audit, provider: Option<Arc<dyn Provider>>) -> Self {
        let guarded = audit.is_on() || !policy.is_empty();
        Self(Arc::new(Inner {
            config,
            policy,
            audit,
            guarded,
            provider: OnceCell::new_with(provider),
            seen: Mutex::default(),
        }))
    }

    /// The mode: `local`, `raw`, …
    pub fn mode(&self) -> &str {
        self.0.mode()
    }

    /// Whether sandboxes can be leashed to this process ([`Wanted::leashed`]): those on this machine can.
    pub fn can_leash(&self) -> bool {
        Mode::named(self.mode()).is_some_and(|mode| mode.leashes)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The rules that every sandbox from here obeys.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Sets up the provider now, to learn of a setting that doesn't fit before the first sandbox is needed.
    ///
    /// # Errors
    /// When a setting is invalid, or something that the provider needs is missing.
    pub async fn connect(&self) -> Result<()> {
        self.0.provider().await.map(drop)
    }

    /// Creates a sandbox. On this machine it is leashed: it ends when its last handle is dropped, at the latest with this process.
    ///
    /// # Errors
    /// When it can't be created.
    pub async fn create(&self) -> Result<Sandbox> {
        self.get_or_create(Wanted { leashed: self.can_leash(), ..Wanted::default() }).await
    }

    /// Finds the sandbox of an id, or creates it. Two callers with the same id get the same sandbox. It stays until it is deleted
    /// or its lifetime ends, unless [`Wanted::leashed`] is set.
    ///
    /// # Errors
    /// When it can't be created or reached.
    pub async fn get_or_create(&self, wanted: impl Into<Wanted>) -> Result<Sandbox> {
        let provided = self.provide(wanted.into()).await?;
        Ok(self.finished(provided, false))
    }

    /// Finds the sandbox of a tenant's thread, or creates it.
    ///
    /// [`Sandbox::replaced`] tells whether this object gave out another one for the same thread before.
    ///
    /// # Errors
    /// When it can't be created or reached.
    pub async fn thread(&self, tenant: &str, thread: &str) -> Result<Sandbox> {
        self.thread_with(tenant, thread, Wanted::default()).await
    }

    /// Like [`thread`](Self::thread), with labels and lifetimes for a sandbox that has to be created. The id is ignored.
    ///
    /// # Errors
    /// When it can't be created or reached.
    pub async fn thread_with(&self, tenant: &str, thread: &str, wanted: Wanted) -> Result<Sandbox> {
        let provided = self.provide(thread::wanted(tenant, thread, wanted)).await?;
        let instance = provided.sandbox.hello().await?.instance;
        let before = self.0.seen().insert(provided.id.clone(), instance.clone());
        let replaced = before.is_some_and(|before| before != instance);
        if replaced {
            tracing::info!(id = provided.id, "a thread's sandbox had ended and was replaced");
        }
        Ok(self.finished(provided, replaced))
    }

    /// Deletes the sandbox of a tenant's thread at the end of a conversation. Returns whether it existed.
    ///
    /// One that the same thread gets later doesn't count as [`replaced`](Sandbox::replaced).
    ///
    /// # Errors
    /// When something of it can't be removed.
    pub async fn release(&self, tenant: &str, thread: &str) -> Result<bool> {
        let id = thread::sandbox_id(tenant, thread);
        self.0.seen().remove(&id);
        self.delete(&id).await
    }

    /// Finds a sandbox that exists.
    ///
    /// # Errors
    /// `SandboxNotFound`.
    pub async fn reconnect(&self, id: &str) -> Result<Sandbox> {
        let work = async { self.0.provider().await?.reconnect(id).await };
        let provided = self.0.recorded(Lifecycle::Reconnect, id, work, RecordedEffect::reconnected).await?;
        Ok(self.finished(provided, false))
    }

    /// A sandbox that is created, or found, when it is first used.
    pub fn lazy(&self, wanted: impl Into<Wanted>) -> LazySandbox {
        LazySandbox::new(self.clone(), wanted.into())
    }

    /// Lists one page of sandboxes.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn list(&self, query: &Query) -> Result<Page> {
        self.0.provider().await?.list(query).await
    }

    /// Lists all sandboxes that match a query, however many pages they fill.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn list_all(&self, mut query: Query) -> Result<Vec<Listed>> {
        let mut all = Vec::new();
        loop {
            let page = self.list(&query).await?;
            all.extend(page.sandboxes);
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(all),
            }
        }
    }

    /// Describes a sandbox in full. This doesn't count as using it.
    ///
    /// # Errors
    /// `SandboxNotFound`.
    pub async fn describe(&self, id: &str) -> Result<Description> {
        // The provider asks podbayd too, over a connection of its own that no guard sees.
        let work = async { self.0.provider().await?.describe(id).await };
        self.0.recorded(Lifecycle::Describe, id, work, |_| RecordedEffect::default()).await
    }

    /// Deletes a sandbox and everything that belongs to it. Returns whether it existed.
    ///
    /// # Errors
    /// When something of it can't be removed.
    pub async fn delete(&self, id: &str) -> Result<bool> {
        self.0.delete(id).await
    }

    /// Ends a sandbox's processes and keeps what is on its persistent volumes. Its memory and all other files are lost.
    ///
    /// # Errors
    /// `unsupported` where a mode can't; `SandboxNotFound`.
    pub async fn suspend(&self, id: &str) -> Result<()> {
        let work = async { self.0.provider().await?.suspend(id).await.map_err(advise(how_to_suspend)) };
        self.0.recorded(Lifecycle::Suspend, id, work, |()| RecordedEffect::changed(true)).await
    }

    /// Makes a suspended sandbox usable again.
    ///
    /// # Errors
    /// `unsupported` where a mode can't; `SandboxNotFound`.
    pub async fn resume(&self, id: &str) -> Result<()> {
        let work = async { self.0.provider().await?.resume(id).await.map_err(advise(how_to_suspend)) };
        self.0.recorded(Lifecycle::Resume, id, work, |()| RecordedEffect::changed(true)).await
    }

    /// Deletes what sandboxes that ended left behind, and sandboxes that were idle for longer than `max_idle`.
    ///
    /// # Errors
    /// When they can't be listed. What couldn't be deleted is in the result.
    pub async fn cleanup(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let work = async { self.0.provider().await?.cleanup(max_idle).await };
        self.0.recorded(Lifecycle::Cleanup, "", work, RecordedEffect::cleaned).await
    }

    /// Counts sandboxes. One that wasn't used for `idle` counts as idle.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn stats(&self, idle: Duration) -> Result<Stats> {
        self.0.provider().await?.stats(idle).await
    }

    /// How full the warm pool is; all zero where there is none.
    ///
    /// # Errors
    /// When the cluster doesn't answer.
    pub async fn pool_status(&self) -> Result<PoolStatus> {
        self.0.provider().await?.pool_status().await
    }

    /// Fills the warm pool and returns when it is full.
    ///
    /// # Errors
    /// `unsupported` where there is no pool; otherwise when it can't be filled.
    pub async fn refill(&self) -> Result<PoolStatus> {
        let work = async { self.0.provider().await?.refill().await.map_err(advise(how_to_get_a_pool)) };
        self.0.recorded(Lifecycle::Refill, "", work, |_| RecordedEffect::default()).await
    }

    async fn provide(&self, wanted: Wanted) -> Result<Provided> {
        let id = wanted.id.clone().unwrap_or_else(new_id);
        let wanted = Wanted { id: Some(id.clone()), ..wanted };
        let work = async { self.0.provider().await?.get_or_create(&wanted).await };
        self.0.recorded(Lifecycle::Create, &id, work, RecordedEffect::provided).await
    }

    /// What every sandbox from here has: rules, audit, its origin.
    fn finished(&self, provided: Provided, replaced: bool) -> Sandbox {
        let Provided { id, sandbox, created, launch, leash, .. } = provided;
        let sandbox = match self.0.guarded {
            true => guard::guarded(&sandbox, &id, &self.0.policy, &self.0.audit),
            false => sandbox,
        };
        sandbox.with_origin(Origin { id, created, replaced, launch, owner: self.0.clone(), leash })
    }
}

/// An id for a sandbox that has none yet. With one that is known from the beginning, a sandbox whose creation was interrupted can
/// be deleted.
pub(crate) fn new_id() -> String {
    format!("pb-{:016x}", rand::random::<u64>())
}

/// Adds what to do to the failure of a provider that can't do something at all: only the table of modes knows which ones can.
fn advise(advice: fn() -> String) -> impl FnOnce(Error) -> Error {
    move |error| match error {
        Error::Operation(mut failure) if failure.code == ErrorCode::Unsupported => {
            failure.message = format!("{}: {}", failure.message, advice());
            Error::Operation(failure)
        }
        error => error,
    }
}

impl Inner {
    async fn provider(&self) -> Result<&Arc<dyn Provider>> {
        self.provider.get_or_try_init(|| self.config.provider()).await
    }

    /// The provider's own mode: one that was given by code needn't be that of the settings.
    fn mode(&self) -> &str {
        self.provider.get().map_or_else(|| self.config.mode(), |provider| provider.mode())
    }

    async fn recorded<T>(
        &self,
        operation: Lifecycle,
        id: &str,
        work: impl Future<Output = Result<T>>,
        effect: impl FnOnce(&T) -> RecordedEffect,
    ) -> Result<T> {
        guard::recorded(&self.audit, operation, id, self.mode(), work, effect).await
    }

    fn seen(&self) -> MutexGuard<'_, Recent> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner for Inner {
    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool> {
        let work = async move { self.provider().await?.delete(id).await };
        Box::pin(self.recorded(Lifecycle::Destroy, id, work, |deleted| RecordedEffect::changed(*deleted)))
    }
}
