//! Sandboxes as plain pods: no controller, no CRDs, no router, no special image.
//!
//! One Lease is the sandbox; the pod belongs to it and is deleted with it. Whoever creates the Lease has created the
//! sandbox, and everybody else attaches to it.

mod attach;
mod cleanup;
mod config;
mod creation;
mod describe;
pub(crate) mod egress;
mod features;
mod inventory;
mod lease;
pub(crate) mod manifest;
mod namespace;
pub(crate) mod network;
mod overrides;
mod pod_security;
mod pod_state;
mod pool;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Preconditions;
use podbay_client::description::Description;
use podbay_client::provider::{Cleaned, Page, Pending, PoolStatus, Provided, Provider, Query, Stats, Wanted};

pub use config::Config;
pub use features::Features;
pub use manifest::CONTAINER;

use crate::api::retry::with_retry;
use crate::channel::in_cluster::PodAddresses;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, SANDBOX, STATE};
use crate::pod::health::ending;
use crate::pod::startup::PULL_PATIENCE;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, same};
use crate::{cleanup as reaper, heartbeat};
use namespace::SandboxNamespace;
use pod_state::{PodState, holder, holder_of};
use pool::Pool;

/// How often a client that reconnects looks again at a sandbox whose pod others replace.
const RECONNECTS: usize = 3;

/// Creates sandboxes as plain pods.
#[derive(Clone)]
pub struct Raw {
    /// The namespace that sandboxes are in, or belong to.
    home: SandboxNamespace,
    config: Arc<Config>,
    pool: Option<Arc<Pool>>,
    /// Pods' own addresses, where they are used.
    addresses: Option<Arc<PodAddresses>>,
    timing: Timing,
}

/// Intervals that aren't settings: tests can't wait for the usual ones.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How often activity is recorded in a Lease.
    pub heartbeat: Duration,
    /// How long a run of the reaper may take.
    pub reaper_run: Duration,
    /// How long a registry may be out of reach.
    pub pull_patience: Duration,
    /// How long an idle sandbox's podbayd may be silent, unless the idle limit is longer.
    pub reaper_silence: Duration,
    /// How long a Lease may name a pod of a pool without owning it.
    pub claiming: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: heartbeat::INTERVAL,
            reaper_run: reaper::RUN,
            pull_patience: PULL_PATIENCE,
            reaper_silence: reaper::SILENCE,
            claiming: lease::CLAIMING,
        }
    }
}

impl Raw {
    /// A provider for a namespace of a cluster.
    ///
    /// # Errors
    /// When the configuration can't work. The cluster isn't asked.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self> {
        config.check()?;
        let (home, config) = (SandboxNamespace::new(cluster), Arc::new(config));
        let addresses = PodAddresses::new(&home.cluster, config.addresses())?;
        let pool = || Pool::new(home.clone(), config.clone(), addresses.clone()).map(Arc::new);
        let pool = (config.warm_pool_size > 0).then(pool).transpose()?;
        Ok(Self { home, config, pool, addresses, timing: Timing::default() })
    }

    /// How pods' own addresses are used, if they are.
    pub(crate) fn addresses(&self) -> Option<&Arc<PodAddresses>> {
        self.addresses.as_ref()
    }

    /// The same provider with other intervals.
    #[doc(hidden)]
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// The namespace that the objects of a sandbox are in.
    fn namespace_of(&self, name: &str) -> SandboxNamespace {
        if !self.config.namespace_per_sandbox {
            return self.home.clone();
        }
        let cluster = &self.home.cluster;
        SandboxNamespace::new(cluster.inside(&names::own_namespace(cluster.namespace(), name)))
    }

    async fn find(&self, id: &str) -> Result<Provided> {
        let mut left = RECONNECTS;
        loop {
            left -= 1;
            match self.try_find(id).await {
                Err(Error::Superseded(_)) if left > 0 => {}
                found => return found,
            }
        }
    }

    async fn try_find(&self, id: &str) -> Result<Provided> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        let (namespace, lease) = match self.namespace_of(name).leases.attach(name).await {
            Ok(lease) => (self.namespace_of(name), lease),
            Err(error @ Error::SandboxNotFound(_)) => {
                // The packages that this one replaces called a sandbox by its pod.
                let Some(name) = self.sandbox_of_pod(name).await? else { return Err(error) };
                (self.namespace_of(&name), self.namespace_of(&name).leases.attach(&name).await?)
            }
            Err(error) => return Err(error),
        };
        let holder = holder(&lease)?;
        let gone = |how: &str| {
            Err(Error::PodGone { pod: format!("{}/{}", namespace.cluster.namespace, holder.pod), how: how.into() })
        };
        match namespace.pod_state(&lease, &holder).await? {
            PodState::Live(pod) => self.attach(&namespace, &lease, *pod, None).await,
            PodState::NotCreated | PodState::Warm(_) => gone("the sandbox's creator never created it"),
            PodState::Gone { how, .. } => gone(&how),
        }
    }

    async fn sandbox_of_pod(&self, pod: &str) -> Result<Option<String>> {
        if self.config.namespace_per_sandbox {
            return Ok(None);
        }
        let pod = with_retry(|| self.home.pods.get_opt(pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        let labels = pod.and_then(|pod| pod.metadata.labels).unwrap_or_default();
        let ours = labels.get(names::MANAGED_BY).is_some_and(|by| by == names::PODBAY);
        Ok(labels.get(SANDBOX).filter(|_| ours).cloned())
    }

    async fn remove(&self, id: &str) -> Result<bool> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        let namespace = self.namespace_of(name);
        let own_namespace = self.read_own_namespace(&namespace).await?;
        match (namespace.leases.find(name).await, own_namespace) {
            (Ok(lease), _) => self.remove_lease(&namespace, &lease).await,
            (Err(Error::SandboxNotFound(_)), Some(read)) => namespace.delete_namespace(&read, None).await,
            (Err(Error::SandboxNotFound(_)), None) if self.config.namespace_per_sandbox => Ok(false),
            (Err(Error::SandboxNotFound(_)), None) => self.remove_by_pod(name).await,
            (Err(error), _) => Err(error),
        }
    }

    /// Deletes a sandbox because somebody said so: whoever uses it.
    async fn remove_lease(&self, namespace: &SandboxNamespace, lease: &Lease) -> Result<bool> {
        let state = namespace.pod_state(lease, &holder(lease)?).await?;
        let deletion = self.delete_sandbox(namespace, lease, same(lease), state.owned()).await?;
        Ok(deletion == Deletion::Done)
    }

    /// Deletes a sandbox if its Lease is as the preconditions say. The Lease goes first, so that nobody attaches to what is
    /// about to end; the pod directly after it, because the garbage collector takes its time.
    async fn delete_sandbox(
        &self,
        namespace: &SandboxNamespace,
        lease: &Lease,
        preconditions: Preconditions,
        pod: Option<&Pod>,
    ) -> Result<Deletion> {
        let own_namespace = self.read_own_namespace(namespace).await?;
        let deletion = namespace.leases.delete(lease.id(), preconditions).await?;
        if deletion != Deletion::Done {
            return Ok(deletion);
        }
        if let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            namespace.delete_pod(&holder_of(pod)).await?;
        }
        if let Some(read) = own_namespace {
            namespace.delete_namespace(&read, Some(lease)).await?;
        }
        Ok(deletion)
    }

    /// The sandbox's own namespace, if it has one. To be read before the Lease is looked for or deleted: whoever takes the
    /// namespace over after that changes it.
    async fn read_own_namespace(
        &self,
        namespace: &SandboxNamespace,
    ) -> Result<Option<k8s_openapi::api::core::v1::Namespace>> {
        match self.config.namespace_per_sandbox {
            true => namespace.namespace(self.home.cluster.namespace()).await,
            false => Ok(None),
        }
    }

    /// Deletes what is called by its pod: a sandbox, or a pod that waits in a pool.
    async fn remove_by_pod(&self, name: &str) -> Result<bool> {
        let found = with_retry(|| self.home.pods.get_opt(name)).await.map_err(Error::api("get the sandbox's pod"))?;
        let Some(pod) = found else { return Ok(false) };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        if labels.get(names::MANAGED_BY).is_none_or(|by| by != names::PODBAY) {
            return Ok(false);
        }
        if let Some(sandbox) = labels.get(SANDBOX) {
            return match self.home.leases.find(sandbox).await {
                Err(Error::SandboxNotFound(_)) => Ok(false),
                found => self.remove_lease(&self.home, &found?).await,
            };
        }
        match labels.get(STATE) {
            Some(state) if state != CLAIMED && ending(&pod, CONTAINER).is_none() => {
                pool::claim::discard(&self.home, &pod, state).await
            }
            _ => Ok(false),
        }
    }

    async fn refill_pool(&self) -> Result<PoolStatus> {
        if self.config.namespace_per_sandbox {
            return Err(Error::Config(
                "a pool can't be used with namespace_per_sandbox: a pod can't move to another namespace".into(),
            ));
        }
        match &self.pool {
            Some(pool) => pool.fill().await,
            // The pool's size is zero: this removes every pod that waits.
            None => Pool::new(self.home.clone(), self.config.clone(), self.addresses.clone())?.fill().await,
        }
    }

    async fn read_pool_status(&self) -> Result<PoolStatus> {
        match &self.pool {
            Some(pool) => pool.status().await,
            None => Ok(PoolStatus::default()),
        }
    }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").field("cluster", &self.home.cluster).finish_non_exhaustive()
    }
}

impl Provider for Raw {
    fn mode(&self) -> &'static str {
        "raw"
    }

    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided> {
        Box::pin(async { Ok(self.provide(wanted).await?) })
    }

    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided> {
        Box::pin(async { Ok(self.find(id).await?) })
    }

    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page> {
        Box::pin(async { Ok(self.page(query).await?) })
    }

    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, Description> {
        Box::pin(async { Ok(self.description(id).await?) })
    }

    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool> {
        Box::pin(async { Ok(self.remove(id).await?) })
    }

    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned> {
        Box::pin(async move { Ok(self.clean(max_idle).await?) })
    }

    fn stats(&self, idle: Duration) -> Pending<'_, Stats> {
        Box::pin(async move { Ok(self.count(idle).await?) })
    }

    fn pool_status(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(self.read_pool_status().await?) })
    }

    fn refill(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(self.refill_pool().await?) })
    }
}
