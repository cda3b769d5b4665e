//! Describes a sandbox: its Lease, its pod, and the pod's events.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use podbay_client::description::Description;
use podbay_client::provider::Phase;

use super::Raw;
use super::inventory::Pods;
use super::lease::Holder;
use super::manifest::CONTAINER;
use super::namespace::SandboxNamespace;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names;
use crate::pod::description::{ask_podbayd, describe_pod};
use crate::sandbox_object::{SandboxObject, SandboxObjects};

impl Raw {
    /// Describes a sandbox, or a pod that waits in a pool to become one.
    pub(super) async fn description(&self, id: &str) -> Result<Description> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        match self.namespace_of(name).leases.find(name).await {
            Ok(lease) => self.describe_lease(&self.namespace_of(name), &lease).await,
            Err(error @ Error::SandboxNotFound(_)) => match self.sandbox_of_pod(name).await? {
                Some(name) => {
                    self.describe_lease(&self.namespace_of(&name), &self.namespace_of(&name).leases.find(&name).await?)
                        .await
                }
                None => self.describe_waiting_pod(name).await?.ok_or(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn describe_lease(&self, namespace: &SandboxNamespace, lease: &Lease) -> Result<Description> {
        let pod = own_pod(namespace, lease).await?;
        let pods = Pods::of(pod.iter().cloned().collect());
        let listed = self.listed(lease, &pods, self.home.cluster.now().await?);
        let name = lease.metadata.name.clone().unwrap_or_default();
        let listed = listed.ok_or(Error::SandboxNotFound(name))?;
        let mut description = Description::new(listed, "a pod that is gone");
        let LifetimeLimits { ttl, idle_ttl } = lease.limits();
        description.ttl_ms = ttl.map(|seconds| seconds.saturating_mul(1000));
        description.idle_ttl_ms = idle_ttl.map(|seconds| seconds.saturating_mul(1000));
        if let Some(pod) = &pod {
            describe_pod(&mut description, &namespace.cluster, pod, CONTAINER).await;
        }
        if let Some(pod) = pod.filter(|_| description.listed.phase == Phase::Running) {
            // A handle of its own, which doesn't renew the Lease: looking at a sandbox isn't using it.
            ask_podbayd(&mut description, &self.open(namespace, lease, &pod)).await;
        }
        Ok(description)
    }

    async fn describe_waiting_pod(&self, pod: &str) -> Result<Option<Description>> {
        if self.config.namespace_per_sandbox {
            return Ok(None);
        }
        let found = with_retry(|| self.home.pods.get_opt(pod)).await.map_err(Error::api("get the pod"))?;
        let waits = |pod: &Pod| {
            let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).map(String::as_str);
            label(names::MANAGED_BY) == Some(names::PODBAY) && label(names::POOL).is_some()
        };
        let Some(pod) = found.filter(waits) else { return Ok(None) };
        let Some(listed) = self.listed_pod(&pod) else { return Ok(None) };
        let mut description = Description::new(listed, "");
        describe_pod(&mut description, &self.home.cluster, &pod, CONTAINER).await;
        Ok(Some(description))
    }
}

/// The pod that a Lease names, if it belongs to the Lease: an id reaches what Podbay created for it and nothing else, whatever
/// a Lease says.
async fn own_pod(namespace: &SandboxNamespace, lease: &Lease) -> Result<Option<Pod>> {
    let Some(holder) = Holder::of(lease) else { return Ok(None) };
    let pod = with_retry(|| namespace.pods.get_opt(&holder.pod)).await.map_err(Error::api("get the sandbox's pod"))?;
    Ok(pod.filter(|pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let same = holder.uid.is_none() || holder.uid == pod.metadata.uid;
        same && owners.any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref())
    }))
}
