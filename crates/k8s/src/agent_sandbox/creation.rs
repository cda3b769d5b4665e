//! Finds a sandbox or creates it.

use std::time::Duration;

use podbay_client::provider::{Provided, Wanted};

use super::AgentSandbox;
use super::binding::launch;
use super::claims::{ClaimRequest, Creation, is_ours, not_ours};
use super::readiness::{ClaimReadiness, Waited, is_end_of_pod};
use super::resources::SandboxClaim;
use crate::api::follow::{Judge, Verdict, follow};
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names::{self, IDLE_TTL, Metadata, TTL};
use crate::pod::health::ending;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, same};

/// How often a sandbox is looked at again that others delete.
const ATTEMPTS: usize = 20;

/// How long a claim of the same name may take to go away.
const ENDING: Duration = Duration::from_secs(60);

/// A sandbox that is being created. It is removed when its creator gives up.
struct Unfinished<'a> {
    provider: &'a AgentSandbox,
    name: Option<String>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Outside a runtime no request can be sent; the claim's own end removes it.
        let (Some(name), Ok(runtime)) = (self.name.take(), tokio::runtime::Handle::try_current()) else { return };
        let provider = self.provider.clone();
        runtime.spawn(async move {
            // The request that creates it may be cut off here and be served all the same, a moment later.
            for pause in [Duration::ZERO, Duration::from_secs(2)] {
                tokio::time::sleep(pause).await;
                if let Err(error) = provider.remove(&name).await {
                    tracing::warn!(%error, name, "can't remove a sandbox that nobody waits for any more");
                }
            }
        });
    }
}

impl AgentSandbox {
    pub(super) async fn provide(&self, wanted: &Wanted) -> Result<Provided> {
        if wanted.leashed {
            // A cluster doesn't notice the end of a process, so the promise couldn't be kept.
            return Err(Error::Config(
                "a sandbox on a cluster can't be leashed to a process: set idle_ttl instead".into(),
            ));
        }
        let request = self.request_for(wanted)?;
        // Nobody else knows a random name, so a sandbox that isn't handed over would be lost.
        let mut unfinished = Unfinished { provider: self, name: wanted.id.is_none().then(|| request.name.clone()) };
        let mut new_pool = true;
        for _ in 0..ATTEMPTS {
            match self.find_or_create(&request).await {
                Ok(Some(provided)) => {
                    unfinished.name = None;
                    return Ok(provided);
                }
                // Somebody deleted it meanwhile; it is wanted all the same.
                Ok(None) => tracing::debug!(name = request.name, "a sandbox was deleted while it was being created"),
                // The pool that was found earlier was deleted; there may be another.
                Err(Error::WarmPoolNotFound { .. }) if new_pool && self.config.warm_pool_name.is_none() => {
                    new_pool = false;
                    self.forget_pool().await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended {
            what: format!("the sandbox {}", request.name),
            how: "was deleted while it was being created",
            attempts: ATTEMPTS,
        })
    }

    pub(super) fn request_for(&self, wanted: &Wanted) -> Result<ClaimRequest> {
        let name = match &wanted.id {
            Some(id) => names::of_id(id, self.claims.cluster.namespace())?.to_owned(),
            None => names::random(),
        };
        let mut labels = self.config.default_labels.clone();
        labels.extend(wanted.labels.clone());
        let mut metadata = Metadata::new(&name, &self.config.label_prefix, &labels)?;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs().max(1));
        let limits = LifetimeLimits {
            ttl: seconds(wanted.ttl).or(self.config.ttl),
            idle_ttl: seconds(wanted.idle_ttl).or(self.config.idle_ttl),
        };
        for (key, seconds) in [(TTL, limits.ttl), (IDLE_TTL, limits.idle_ttl)] {
            if let Some(seconds) = seconds {
                metadata.annotations.insert(key.into(), seconds.to_string());
            }
        }
        Ok(ClaimRequest { name, metadata, limits })
    }

    /// Creates a claim or attaches to the one of that name; returns nothing when it was deleted meanwhile.
    async fn find_or_create(&self, request: &ClaimRequest) -> Result<Option<Provided>> {
        let pool = self.pool().await?;
        let claim = match self.claims.create(request, &pool.name, &self.config).await? {
            Creation::Created(claim) => *claim,
            Creation::Exists => return self.find_existing(&request.name).await,
        };
        let readiness = ClaimReadiness { pool_is_new: pool.is_new, ..ClaimReadiness::default() };
        let started = match self.until_ready(claim.clone(), readiness).await {
            Ok(Waited::Ready(ready)) => self.start(&ready).await.map(Some),
            Ok(Waited::Deleted | Waited::Suspended) => Ok(None),
            Err(error) => Err(error),
        };
        if started.is_err() {
            self.roll_back(&claim).await;
        }
        started
    }

    /// Opens a sandbox that this call created. Now is the time to find out that podbayd doesn't start in it.
    async fn start(&self, claim: &SandboxClaim) -> Result<Provided> {
        let provided = self.attached(claim, true).await?;
        provided.sandbox.hello().await.map_err(Error::Unusable)?;
        Ok(provided)
    }

    /// Removes a claim that this call created and that can't be used.
    async fn roll_back(&self, claim: &SandboxClaim) {
        if let Err(error) = self.claims.delete(claim.id(), same(claim)).await {
            tracing::warn!(%error, claim = claim.id(), "can't remove a claim that can't be used");
        }
    }

    /// Attaches to a sandbox that exists; returns nothing when it has ended and is gone by now.
    async fn find_existing(&self, name: &str) -> Result<Option<Provided>> {
        match self.find(name).await {
            Ok(provided) => Ok(Some(provided)),
            Err(Error::SandboxNotFound(_)) => self.until_deleted(name).await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Finds a sandbox that exists.
    pub(super) async fn find(&self, name: &str) -> Result<Provided> {
        let claim = match self.claims.attach(name).await {
            Err(Error::NotOurs(_)) if self.config.foreign_claims => {
                let found = self.claims.get(name).await?.filter(|claim| claim.metadata.deletion_timestamp.is_none());
                found.ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?
            }
            claim => claim?,
        };
        let (mut claim, mut resuming, mut replacing) = (claim, false, false);
        loop {
            let readiness = ClaimReadiness { pool_is_new: false, resuming, replacing };
            match self.until_ready(claim.clone(), readiness).await {
                Ok(Waited::Ready(ready)) => return self.attached(&ready, false).await,
                Ok(Waited::Deleted) => return Err(Error::SandboxNotFound(name.to_owned())),
                Ok(Waited::Suspended) if self.config.resume && is_ours(&claim) && !resuming => {
                    claim = self.set_running(&claim).await?;
                    resuming = true;
                }
                Ok(Waited::Suspended) => return Err(Error::Suspended(name.to_owned())),
                Err(Error::ClaimFailed { reason, .. }) if is_ours(&claim) && is_over(&reason) && !replacing => {
                    // The pod of a claim that was just deleted, suspended or evicted ends too, and then gets a successor.
                    if is_end_of_pod(&reason) && !self.has_ended_pod(&claim).await? {
                        replacing = true;
                        continue;
                    }
                    self.claims.delete(name, same(&claim)).await?;
                    return Err(Error::SandboxNotFound(name.to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a claim's pod has ended and stays as it is. One that is being deleted gets a successor.
    pub(super) async fn has_ended_pod(&self, claim: &SandboxClaim) -> Result<bool> {
        let pod = match self.binding(claim).await {
            Ok(binding) => binding.pod,
            Err(Error::PodGone { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let container = self.container(&pod).unwrap_or_default();
        Ok(pod.metadata.deletion_timestamp.is_none() && ending(&pod, &container).is_some())
    }

    /// The sandbox of a claim that is ready.
    pub(super) async fn attached(&self, claim: &SandboxClaim, created: bool) -> Result<Provided> {
        let binding = self.binding(claim).await?;
        let sandbox = self.open(&binding.pod)?;
        if is_ours(claim) {
            self.start_heartbeat(claim, &sandbox);
        }
        Ok(Provided { id: claim.id().to_owned(), sandbox, created, launch: launch(&binding.sandbox), leash: None })
    }

    /// Waits until a claim that is being deleted is gone.
    async fn until_deleted(&self, name: &str) -> Result<()> {
        let Some(claim) = self.claims.get(name).await? else { return Ok(()) };
        if !is_ours(&claim) {
            return Err(not_ours(name));
        }
        let mut state = String::new();
        match tokio::time::timeout(ENDING, follow(self.claims.api.clone(), claim, &UntilDeleted, &mut state)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::api("watch the sandbox's claim")(error)),
            Err(_) => Err(Error::ClaimEnding { claim: name.to_owned(), seconds: ENDING.as_secs() }),
        }
    }

    /// Deletes a sandbox because somebody said so. Returns whether it existed.
    pub(super) async fn remove(&self, id: &str) -> Result<bool> {
        let name = names::of_id(id, self.claims.cluster.namespace())?;
        match self.claims.find(name).await {
            Ok(claim) => Ok(self.claims.delete(name, same(&claim)).await? == Deletion::Done),
            Err(Error::SandboxNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a claim can't be used any more, and never will be.
pub(super) fn is_over(reason: &str) -> bool {
    ["ClaimExpired", "SandboxExpired"].contains(&reason) || is_end_of_pod(reason)
}

/// Waits for a claim's end, whatever it is until then.
struct UntilDeleted;

impl Judge<SandboxClaim> for UntilDeleted {
    type Failure = std::convert::Infallible;

    fn judge(&self, _: &SandboxClaim) -> Verdict<Self::Failure> {
        Verdict::Waiting(String::new())
    }
}
