//! Sandboxes created by the controller of kubernetes-sigs/agent-sandbox: templates, claims, warm pools.
//!
//! One SandboxClaim is the sandbox; the controller binds it to a Sandbox, which has the pod. Whoever creates the claim has
//! created the sandbox, and everybody else attaches to it.

mod binding;
mod by_name;
pub(crate) mod claims;
mod cleanup;
mod config;
mod creation;
mod describe;
mod features;
mod heartbeat;
mod inventory;
mod metadata;
mod pool;
mod readiness;
pub(crate) mod resources;
mod suspension;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use podbay_client::description::Description;
use podbay_client::provider::{Cleaned, Page, Pending, PoolStatus, Provided, Provider, Query, Stats, Wanted};
use tokio::sync::Mutex;

pub use config::{Config, Runtime};
pub use features::Features;

use crate::channel::in_cluster::PodAddresses;
use crate::channel::router::Router;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::names;
use crate::pod::container::{Container, address};
use crate::sandbox_object::SandboxObjects;
use claims::Claims;

/// Creates sandboxes by claims.
#[derive(Clone)]
pub struct AgentSandbox {
    claims: Claims,
    config: Arc<Config>,
    /// The pool that was found for the configured template.
    found_pool: Arc<Mutex<Option<String>>>,
    /// Pods' own addresses, where they are used.
    addresses: Option<Arc<PodAddresses>>,
    /// The router to upstream's runtime, where that one's API leads to podbayd.
    stock: Option<Arc<Router>>,
    timing: Timing,
}

/// Intervals that aren't settings: tests can't wait for the usual ones.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How often podbayd is asked at least whether a sandbox is used, while somebody has it open.
    pub heartbeat: Duration,
    /// The end of a sandbox in use is moved when one of so many parts of its idle time is over.
    pub renewal: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self { heartbeat: heartbeat::LONGEST, renewal: claims::RENEWAL }
    }
}

impl AgentSandbox {
    /// A provider for a namespace of a cluster.
    ///
    /// # Errors
    /// When the configuration can't work. The cluster isn't asked.
    pub fn new(cluster: &Cluster, config: Config) -> Result<Self> {
        config.check()?;
        let stock = config.stock_runtime()?.map(|(way, router)| Router::new(cluster, way, &router)).transpose()?;
        let addresses = if stock.is_some() { None } else { PodAddresses::new(cluster, config.addresses())? };
        let (claims, found_pool, stock) = (Claims::new(cluster), Arc::default(), stock.map(Arc::new));
        Ok(Self { claims, config: Arc::new(config), found_pool, addresses, stock, timing: Timing::default() })
    }

    /// The same provider with other intervals.
    #[doc(hidden)]
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        let claims = Claims { renewal: timing.renewal, ..self.claims };
        Self { claims, timing, ..self }
    }

    /// Asks the API server whether it would admit a claim with this configuration. Nothing is created.
    pub(crate) async fn rehearse(&self) -> Result<()> {
        let pool = self.pool().await?;
        self.claims.rehearse(&self.spec_for(&Wanted::default())?, &pool.name, &self.config).await
    }

    /// The container of a sandbox that is ready, and its pod's address.
    pub(crate) async fn container_of(&self, id: &str) -> Result<(Container, Option<IpAddr>)> {
        let claim = self.claims.find(id).await?;
        let pod = self.binding(&claim).await?.pod;
        Ok((self.container_in(&pod)?, address(&pod)))
    }

    /// The name of the pool that sandboxes are claimed from.
    pub(crate) async fn pool_name(&self) -> Result<String> {
        Ok(self.pool().await?.name)
    }
}

impl std::fmt::Debug for AgentSandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSandbox").field("cluster", &self.claims.cluster).finish_non_exhaustive()
    }
}

impl Provider for AgentSandbox {
    fn mode(&self) -> &'static str {
        "agent-sandbox"
    }

    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided> {
        Box::pin(async {
            self.needs_api("create sandboxes", "create sandboxclaims")?;
            Ok(self.provide(wanted).await?)
        })
    }

    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided> {
        Box::pin(async { Ok(self.attach(names::of_id(id, self.claims.cluster.namespace())?).await?) })
    }

    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page> {
        Box::pin(async {
            self.needs_api("list sandboxes", "list sandboxclaims")?;
            Ok(self.page(query).await?)
        })
    }

    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, Description> {
        Box::pin(async {
            self.needs_api("describe sandboxes", "get sandboxclaims")?;
            Ok(self.description(id).await?)
        })
    }

    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool> {
        Box::pin(async {
            self.needs_api("delete sandboxes", "delete sandboxclaims")?;
            Ok(self.remove(id).await?)
        })
    }

    fn suspend<'a>(&'a self, id: &'a str) -> Pending<'a, ()> {
        Box::pin(async {
            self.needs_api("suspend sandboxes", "patch sandboxes")?;
            Ok(self.suspend(id).await?)
        })
    }

    fn resume<'a>(&'a self, id: &'a str) -> Pending<'a, ()> {
        Box::pin(async {
            self.needs_api("resume sandboxes", "patch sandboxes")?;
            Ok(self.resume(id).await?)
        })
    }

    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned> {
        Box::pin(async move {
            self.needs_api("remove sandboxes that have ended", "list and delete sandboxclaims")?;
            Ok(self.clean(max_idle).await?)
        })
    }

    fn stats(&self, idle: Duration) -> Pending<'_, Stats> {
        Box::pin(async move {
            self.needs_api("count sandboxes", "list sandboxclaims")?;
            Ok(self.count(idle).await?)
        })
    }

    fn pool_status(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async {
            self.needs_api("get the warm pool's state", "get sandboxwarmpools")?;
            Ok(self.read_pool_status().await?)
        })
    }
}
