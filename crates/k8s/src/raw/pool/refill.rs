//! Creates pods for a pool until it has as many as it should, and replaces outdated ones.

use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use podbay_client::Sandbox;
use serde_json::json;
use tokio::time::Instant;

use super::claim::discard;
use super::lock::LockAttempt;
use super::{Shared, label};
use crate::api::patch::{is_test_failure, json_patch};
use crate::error::{Error, Result};
use crate::lifetime::{LifetimeLimits, age};
use crate::names::{STATE, TEMPLATE, WARM, WARMING, pointer};
use crate::pod::health::{ending, is_ready, was_restarted};
use crate::pod::startup::{PULL_PATIENCE, StartupWatch};
use crate::raw::attach::{channel, start_podbayd, startup_policy};
use crate::raw::creation::is_quota;
use crate::raw::lease;
use crate::raw::manifest::{self, CONTAINER};
use crate::raw::pod_state::holder_of;
use crate::raw::{network, setup};
use crate::sandbox_object::{SandboxObjects, same};

/// How many pods are brought up at once.
const AT_ONCE: usize = 8;

/// How far a pool is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RefillMode {
    /// Missing pods are created.
    AddMissing,
    /// The pool becomes what this client's configuration says: surplus pods are removed too.
    Exact,
}

/// How a refill ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RefillOutcome {
    /// The pool has as many pods as it should.
    Full,
    /// Another client is filling it.
    Busy,
    /// Clients with a newer configuration have taken it over.
    Superseded,
}

impl Shared {
    /// Fills the pool, unless another client does.
    pub(super) async fn refill(&self, mode: RefillMode) -> Result<RefillOutcome> {
        let _alone = self.filling.lock().await;
        let lock = match self.lock(mode == RefillMode::Exact).await? {
            LockAttempt::Held(lease) => lease,
            LockAttempt::Busy => return Ok(RefillOutcome::Busy),
            LockAttempt::Superseded => return Ok(RefillOutcome::Superseded),
        };
        let filled = self.while_held(self.fill(&lock, mode)).await;
        match filled {
            // A pool of size zero leaves nothing behind.
            Ok(()) if self.target() == 0 => {
                self.namespace.leases.delete(&self.lock_name(), same(lock.as_ref())).await?;
            }
            _ => self.unlock().await,
        }
        filled.map(|()| RefillOutcome::Full)
    }

    async fn fill(&self, lock: &Lease, mode: RefillMode) -> Result<()> {
        loop {
            let (warm, mut warming) = self.prune(mode).await?;
            let missing = self.target().saturating_sub(warm + warming.len());
            if missing == 0 && warming.is_empty() {
                return Ok(());
            }
            if missing > 0 {
                network::ensure(&self.namespace.cluster, &self.config).await?;
            }
            let mut created = Ok(());
            for _ in 0..missing {
                match self.create(lock).await {
                    Ok(pod) => warming.push(pod),
                    // A smaller pool is better than none.
                    Err(error) => {
                        created = Err(error);
                        break;
                    }
                }
            }
            if missing > 0 {
                // Somebody may have removed the policy while no pod was under it.
                network::ensure(&self.namespace.cluster, &self.config).await?;
            }
            let all = futures_util::stream::iter(warming).map(|pod| self.warm(pod));
            let results: Vec<Result<()>> = all.buffer_unordered(AT_ONCE).collect().await;
            results.into_iter().collect::<Result<()>>().and(created)?;
        }
    }

    /// Removes pods that don't belong in the pool. Returns how many are warm, and those that somebody began to warm.
    async fn prune(&self, mode: RefillMode) -> Result<(usize, Vec<Pod>)> {
        let (mut warm, mut warming) = (0, Vec::new());
        let now = self.namespace.cluster.now().await?;
        for pod in self.list(ListParams::default().labels(&self.waiting_selector())).await? {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let state = label(&pod, STATE).unwrap_or_default();
            let fresh = label(&pod, TEMPLATE) == Some(&self.template) && self.is_sound(&pod, now);
            let wanted = mode == RefillMode::AddMissing || warm + warming.len() < self.target();
            match state {
                WARM if fresh && wanted => warm += 1,
                // A setup script isn't run twice, and nobody knows how far it got.
                WARMING if fresh && wanted && self.config.setup_script.is_none() => warming.push(pod),
                // Somebody may have warmed and claimed it since, so its state is tested.
                state => drop(discard(&self.namespace, &pod, state).await?),
            }
        }
        Ok((warm, warming))
    }

    /// Whether a pod may stay in the pool.
    fn is_sound(&self, pod: &Pod, now: Timestamp) -> bool {
        // What a setup script wrote outside of volumes was lost with the old container.
        if ending(pod, CONTAINER).is_some() || self.config.setup_script.is_some() && was_restarted(pod, CONTAINER) {
            return false;
        }
        let made = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |made| made.0);
        is_ready(pod, CONTAINER) || age(made, now).as_secs() < self.config.startup_timeout
    }

    async fn create(&self, lock: &Lease) -> Result<Pod> {
        let name = format!("pb-warm-{}-{:08x}", self.config.warm_pool_name, rand::random::<u32>());
        let network = network::label(&self.config)?;
        // It belongs to the pool's Lease until somebody claims it.
        let owner = lease::owner(lock);
        let pod = manifest::pod(&self.config, &name, &self.metadata()?, owner, network.as_deref(), None)?;
        let patience = Duration::from_secs(self.config.startup_timeout);
        self.namespace.create_pod(&pod, patience).await.map_err(|error| match error {
            kube::Error::Api(status) if is_quota(&status) => Error::Quota(status.message),
            error => Error::api("create a pod of the pool")(error),
        })
    }

    /// Starts podbayd in a pod and runs the setup script there.
    async fn warm(&self, pod: Pod) -> Result<()> {
        let warmed = self.try_warm(pod.clone()).await;
        // Only while it is warming: somebody else may have added it meanwhile, and it may be a sandbox by now.
        if warmed.is_err()
            && let Err(error) = discard(&self.namespace, &pod, WARMING).await
        {
            tracing::warn!(%error, "can't remove a pod that can't start");
        }
        warmed
    }

    async fn try_warm(&self, pod: Pod) -> Result<()> {
        let timeout = Duration::from_secs(self.config.startup_timeout);
        let startup = StartupWatch {
            cluster: &self.namespace.cluster,
            timeout,
            deadline: Instant::now() + timeout,
            policy: startup_policy(&self.config, true, PULL_PATIENCE),
        };
        let pod = startup.until_running(pod).await?;
        let sandbox = self.sandbox(&pod);
        start_podbayd(&startup, &pod, &sandbox).await?;
        if let Some(script) = &self.config.setup_script {
            setup::run(&sandbox, script).await?;
        }
        let patch = [
            json!({"op": "test", "path": pointer("labels", STATE), "value": WARMING}),
            json!({"op": "replace", "path": pointer("labels", STATE), "value": WARM}),
        ];
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match json_patch::<Pod>(&self.namespace.cluster, name, &patch).await {
            Ok(_) => Ok(()),
            // Another client took this one for dead, and has added or removed the pod.
            Err(error) if is_test_failure(&error) => Ok(()),
            Err(error) => Err(Error::api("add a pod to the pool")(error)),
        }
    }

    /// The sandbox that a pod may become. It has no limits until somebody claims it.
    pub(super) fn sandbox(&self, pod: &Pod) -> Sandbox {
        let channel =
            channel(&self.namespace, &holder_of(pod), &self.config).with_addresses(self.addresses.as_ref(), "");
        Sandbox::new(channel.ending_container_after(LifetimeLimits::default()))
    }
}
