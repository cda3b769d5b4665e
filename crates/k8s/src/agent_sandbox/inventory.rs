//! Lists and counts sandboxes. A claim's own status says all that lists show, so that nothing else is read.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use podbay_client::provider::{Listed, Page, Phase, Query, Stats};

use super::AgentSandbox;
use super::creation::is_over;
use super::resources::SandboxClaim;
use crate::api::retry::with_retry;
use crate::error::Result;
use crate::inventory;
use crate::lifetime::age;
use crate::names;
use crate::sandbox_object::SandboxObject;

/// How many sandboxes are on a page by default.
const PAGE: usize = 100;

/// Annotation that the controller gives a claim when its Sandbox is ready for the first time.
const FIRST_READY: &str = "agents.x-k8s.io/claim-first-ready-at";

impl AgentSandbox {
    pub(super) async fn page(&self, query: &Query) -> Result<Page> {
        let selector = inventory::selector(names::ours(), &self.config.label_prefix, &query.labels)?;
        let now = self.claims.cluster.now().await?;
        let limit = query.limit.unwrap_or(PAGE).max(1);
        let mut page = Page { sandboxes: Vec::new(), cursor: query.cursor.clone() };
        // A page may have none in the phase that is asked for.
        loop {
            let token = page.cursor.take().unwrap_or_default();
            let parameters = inventory::page_parameters(&selector, limit - page.sandboxes.len(), &token);
            let list = with_retry(|| self.claims.api.list(&parameters)).await;
            let list = list.map_err(inventory::page_error("list claims"))?;
            let listed = list.items.iter().filter_map(|claim| self.listed(claim, now));
            page.sandboxes.extend(listed.filter(|one| query.phase.is_none_or(|phase| one.phase == phase)));
            page.cursor = list.metadata.continue_.filter(|token| !token.is_empty());
            if page.cursor.is_none() || page.sandboxes.len() >= limit {
                return Ok(page);
            }
        }
    }

    pub(super) fn listed(&self, claim: &SandboxClaim, now: Timestamp) -> Option<Listed> {
        let listed = inventory::listed(claim, self.phase_of(claim, now), &self.config.label_prefix)?;
        let expires = claim.shutdown_time().map(|end| crate::lifetime::millis(end.0));
        // The controller keeps to the claim's own time.
        Some(Listed { expires_ms: expires, ..listed })
    }

    pub(super) fn phase_of(&self, claim: &SandboxClaim, now: Timestamp) -> Phase {
        if claim.metadata.deletion_timestamp.is_some() {
            return Phase::Terminated;
        }
        let finished = claim.condition("Finished").is_some_and(|finished| finished.status == "True");
        match claim.condition("Ready") {
            Some(ready) if ready.status == "True" => Phase::Running,
            Some(ready) if ready.reason == "SandboxSuspended" => Phase::Suspended,
            _ if finished => Phase::Terminated,
            Some(ready) if is_over(&ready.reason) => Phase::Terminated,
            // Its creator was killed, and nobody has got it since.
            _ if !was_ready(claim) && !self.is_young(claim, now) => Phase::Terminated,
            _ => Phase::Pending,
        }
    }

    /// Whether somebody may still be waiting for a claim for the first time.
    pub(super) fn is_young(&self, claim: &SandboxClaim, now: Timestamp) -> bool {
        let patience = Duration::from_secs(self.config.startup_timeout) + Duration::from_secs(30);
        claim.began().is_some_and(|began| age(began, now) < patience)
    }

    pub(super) async fn count(&self, idle: Duration) -> Result<Stats> {
        let now = self.claims.cluster.now().await?;
        let mut stats = inventory::count(now, idle, |query| async move { self.page(&query).await }).await?;
        if self.has_pool() {
            stats.warm = self.read_pool_status().await?.available;
        }
        Ok(stats)
    }
}

/// Whether a claim was ever ready. Controllers can be told not to write that down; then its binding has to do.
fn was_ready(claim: &SandboxClaim) -> bool {
    let noted = claim.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(FIRST_READY));
    noted || claim.sandbox().is_some()
}
