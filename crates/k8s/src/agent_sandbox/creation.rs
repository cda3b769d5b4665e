//! Finds a sandbox or creates it.

use std::time::Duration;

use podbay_client::provider::{Provided, Wanted};

use super::AgentSandbox;
use super::binding::{Ahead, launch};
use super::claims::{Creation, is_ours, not_ours};
use super::config::Config;
use super::readiness::{ClaimReadiness, Waited, is_end_of_pod};
use super::resources::SandboxClaim;
use crate::api::follow::{UntilDeleted, follow};
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names;
use crate::pod::health::ending;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, same};
use crate::sandbox_spec::{Removes, SandboxSpec, SpecDefaults, Unfinished};

/// How often a sandbox is looked at again that others delete.
const ATTEMPTS: usize = 20;

/// How long a claim of the same name may take to go away.
const ENDING: Duration = Duration::from_secs(60);

impl Removes for AgentSandbox {
    async fn remove(&self, name: &str) -> Result<bool> {
        self.remove(name).await
    }
}

impl AgentSandbox {
    pub(super) async fn provide(&self, wanted: &Wanted) -> Result<Provided> {
        let spec = self.spec_for(wanted)?;
        let unfinished = Unfinished::new(self, wanted, &spec);
        let mut looked_again = false;
        for _ in 0..ATTEMPTS {
            match self.find_or_create(&spec).await {
                Ok(Some(provided)) => {
                    unfinished.finish();
                    return Ok(provided);
                }
                // Somebody deleted it meanwhile; it is wanted all the same.
                Ok(None) => tracing::debug!(name = spec.name, "a sandbox was deleted while it was being created"),
                // The pool that was found earlier was deleted; there may be another.
                Err(Error::WarmPoolNotFound { .. }) if !looked_again && self.config.warm_pool_name.is_none() => {
                    looked_again = true;
                    self.forget_pool().await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended {
            what: format!("the sandbox {}", spec.name),
            how: "was deleted while it was being created",
            attempts: ATTEMPTS,
        })
    }

    pub(super) fn spec_for(&self, wanted: &Wanted) -> Result<SandboxSpec> {
        spec_for(&self.config, self.claims.cluster.namespace(), wanted)
    }

    /// Creates a claim or attaches to the one of that name; returns nothing when it was deleted meanwhile.
    async fn find_or_create(&self, spec: &SandboxSpec) -> Result<Option<Provided>> {
        let pool = self.pool().await?;
        let claim = match self.claims.create(spec, &pool.name, &self.config).await? {
            Creation::Created(claim) => *claim,
            Creation::Exists => return self.find_existing(&spec.name).await,
        };
        let readiness = ClaimReadiness { is_new: true, pool_is_new: pool.is_new, ..ClaimReadiness::default() };
        let started = match self.until_ready(claim.clone(), readiness).await {
            Ok(Waited::Ready(ready, ahead)) => self.start(&ready, *ahead).await.map(Some),
            Ok(Waited::Deleted | Waited::Suspended) => Ok(None),
            Err(error) => Err(error),
        };
        if started.is_err() {
            self.roll_back(&claim).await;
        }
        started
    }

    /// Opens a sandbox that this call created. Now is the time to find out that podbayd doesn't start in it.
    async fn start(&self, claim: &SandboxClaim, ahead: Ahead) -> Result<Provided> {
        let provided = self.attached(claim, ahead, true).await?;
        provided.sandbox.hello().await.map_err(Error::Unusable)?;
        Ok(provided)
    }

    /// Removes a claim that this call created and can't use. It may work for others, so it stays if somebody has attached to it.
    async fn roll_back(&self, claim: &SandboxClaim) {
        if let Err(error) = self.claims.delete_unused(claim).await {
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
        for _ in 0..ATTEMPTS {
            let readiness = ClaimReadiness { resuming, replacing, ..ClaimReadiness::default() };
            match self.until_ready(claim.clone(), readiness).await {
                Ok(Waited::Ready(ready, ahead)) => {
                    let provided = self.attached(&ready, *ahead, false).await?;
                    return Ok(Provided { resumed: resuming, ..provided });
                }
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
                    match self.claims.delete_unused(&claim).await? {
                        Deletion::Done | Deletion::Absent => return Err(Error::SandboxNotFound(name.to_owned())),
                        // Somebody else found it in the same state. One of the two gets to delete it.
                        Deletion::Changed => {
                            tokio::time::sleep(Duration::from_millis(rand::random_range(10..200))).await;
                            claim = self.claims.attach(name).await?;
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended {
            what: format!("the sandbox {name}"),
            how: "ended, and other clients attached to it,",
            attempts: ATTEMPTS,
        })
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
    async fn attached(&self, claim: &SandboxClaim, ahead: Ahead, created: bool) -> Result<Provided> {
        let binding = self.binding_with(claim, ahead).await?;
        let sandbox = self.open(claim.id(), &binding.pod)?;
        if is_ours(claim) {
            self.start_heartbeat(claim, &sandbox);
        }
        Ok(Provided {
            id: claim.id().to_owned(),
            sandbox,
            created,
            resumed: false,
            launch: launch(&binding.sandbox),
            leash: None,
        })
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

/// What the claim of a sandbox says that a caller wants, in this namespace.
pub(super) fn spec_for(config: &Config, namespace: &str, wanted: &Wanted) -> Result<SandboxSpec> {
    let defaults = SpecDefaults {
        namespace,
        labels: &config.default_labels,
        label_prefix: &config.label_prefix,
        limits: LifetimeLimits { ttl: config.ttl, idle_ttl: config.idle_ttl },
    };
    SandboxSpec::new(wanted, &defaults)
}

/// Whether a claim can't be used any more, and never will be.
pub(super) fn is_over(reason: &str) -> bool {
    ["ClaimExpired", "SandboxExpired"].contains(&reason) || is_end_of_pod(reason)
}
