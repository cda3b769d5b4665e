//! The Lease that is a sandbox: creating it is what makes one, and deleting it is what ends one.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use crate::bootstrap::Limits;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{IDLE_TTL, MANAGED_BY, Marks, PODBAY, SANDBOX, TTL};
use crate::retry::patiently;

/// How often, and how long apart, something is tried that others were faster at. One that is never ready (a finalizer keeps
/// a deleted Lease) must not hold a caller for ever.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The pod that a Lease names: its name from the beginning, its UID once it exists. With the name known before, any caller
/// can finish what another has begun, and no two make two pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pod: String,
    pub(crate) uid: Option<String>,
}

impl Holder {
    /// A pod that has to be made.
    pub(crate) fn new_for(name: &str) -> Self {
        // A pod's name is also its host name: 63 bytes at most.
        Self {
            pod: format!("{}-{:08x}", name.get(..54).unwrap_or(name).trim_end_matches('-'), rand::random::<u32>()),
            uid: None,
        }
    }

    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let text = lease.spec.as_ref()?.holder_identity.as_deref()?;
        Some(match text.split_once('/') {
            Some((pod, uid)) => Self { pod: pod.into(), uid: Some(uid.into()) },
            None => Self { pod: text.into(), uid: None },
        })
    }

    fn text(&self) -> String {
        match &self.uid {
            Some(uid) => format!("{}/{uid}", self.pod),
            None => self.pod.clone(),
        }
    }
}

/// The Leases of a namespace.
#[derive(Clone)]
pub(crate) struct Leases {
    pub(crate) api: Api<Lease>,
}

impl Leases {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { api: Api::namespaced(cluster.client.clone(), &cluster.namespace) }
    }

    /// Makes a Lease for a pod, or finds the one of that name, whatever pod it has; whether it was made.
    pub(crate) async fn make(&self, name: &str, marks: &Marks, holder: &Holder) -> Result<(Lease, bool)> {
        let now = MicroTime(Timestamp::now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(marks.labels.clone()),
                annotations: Some(marks.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.text()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match patiently(|| async { self.api.create(&PostParams::default(), &lease).await }).await {
                Ok(lease) => return Ok((lease, true)),
                Err(error) if Error::code(&error) == Some(409) && left > 0 => {}
                Err(error) => return Err(Error::api("make the sandbox's Lease")(error)),
            }
            // Between the two requests it may have been deleted.
            match self.find(name).await {
                Err(Error::SandboxNotFound(_)) => tokio::time::sleep(PAUSE).await,
                // A request that seemed to fail may have been served.
                found => return found.map(|found| (found.clone(), Holder::of(&found).as_ref() == Some(holder))),
            }
        }
    }

    /// The Lease of a sandbox that must exist.
    pub(crate) async fn find(&self, name: &str) -> Result<Lease> {
        let lease = patiently(|| self.api.get_opt(name))
            .await
            .map_err(Error::api("get the sandbox's Lease"))?
            .filter(|lease| lease.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?;
        let label = |key: &str| lease.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        // A pool's Lease is Podbay's too, and no sandbox.
        match (label(MANAGED_BY), label(SANDBOX)) {
            (Some(PODBAY), Some(sandbox)) if sandbox == name => Ok(lease),
            _ => Err(Error::NotOurs(format!("the Lease {name}"))),
        }
    }

    /// Names another pod, because the one before is gone; the Lease as it is after that, whoever was first. The sandbox
    /// begins anew, as it is wanted now.
    pub(crate) async fn replace_pod(&self, lease: &Lease, holder: &Holder, marks: &Marks) -> Result<Lease> {
        let now = MicroTime(Timestamp::now());
        let mut annotations = json!({TTL: null, IDLE_TTL: null});
        for (key, value) in &marks.annotations {
            annotations[key] = value.as_str().into();
        }
        let change = json!({
            "metadata": {"labels": marks.labels, "annotations": annotations},
            "spec": {"holderIdentity": holder.text(), "acquireTime": now, "renewTime": now},
        });
        self.change(lease, change).await
    }

    /// Writes down the UID of the pod that a Lease names.
    pub(crate) async fn set_uid(&self, lease: &Lease, pod: &str, uid: &str) -> Result<()> {
        let wanted = Holder { pod: pod.into(), uid: Some(uid.into()) };
        let mut lease = lease.clone();
        for _ in 0..ATTEMPTS {
            if Holder::of(&lease).is_none_or(|holder| holder.pod != pod || holder.uid.is_some()) {
                return Ok(());
            }
            let change = json!({"spec": {"holderIdentity": wanted.text(), "renewTime": MicroTime(Timestamp::now())}});
            lease = self.change(&lease, change).await?;
        }
        Err(Error::Config(format!(
            "the Lease {} was changed {ATTEMPTS} times while its pod was written down; who changes it?",
            lease.metadata.name.unwrap_or_default()
        )))
    }

    /// Changes a Lease if nobody did meanwhile; the Lease as it is then.
    async fn change(&self, lease: &Lease, mut change: serde_json::Value) -> Result<Lease> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        change["metadata"]["resourceVersion"] = json!(lease.metadata.resource_version);
        let patch = Patch::Merge(change);
        match patiently(|| async { self.api.patch(name, &PatchParams::default(), &patch).await }).await {
            Ok(lease) => Ok(lease),
            Err(error) if Error::code(&error) == Some(409) => self.find(name).await,
            Err(error) if Error::code(&error) == Some(404) => Err(Error::SandboxNotFound(name.into())),
            Err(error) => Err(Error::api("change the sandbox's Lease")(error)),
        }
    }

    /// Deletes a Lease and with it all that it owns; whether there was one that is meant.
    pub(crate) async fn delete(&self, name: &str, preconditions: Preconditions) -> Result<bool> {
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match patiently(|| self.api.delete(name, &parameters)).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(Error::api("delete the sandbox's Lease")(error)),
        }
    }

    /// Writes down that a sandbox was used just now.
    pub(crate) async fn renew(&self, name: &str) {
        let patch = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
        if let Err(error) = self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            // The next minute brings the next try; the work itself needn't fail for this.
            tracing::warn!(%error, name, "the sandbox's activity couldn't be written down");
        }
    }
}

/// The Lease that is meant and no other of that name.
pub(crate) fn this(lease: &Lease) -> Preconditions {
    Preconditions { uid: lease.metadata.uid.clone(), resource_version: None }
}

/// The Lease as it was seen: not if anybody has used it since.
pub(crate) fn unchanged(lease: &Lease) -> Preconditions {
    Preconditions { resource_version: lease.metadata.resource_version.clone(), ..this(lease) }
}

/// When the sandbox that a Lease is began: the Lease may be older than its pod.
pub(crate) fn begun(lease: &Lease) -> Option<Timestamp> {
    let acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref()).map(|time| time.0);
    acquired.or_else(|| lease.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// When it was last used, as far as was written down.
pub(crate) fn used(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// How long its sandbox may live and be idle, in seconds.
pub(crate) fn limits(lease: &Lease) -> Limits {
    let seconds = |key: &str| lease.metadata.annotations.as_ref()?.get(key)?.parse().ok();
    Limits { ttl: seconds(TTL), idle_ttl: seconds(IDLE_TTL) }
}

/// What is left of these times.
pub(crate) fn limits_left(lease: &Lease) -> Limits {
    let Limits { ttl, idle_ttl } = limits(lease);
    let age = begun(lease).map_or(0, |begun| (Timestamp::now().as_second() - begun.as_second()).max(0).unsigned_abs());
    // Not nothing: that would be no limit at all to some.
    Limits { ttl: ttl.map(|ttl| ttl.saturating_sub(age).max(1)), idle_ttl }
}

/// What makes an object go away with a Lease.
pub(crate) fn owner(lease: &Lease) -> OwnerReference {
    OwnerReference {
        api_version: "coordination.k8s.io/v1".into(),
        kind: "Lease".into(),
        name: lease.metadata.name.clone().unwrap_or_default(),
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_fits_however_long_the_sandboxs() {
        for name in ["pb-1", &"a".repeat(63), &format!("{}-b", "a".repeat(53))] {
            let holder = Holder::new_for(name);
            assert!(holder.pod.len() <= 63 && !holder.pod.contains("--"), "{}", holder.pod);
        }
    }
}
