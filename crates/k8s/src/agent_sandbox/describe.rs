//! Describes a sandbox: its claim, its Sandbox, its pod, and the pod's events.

use podbay_client::description::Description;
use podbay_client::provider::Phase;

use super::AgentSandbox;
use super::binding::launch;
use super::claims::{is_ours, not_ours};
use crate::channel::stock_runtime::ask_by_stock_runtime;
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names;
use crate::pod::description::{ask_podbayd, describe_pod};
use crate::sandbox_object::SandboxObject;

impl AgentSandbox {
    /// Describes a sandbox. This doesn't count as using it.
    pub(super) async fn description(&self, id: &str) -> Result<Description> {
        let name = names::of_id(id, self.claims.cluster.namespace())?;
        let not_found = || Error::SandboxNotFound(name.to_owned());
        let claim = self.claims.get(name).await?.ok_or_else(not_found)?;
        if !is_ours(&claim) && !self.config.foreign_claims {
            return Err(not_ours(name));
        }
        let listed = self.listed(&claim, self.claims.cluster.now().await?).ok_or_else(not_found)?;
        let mut description = Description::new(listed, "a pod that is gone");
        let LifetimeLimits { ttl, idle_ttl } = claim.limits();
        description.ttl_ms = ttl.map(|seconds| seconds.saturating_mul(1000));
        description.idle_ttl_ms = idle_ttl.map(|seconds| seconds.saturating_mul(1000));
        description.facts.push(("warm pool", claim.spec.warm_pool_ref.name.clone()));
        if let Some(ready) = claim.condition("Ready").filter(|ready| ready.status != "True") {
            description.facts.push(("not ready", format!("{}: {}", ready.reason, ready.message.trim())));
        }
        if description.listed.phase == Phase::Suspended {
            "none: it is suspended, and has no pod".clone_into(&mut description.isolation);
        }
        if claim.sandbox().is_none() || description.listed.phase == Phase::Suspended {
            return Ok(description);
        }
        match self.binding(&claim).await {
            Ok(binding) => {
                let started = launch(&binding.sandbox).map(|launch| launch.as_str().to_owned());
                description.facts.extend(started.map(|started| ("launch", started)));
                let container = self.container(&binding.pod)?;
                describe_pod(&mut description, &self.claims.cluster, &binding.pod, &container).await;
                if description.listed.phase == Phase::Running {
                    match self.open(claim.id(), &binding.pod) {
                        Ok(sandbox) if self.stock.is_some() => {
                            ask_by_stock_runtime(&mut description, &sandbox, self.config.runtime_port).await;
                        }
                        Ok(sandbox) => ask_podbayd(&mut description, &sandbox).await,
                        Err(error) => description.unknown.push(error.to_string()),
                    }
                }
            }
            Err(Error::PodGone { how, .. }) => description.facts.push(("pod", format!("gone: {how}"))),
            Err(error) => return Err(error),
        }
        Ok(description)
    }
}
