//! Extends a sandbox's lifetime while it is used.

use std::time::Duration;

use podbay_client::{Sandbox, WeakSandbox};

use super::AgentSandbox;
use super::claims::{Claims, renewed};
use super::resources::SandboxClaim;
use crate::error::Error;
use crate::sandbox_object::SandboxObject;

/// How often podbayd is asked at least whether the sandbox was used.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

impl AgentSandbox {
    /// Moves the end of a sandbox for as long as anybody in this process has it open and something is done in it: a command
    /// that prints nothing for hours counts too.
    pub(super) fn start_heartbeat(&self, claim: &SandboxClaim, sandbox: &Sandbox) {
        let Some(idle) = claim.limits().idle_ttl.map(Duration::from_secs) else { return };
        // Several times before half of the idle time is over, so that one failure doesn't matter.
        let interval = (idle / 8).max(Duration::from_secs(1)).min(self.timing.heartbeat);
        tokio::spawn(beat(self.claims.clone(), claim.clone(), sandbox.downgrade(), interval));
    }
}

/// `claim` is what is known of it: nothing is asked of the cluster before the claim has to be renewed.
async fn beat(claims: Claims, mut claim: SandboxClaim, sandbox: WeakSandbox, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if !sandbox.in_use() {
            return;
        }
        let Some(welcome) = sandbox.glance().await else { continue };
        let idle = if welcome.running > 0 { Duration::ZERO } else { Duration::from_millis(welcome.idle_ms) };
        let now = claims.cluster.clock.now();
        let used = now.checked_sub(idle).unwrap_or(now);
        if renewed(&claim, used, now, claims.renewal).is_none() {
            continue;
        }
        match claims.used_at(claim.id(), used).await {
            Ok(newer) => claim = newer,
            Err(Error::SandboxNotFound(_)) => return,
            Err(error) => tracing::warn!(%error, claim = claim.id(), "can't extend the sandbox's lifetime"),
        }
    }
}
