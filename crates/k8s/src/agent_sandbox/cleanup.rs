//! What the reaper removes in agent-sandbox mode. The controller deletes what has expired, and what a claim owns goes with it,
//! so this is for claims that never got ready, whose pods have ended, or that nobody has used for long.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use podbay_client::Sandbox;
use podbay_client::provider::{Cleaned, Phase};

use super::readiness::is_end_of_pod;
use super::resources::SandboxClaim;
use super::{AgentSandbox, claims};
use crate::api::list::list_all;
use crate::cleanup::{RUN, Reaped, Run, SILENCE};
use crate::error::{Error, Result};
use crate::names;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, unchanged};

impl Reaped for AgentSandbox {
    type Object = SandboxClaim;

    fn container(&self, pod: &Pod) -> String {
        self.container(pod).unwrap_or_default()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.claims.cluster.now().await
    }

    async fn find(&self, id: &str) -> Result<SandboxClaim> {
        self.claims.find(id).await
    }

    async fn pod(&self, claim: &SandboxClaim) -> Result<Option<Pod>> {
        if claim.sandbox().is_none() {
            return Ok(None);
        }
        match self.binding(claim).await {
            Ok(binding) => Ok(Some(binding.pod)),
            Err(Error::PodGone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn phase(&self, claim: &SandboxClaim, pod: Option<&Pod>, now: Timestamp) -> Phase {
        let ended = claim.condition("Ready").is_some_and(|ready| is_end_of_pod(&ready.reason));
        // A pod that is being deleted has a successor soon.
        let stays = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        match self.phase_of(claim, now) {
            Phase::Terminated if ended && !stays && claim.metadata.deletion_timestamp.is_none() => Phase::Pending,
            phase => phase,
        }
    }

    fn is_starting(&self, claim: &SandboxClaim, _: Option<&Pod>, now: Timestamp) -> bool {
        self.is_young(claim, now) && self.phase_of(claim, now) == Phase::Pending
    }

    fn sandbox(&self, claim: &SandboxClaim, pod: &Pod) -> Result<Sandbox> {
        self.open(claim.id(), pod)
    }

    fn silent_since(&self, claim: &SandboxClaim) -> Option<Timestamp> {
        claims::silent_since(claim)
    }

    fn silence(&self) -> Duration {
        SILENCE
    }

    async fn note_silence(&self, claim: &SandboxClaim) -> Result<()> {
        self.claims.note_silence(claim).await
    }

    async fn renew(&self, claim: &SandboxClaim) {
        self.claims.renew(claim.id()).await;
    }

    async fn delete_unchanged(&self, claim: &SandboxClaim, _: Option<&Pod>) -> Result<Deletion> {
        self.claims.delete(claim.id(), unchanged(claim)).await
    }
}

impl AgentSandbox {
    pub(super) async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let run = Run::new(self, max_idle, RUN);
        let claims = list_all(&self.claims.api, &names::ours(), "list the sandboxes' claims").await?;
        let mut cleaned = Cleaned::default();
        let mut all = Vec::new();
        for claim in claims {
            // Most claims say themselves whether they are over; a pod that matters is looked at before anything is deleted.
            let ended = claim.condition("Ready").is_some_and(|ready| is_end_of_pod(&ready.reason));
            match if ended { self.pod(&claim).await } else { Ok(None) } {
                Ok(pod) => all.push((claim, pod)),
                Err(error) => cleaned.failed.push((claim.id().to_owned(), error.to_string())),
            }
        }
        run.sandboxes(all, &mut cleaned).await?;
        cleaned.deleted.sort();
        Ok(cleaned)
    }
}
