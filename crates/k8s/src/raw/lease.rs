//! The Lease that is a sandbox: creating it is what makes one, and deleting it is what ends one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use crate::channel::exec_stream::Witness;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{MANAGED_BY, Marks, PODBAY};

/// How often the last activity is written down, in seconds.
const RENEW_EVERY: u64 = 60;

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
    fn new_for(name: &str) -> Self {
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

    /// Makes a Lease, or finds the one of that name.
    pub(crate) async fn make(&self, name: &str, marks: &Marks) -> Result<Lease> {
        let now = MicroTime(Timestamp::now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(marks.labels.clone()),
                annotations: Some(marks.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(Holder::new_for(name).text()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match self.api.create(&PostParams::default(), &lease).await {
                Ok(lease) => return Ok(lease),
                Err(error) if Error::code(&error) == Some(409) && left > 0 => {}
                Err(error) => return Err(Error::api("make the sandbox's Lease")(error)),
            }
            // Between the two requests it may have been deleted.
            match self.find(name).await {
                Err(Error::SandboxNotFound(_)) => tokio::time::sleep(PAUSE).await,
                found => return found,
            }
        }
    }

    /// The Lease of a sandbox that must exist.
    pub(crate) async fn find(&self, name: &str) -> Result<Lease> {
        let lease = self
            .api
            .get_opt(name)
            .await
            .map_err(Error::api("get the sandbox's Lease"))?
            .filter(|lease| lease.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?;
        let labels = lease.metadata.labels.as_ref();
        match labels.and_then(|labels| labels.get(MANAGED_BY)).map(String::as_str) {
            Some(PODBAY) => Ok(lease),
            _ => Err(Error::NotOurs(format!("the Lease {name}"))),
        }
    }

    /// Names another pod, because the one before is gone; the Lease as it is after that, whoever was first.
    pub(crate) async fn replace_pod(&self, lease: &Lease) -> Result<Lease> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        self.set_holder(lease, &Holder::new_for(name)).await
    }

    /// Writes down the UID of the pod that a Lease names.
    pub(crate) async fn set_uid(&self, lease: &Lease, pod: &str, uid: &str) -> Result<()> {
        let wanted = Holder { pod: pod.into(), uid: Some(uid.into()) };
        let mut lease = lease.clone();
        for _ in 0..ATTEMPTS {
            if Holder::of(&lease).is_none_or(|holder| holder.pod != pod || holder.uid.is_some()) {
                return Ok(());
            }
            lease = self.set_holder(&lease, &wanted).await?;
        }
        Err(Error::Config(format!(
            "the Lease {} was changed {ATTEMPTS} times while its pod was written down; who changes it?",
            lease.metadata.name.unwrap_or_default()
        )))
    }

    /// Changes the holder if nobody changed the Lease meanwhile; the Lease as it is then.
    async fn set_holder(&self, lease: &Lease, holder: &Holder) -> Result<Lease> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": {"holderIdentity": holder.text(), "renewTime": MicroTime(Timestamp::now())},
        });
        match self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(lease) => Ok(lease),
            Err(error) if Error::code(&error) == Some(409) => self.find(name).await,
            Err(error) if Error::code(&error) == Some(404) => Err(Error::SandboxNotFound(name.into())),
            Err(error) => Err(Error::api("change the sandbox's Lease")(error)),
        }
    }

    /// Deletes a Lease and with it all that it owns; whether there was one. It must be the one with that UID, if there is one.
    pub(crate) async fn delete(&self, name: &str, uid: Option<String>) -> Result<bool> {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match self.api.delete(name, &parameters).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(Error::api("delete the sandbox's Lease")(error)),
        }
    }

    /// Writes down that a sandbox is used, at most once a minute.
    pub(crate) fn witness(&self, name: &str) -> Witness {
        let (leases, name, begun) = (self.clone(), name.to_owned(), std::time::Instant::now());
        // Seconds since this was made, so that the first minute is already counted for.
        let written = AtomicU64::new(0);
        Arc::new(move || {
            let now = begun.elapsed().as_secs();
            let last = written.load(Ordering::Relaxed);
            if now < last + RENEW_EVERY
                || written.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                return;
            }
            let (leases, name) = (leases.clone(), name.clone());
            tokio::spawn(async move { leases.renew(&name).await });
        })
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
