//! Sandboxes as plain pods: no controller, no CRDs, no router, no special image.
//!
//! One Lease is the sandbox; the pod belongs to it and goes with it. Whoever creates the Lease has made the sandbox,
//! and everybody else attaches to it.

mod cleanup;
mod config;
mod creation;
mod describe;
pub(crate) mod egress;
mod inventory;
mod lease;
pub(crate) mod manifest;
mod network;
mod occupant;
mod overrides;
mod place;
mod pod_security;
mod pool;
mod pulse;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Preconditions;
use podbay_client::description::Description;
use podbay_client::provider::{Cleaned, Page, Pending, PoolStatus, Provided, Provider, Query, Stats, Wanted};

pub use config::{Config, DAY};
pub use manifest::CONTAINER;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, SANDBOX, STATE};
use crate::pod::health::ending;
use crate::retry::patiently;
use lease::Deletion;
use occupant::{Occupant, holder, holder_of};
use place::Place;
use pool::Pool;

/// Makes sandboxes as plain pods.
#[derive(Clone)]
pub struct Raw {
    /// Where sandboxes are, or to which they belong.
    home: Place,
    config: Arc<Config>,
    /// Where pods wait, if they do.
    pool: Option<Arc<Pool>>,
}

impl Raw {
    /// A provider for the namespace of a cluster.
    ///
    /// # Errors
    /// When the configuration can't work. The cluster isn't asked.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self> {
        config.check()?;
        let (home, config) = (Place::new(cluster), Arc::new(config));
        let pool = (config.warm_pool_size > 0).then(|| Pool::new(home.clone(), config.clone())).transpose()?;
        Ok(Self { home, config, pool: pool.map(Arc::new) })
    }

    /// Where the objects of a sandbox are.
    fn place(&self, name: &str) -> Place {
        if !self.config.namespace_per_sandbox {
            return self.home.clone();
        }
        let cluster = &self.home.cluster;
        Place::new(cluster.inside(&names::own_namespace(cluster.namespace(), name)))
    }

    async fn find(&self, id: &str) -> Result<Provided> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        let (place, lease) = match self.place(name).leases.attach(name).await {
            Ok(lease) => (self.place(name), lease),
            Err(error @ Error::SandboxNotFound(_)) => {
                // The packages before this one called a sandbox by its pod.
                let Some(name) = self.sandbox_of_pod(name).await? else { return Err(error) };
                (self.place(&name), self.place(&name).leases.attach(&name).await?)
            }
            Err(error) => return Err(error),
        };
        let holder = holder(&lease)?;
        let gone = |how: &str| {
            Err(Error::PodGone { pod: format!("{}/{}", place.cluster.namespace, holder.pod), how: how.into() })
        };
        match place.occupant(&lease, &holder).await? {
            Occupant::Live(pod) => self.attach(&place, &lease, *pod, false).await,
            Occupant::NotYet | Occupant::Warm(_) => gone("whoever made the sandbox didn't make its pod"),
            Occupant::Gone { how, .. } => gone(&how),
        }
    }

    async fn sandbox_of_pod(&self, pod: &str) -> Result<Option<String>> {
        if self.config.namespace_per_sandbox {
            return Ok(None);
        }
        let pod = patiently(|| self.home.pods.get_opt(pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        let labels = pod.and_then(|pod| pod.metadata.labels).unwrap_or_default();
        let ours = labels.get(names::MANAGED_BY).is_some_and(|by| by == names::PODBAY);
        Ok(labels.get(SANDBOX).filter(|_| ours).cloned())
    }

    /// Deletes a sandbox. The Lease goes first, so that nobody attaches to what is about to end; the pod directly after it,
    /// because the garbage collector takes its time.
    async fn remove(&self, id: &str) -> Result<bool> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        let place = self.place(name);
        let lease = match place.leases.find(name).await {
            Ok(lease) => lease,
            Err(Error::SandboxNotFound(_)) if self.config.namespace_per_sandbox => {
                return place.delete_namespace(self.home.cluster.namespace()).await;
            }
            Err(Error::SandboxNotFound(_)) => return self.remove_by_pod(name).await,
            Err(error) => return Err(error),
        };
        Ok(self.remove_lease(&place, &lease, lease::this(&lease)).await? == Deletion::Done)
    }

    /// Deletes the sandbox that a Lease is, if the Lease is the one that is meant.
    async fn remove_lease(&self, place: &Place, lease: &Lease, meant: Preconditions) -> Result<Deletion> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let occupant = place.occupant(lease, &holder(lease)?).await?;
        let deletion = place.leases.delete(name, meant).await?;
        if deletion != Deletion::Done {
            return Ok(deletion);
        }
        // A pod that is the Lease's stays so. The garbage collector would come for it as well, later.
        match occupant {
            Occupant::Live(pod) => place.delete_pod(&holder_of(&pod)).await?,
            Occupant::Gone { remains: Some(pod), .. } => place.delete_pod(&pod).await?,
            _ => {}
        }
        if self.config.namespace_per_sandbox {
            place.delete_namespace(self.home.cluster.namespace()).await?;
        }
        Ok(deletion)
    }

    /// Deletes what is called by its pod: a sandbox, or a pod that waits in a pool.
    async fn remove_by_pod(&self, name: &str) -> Result<bool> {
        let found = patiently(|| self.home.pods.get_opt(name)).await.map_err(Error::api("get the sandbox's pod"))?;
        let Some(pod) = found else { return Ok(false) };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        if labels.get(names::MANAGED_BY).is_none_or(|by| by != names::PODBAY) {
            return Ok(false);
        }
        if let Some(sandbox) = labels.get(SANDBOX) {
            let lease = match self.home.leases.find(sandbox).await {
                Err(Error::SandboxNotFound(_)) => return Ok(false),
                found => found?,
            };
            return Ok(self.remove_lease(&self.home, &lease, lease::this(&lease)).await? == Deletion::Done);
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
            return Err(Error::Config("sandboxes with namespaces of their own can't come from a pool".into()));
        }
        match &self.pool {
            Some(pool) => pool.fill().await,
            // Nobody is to wait: so those that do are too many.
            None => Pool::new(self.home.clone(), self.config.clone())?.fill().await,
        }
    }

    async fn look_at_pool(&self) -> Result<PoolStatus> {
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
        Box::pin(async { Ok(self.tell(id).await?) })
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
        Box::pin(async { Ok(self.look_at_pool().await?) })
    }

    fn refill(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(self.refill_pool().await?) })
    }
}
