//! Makes pods for a pool until it has as many as it should, and replaces those that are out of date.

use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use podbay_client::Sandbox;
use serde_json::json;

use super::claim::{discard, is_taken, json_patch};
use super::lock::Attempt;
use super::{Shared, label};
use crate::bootstrap::Limits;
use crate::error::{Error, Result};
use crate::names::{STATE, TEMPLATE, WARM, WARMING, pointer};
use crate::pod::health::{ending, is_ready, was_restarted};
use crate::pod::startup::{Patience, Waiting};
use crate::raw::creation::{channel, introduce, is_quota};
use crate::raw::lease;
use crate::raw::manifest::{self, CONTAINER};
use crate::raw::occupant::holder_of;
use crate::raw::{network, setup};

/// How many pods are brought up at once.
const AT_ONCE: usize = 8;

/// How eagerly a pool is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Zeal {
    /// What is missing is made.
    Missing,
    /// The pool shall be as this client wants it: also what is too much is removed.
    Exact,
}

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The pool has all that it should.
    Full,
    /// Another client changes it just now.
    Busy,
    /// It belongs to others now.
    Superseded,
}

impl Shared {
    /// Fills the pool, unless another client does.
    pub(super) async fn refill(&self, zeal: Zeal) -> Result<Outcome> {
        let _alone = self.filling.lock().await;
        let lock = match self.lock(zeal == Zeal::Exact).await? {
            Attempt::Held(lease) => lease,
            Attempt::Busy => return Ok(Outcome::Busy),
            Attempt::Superseded => return Ok(Outcome::Superseded),
        };
        let filled = self.while_held(self.fill(&lock, zeal)).await;
        match filled {
            // A pool for nobody: nothing of it is to stay.
            Ok(()) if self.target() == 0 => {
                self.place.leases.delete(&self.lock_name(), lease::this(&lock)).await?;
            }
            _ => self.unlock().await,
        }
        filled.map(|()| Outcome::Full)
    }

    async fn fill(&self, lock: &Lease, zeal: Zeal) -> Result<()> {
        loop {
            let (warm, mut warming) = self.weed(zeal).await?;
            let missing = self.target().saturating_sub(warm + warming.len());
            if missing == 0 && warming.is_empty() {
                return Ok(());
            }
            if missing > 0 {
                network::ensure(&self.place.cluster, &self.config).await?;
            }
            let mut made = Ok(());
            for _ in 0..missing {
                match self.make(lock).await {
                    Ok(pod) => warming.push(pod),
                    // What fits is of use all the same.
                    Err(error) => {
                        made = Err(error);
                        break;
                    }
                }
            }
            if missing > 0 {
                // Somebody may have removed the policy while no pod was under it.
                network::ensure(&self.place.cluster, &self.config).await?;
            }
            let all = futures_util::stream::iter(warming).map(|pod| self.warm(pod));
            let results: Vec<Result<()>> = all.buffer_unordered(AT_ONCE).collect().await;
            results.into_iter().collect::<Result<()>>().and(made)?;
        }
    }

    /// Removes what doesn't belong in the pool. Gives how many are warm, and those that somebody began to warm.
    async fn weed(&self, zeal: Zeal) -> Result<(usize, Vec<Pod>)> {
        let (mut warm, mut warming) = (0, Vec::new());
        let now = self.place.cluster.now().await;
        for pod in self.list(ListParams::default().labels(&self.waiting_selector())).await? {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let state = label(&pod, STATE).unwrap_or_default();
            let fresh = label(&pod, TEMPLATE) == Some(&self.template) && self.is_sound(&pod, now);
            let wanted = zeal == Zeal::Missing || warm + warming.len() < self.target();
            match state {
                WARM if fresh && wanted => warm += 1,
                // A setup script isn't run twice, and how far it came isn't known.
                WARMING if fresh && wanted && self.config.setup_script.is_none() => warming.push(pod),
                // Another filler may have made it warm since, and somebody may have claimed it: it is tested for its state.
                state => drop(discard(&self.place, &pod, state).await?),
            }
        }
        Ok((warm, warming))
    }

    /// Whether a pod may stay.
    fn is_sound(&self, pod: &Pod, now: Timestamp) -> bool {
        // What a setup script made outside of the volumes is gone with the container before.
        if ending(pod, CONTAINER).is_some() || self.config.setup_script.is_some() && was_restarted(pod, CONTAINER) {
            return false;
        }
        let made = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |made| made.0);
        is_ready(pod, CONTAINER) || lease::age(made, now).as_secs() < self.config.startup_timeout
    }

    async fn make(&self, lock: &Lease) -> Result<Pod> {
        let name = format!("pb-warm-{}-{:08x}", self.config.warm_pool_name, rand::random::<u32>());
        let network = network::label(&self.config)?;
        // While nobody has claimed it, it belongs to the pool's Lease.
        let owner = lease::owner(lock);
        let pod = manifest::pod(&self.config, &name, &self.marks()?, owner, network.as_deref(), None)?;
        let patience = Duration::from_secs(self.config.startup_timeout);
        self.place.make_pod(&pod, patience).await.map_err(|error| match error {
            kube::Error::Api(status) if is_quota(&status) => Error::Quota(status.message),
            error => Error::api("make a pod of the pool")(error),
        })
    }

    /// Brings podbayd into a pod and runs the setup script there.
    async fn warm(&self, pod: Pod) -> Result<()> {
        let warmed = self.try_warm(pod.clone()).await;
        // Only while it is being warmed: another may have added it meanwhile, and by now it may be somebody's sandbox.
        if warmed.is_err()
            && let Err(error) = discard(&self.place, &pod, WARMING).await
        {
            tracing::warn!(%error, "a pod that can't start couldn't be removed");
        }
        warmed
    }

    async fn try_warm(&self, pod: Pod) -> Result<()> {
        let waiting = Waiting {
            cluster: &self.place.cluster,
            timeout: Duration::from_secs(self.config.startup_timeout),
            patience: Patience { container: CONTAINER, wait_for_node: self.config.wait_for_node, fresh: true },
        };
        let pod = waiting.until_running(pod).await?;
        let sandbox = self.sandbox(&pod);
        introduce(&waiting, &pod, &sandbox).await?;
        if let Some(script) = &self.config.setup_script {
            setup::run(&sandbox, script).await?;
        }
        let patch = [
            json!({"op": "test", "path": pointer("labels", STATE), "value": WARMING}),
            json!({"op": "replace", "path": pointer("labels", STATE), "value": WARM}),
        ];
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match json_patch(&self.place, name, &patch).await {
            Ok(_) => Ok(()),
            // Another client, which took this one for dead, has added or removed it.
            Err(error) if is_taken(&error) => Ok(()),
            Err(error) => Err(Error::api("add a pod to the pool")(error)),
        }
    }

    /// The sandbox that a pod may become. It has no limits until somebody claims it.
    pub(super) fn sandbox(&self, pod: &Pod) -> Sandbox {
        let channel = channel(&self.place, &holder_of(pod), &self.config);
        Sandbox::new(channel.ending_after(Limits::default()))
    }
}
