//! The Lease that is a sandbox: creating it creates the sandbox, and deleting it deletes the sandbox.
//!
//! | who | writes | when |
//! |---|---|---|
//! | a creator | all of it; the holder is a pod of a pool (name and UID) or one to be created (name) | before it has a pod of its own |
//! | whoever finishes a new pod | the pod's UID, `renewTime` | last of all: from then on the sandbox may be in use |
//! | whoever attaches, or lost a claim to another | `renewTime` | before it looks at the pod |
//! | whoever revives it | another holder, `acquireTime`, its own options | before there is another pod |
//! | a client that uses it | `renewTime` | once a minute |
//! | the reaper | since when podbayd has been silent | when podbayd doesn't say whether the sandbox is idle |
//!
//! `leaseDurationSeconds` is how long a creator may take, counted from `acquireTime`. All times are the API server's.
//!
//! A program that deletes because of what it read, and not because a user said so, may have read something old. Such deletes
//! carry the resourceVersion that was read, and look again on a conflict:
//!
//! | who | deletes | if |
//! |---|---|---|
//! | the reaper | the Lease | it is over or idle, also after a fresh look at its pod, and unchanged since |
//! | the reaper | the Lease | it looks idle, podbayd has been silent in every run for as long again, and it is unchanged since |
//! | a creator that failed | the Lease | nobody else has written to it, or nobody has finished its pod yet |
//! | whoever revives it | the pod before | the Lease doesn't name it any more |
//! | whoever fills a pool | a pod of the pool | a patch that tests its state has taken it out of the pool; a claim tests the same |
//! | the reaper | a pool's Lease | nobody uses the pool any more, and the Lease is unchanged |
//! | the reaper, or whoever deletes a sandbox | the sandbox's own namespace | it is unchanged since before the Lease was deleted or found missing; whoever takes one over writes to it |
//!
//! One gap remains: an operation that begins on an open connection after podbayd has told the reaper that it is idle, and
//! before the DELETE arrives (tens of milliseconds), ends with its sandbox.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use crate::api::patch::json_patch;
use crate::api::retry::with_retry;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::lifetime::{LifetimeLimits, age};
use crate::names::{CREATOR, IDLE_TTL, MANAGED_BY, Metadata, PODBAY, SANDBOX, SILENT_SINCE, TTL, pointer};
use crate::sandbox_object::{self, Deletion, SandboxObject, SandboxObjects};

/// How often, and how long apart, something is tried that others were faster at. A Lease that never goes away (a finalizer
/// may keep it) mustn't block a caller forever.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// How long a Lease may name a pod of a pool without owning it, by default: a claim is under way.
pub(crate) const CLAIMING: Duration = Duration::from_secs(30);

/// The pod that a Lease names: its name from the beginning, its UID once it exists. Because the name is known beforehand, any
/// caller can finish what another has begun, and no two create two pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pod: String,
    pub(crate) uid: Option<String>,
}

impl Holder {
    /// A pod that has yet to be created.
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
    cluster: Cluster,
}

impl Leases {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { api: Api::namespaced(cluster.client.clone(), &cluster.namespace), cluster: cluster.clone() }
    }

    pub(crate) async fn now(&self) -> Result<MicroTime> {
        self.cluster.now().await.map(MicroTime)
    }

    /// Creates a Lease for a pod that is to be finished within a time, or attaches to the Lease of that name, whatever pod it
    /// has. Says whether it was created.
    pub(crate) async fn create(
        &self,
        name: &str,
        metadata: &Metadata,
        holder: &Holder,
        within: Duration,
    ) -> Result<(Lease, bool)> {
        let now = self.now().await?;
        // Another creator may have named the same pod of a pool, so the holder doesn't say whose Lease it is.
        let creator = format!("{:016x}", rand::random::<u64>());
        let mut annotations = metadata.annotations.clone();
        annotations.insert(CREATOR.into(), creator.clone());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(metadata.labels.clone()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.text()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_duration_seconds: seconds(within),
                ..LeaseSpec::default()
            }),
        };
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match with_retry(|| async { self.api.create(&PostParams::default(), &lease).await }).await {
                Ok(lease) => return Ok((lease, true)),
                Err(error) if Error::code(&error) == Some(409) && left > 0 => {}
                Err(error) => return Err(Error::api("create the sandbox's Lease")(error)),
            }
            // Between the two requests it may have been deleted.
            match self.attach(name).await {
                Err(Error::SandboxNotFound(_)) => tokio::time::sleep(PAUSE).await,
                // A request that seemed to fail may have been served.
                found => {
                    let found = found?;
                    let ours = annotation(&found, CREATOR) == Some(creator.as_str());
                    return Ok((found, ours));
                }
            }
        }
    }

    /// Records that a sandbox, which must exist, is about to be used, and returns its Lease. From then on nobody deletes it
    /// because of what was read before.
    pub(crate) async fn attach(&self, name: &str) -> Result<Lease> {
        // Ownership is tested before anything is written: the Lease may belong to another program.
        let patch = [
            json!({"op": "test", "path": pointer("labels", MANAGED_BY), "value": PODBAY}),
            json!({"op": "test", "path": pointer("labels", SANDBOX), "value": name}),
            json!({"op": "add", "path": "/spec/renewTime", "value": self.now().await?}),
        ];
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let written = json_patch::<Lease>(&self.cluster, name, &patch).await;
            match written {
                Ok(lease) => return self.ours(name, lease),
                Err(error) if Error::code(&error) == Some(404) => return Err(Error::SandboxNotFound(name.to_owned())),
                // It isn't a sandbox, and this says so.
                Err(error) if Error::code(&error) == Some(422) => return self.find(name).await,
                // Others don't change what is tested; the API server gave up retrying behind them.
                Err(error) if Error::code(&error) == Some(409) && left > 0 => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(Error::api("write the sandbox's Lease")(error)),
            }
        }
    }

    fn ours(&self, name: &str, lease: Lease) -> Result<Lease> {
        if lease.metadata.deletion_timestamp.is_some() {
            return Err(Error::SandboxNotFound(name.to_owned()));
        }
        let label = |key: &str| lease.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        // A pool's Lease is Podbay's too, but no sandbox.
        match (label(MANAGED_BY), label(SANDBOX)) {
            (Some(PODBAY), Some(sandbox)) if sandbox == name => Ok(lease),
            _ => Err(Error::not_ours(format_args!("the Lease {name}"))),
        }
    }

    /// Names another pod, because the one before is gone. Returns the Lease as it is after that, whoever was first. The
    /// sandbox starts over, with the options that are asked for now.
    pub(crate) async fn replace_pod(
        &self,
        lease: &Lease,
        holder: &Holder,
        metadata: &Metadata,
        within: Duration,
    ) -> Result<Lease> {
        let now = self.now().await?;
        let mut annotations = json!({TTL: null, IDLE_TTL: null});
        for (key, value) in &metadata.annotations {
            annotations[key] = value.as_str().into();
        }
        let change = json!({
            "metadata": {"labels": metadata.labels, "annotations": annotations},
            "spec": {
                "holderIdentity": holder.text(),
                "acquireTime": now,
                "renewTime": now,
                "leaseDurationSeconds": seconds(within),
            },
        });
        self.change(lease, change).await
    }

    /// Records the UID of the pod that a Lease names: the sandbox is finished.
    ///
    /// # Errors
    /// [`Error::Superseded`] when the Lease names another pod by now.
    pub(crate) async fn set_uid(&self, lease: &Lease, pod: &str, uid: &str) -> Result<()> {
        let wanted = Holder { pod: pod.into(), uid: Some(uid.into()) };
        let mut lease = lease.clone();
        for _ in 0..ATTEMPTS {
            match Holder::of(&lease) {
                Some(holder) if holder == wanted => return Ok(()),
                Some(holder) if holder.pod == pod && holder.uid.is_none() => {}
                // Whoever came later took this creator for dead, and deletes the pod that it made.
                _ => return Err(Error::Superseded(lease.metadata.name.unwrap_or_default())),
            }
            let change = json!({"spec": {"holderIdentity": wanted.text(), "renewTime": self.now().await?}});
            lease = self.change(&lease, change).await?;
        }
        Err(Error::Contended {
            what: format!("the Lease {}", lease.metadata.name.unwrap_or_default()),
            attempts: ATTEMPTS,
            how: "was changed by others",
        })
    }

    /// Records that podbayd doesn't say whether its sandbox is idle, unless somebody has written to the Lease since it was read.
    pub(crate) async fn note_silence(&self, lease: &Lease) -> Result<()> {
        let now = self.now().await?.0.to_string();
        self.change(lease, json!({"metadata": {"annotations": {SILENT_SINCE: now}}})).await.map(drop)
    }

    /// Changes a Lease unless somebody else did meanwhile. Returns the Lease as it is then.
    async fn change(&self, lease: &Lease, mut change: serde_json::Value) -> Result<Lease> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        change["metadata"]["resourceVersion"] = json!(lease.metadata.resource_version);
        let patch = Patch::Merge(change);
        match with_retry(|| async { self.api.patch(name, &PatchParams::default(), &patch).await }).await {
            Ok(lease) => Ok(lease),
            Err(error) if Error::code(&error) == Some(409) => self.find(name).await,
            Err(error) if Error::code(&error) == Some(404) => Err(Error::SandboxNotFound(name.into())),
            Err(error) => Err(Error::api("change the sandbox's Lease")(error)),
        }
    }
}

impl SandboxObjects for Leases {
    type Object = Lease;

    async fn find(&self, name: &str) -> Result<Lease> {
        let lease = with_retry(|| self.api.get_opt(name))
            .await
            .map_err(Error::api("get the sandbox's Lease"))?
            .ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?;
        self.ours(name, lease)
    }

    async fn renew(&self, name: &str) {
        let renewed = async {
            let patch = Patch::Merge(json!({"spec": {"renewTime": self.now().await?}}));
            self.api.patch(name, &PatchParams::default(), &patch).await.map_err(Error::api("renew the sandbox's Lease"))
        };
        if let Err(error) = renewed.await {
            tracing::warn!(%error, name, "can't record the sandbox's activity");
        }
    }

    async fn delete(&self, name: &str, preconditions: Preconditions) -> Result<Deletion> {
        sandbox_object::delete(&self.api, name, preconditions, "delete the sandbox's Lease").await
    }
}

impl SandboxObject for Lease {
    fn limits(&self) -> LifetimeLimits {
        let seconds = |key: &str| annotation(self, key)?.parse().ok();
        LifetimeLimits { ttl: seconds(TTL), idle_ttl: seconds(IDLE_TTL) }
    }

    fn began(&self) -> Option<Timestamp> {
        let acquired = self.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref()).map(|time| time.0);
        acquired.or_else(|| self.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }

    fn last_used(&self) -> Option<Timestamp> {
        self.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
    }
}

/// Since when podbayd has been silent. What a reaper noted before the sandbox was last used no longer counts.
pub(crate) fn silent_since(lease: &Lease) -> Option<Timestamp> {
    let since: Timestamp = annotation(lease, SILENT_SINCE)?.parse().ok()?;
    (Some(since) > last_written(lease)).then_some(since)
}

/// When somebody last wrote that the sandbox is wanted.
pub(crate) fn last_written(lease: &Lease) -> Option<Timestamp> {
    lease.began().max(lease.last_used())
}

/// Whether nobody has finished the sandbox's pod yet, so that nobody can be using it.
pub(crate) fn is_unfinished(lease: &Lease) -> bool {
    Holder::of(lease).is_some_and(|holder| holder.uid.is_none())
}

/// Whether a Lease that names a pod of a pool, and doesn't own it, may still get it. A claim takes no longer than `within`.
pub(crate) fn is_being_claimed(lease: &Lease, now: Timestamp, within: Duration) -> bool {
    last_written(lease).is_some_and(|written| age(written, now) < within)
}

/// Whether the creator of the sandbox's pod should be done by now. Leases of older versions don't say how long that may
/// take.
pub(crate) fn startup_is_over(lease: &Lease, now: Timestamp, otherwise: Duration) -> bool {
    let within = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let within = within.and_then(|seconds| u64::try_from(seconds).ok()).map_or(otherwise, Duration::from_secs);
    lease.began().is_none_or(|began| age(began, now) > within)
}

/// What is left of a sandbox's limits.
pub(crate) fn limits_left(lease: &Lease, now: Timestamp) -> LifetimeLimits {
    lease.limits().after(lease.began().map_or(Duration::ZERO, |began| age(began, now)))
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn seconds(time: Duration) -> Option<i32> {
    i32::try_from(time.as_secs()).ok()
}

/// Makes an object be deleted with a Lease.
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

    /// A sandbox that was used again would be deleted for a silence of long ago.
    #[test]
    fn silence_counts_from_the_last_use_on() {
        let lease = |silent: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": {"annotations": {SILENT_SINCE: silent}},
                "spec": {"renewTime": "2026-01-02T00:00:00.000000Z"},
            }))
            .unwrap()
        };
        assert!(silent_since(&lease("2026-01-03T00:00:00Z")).is_some());
        for other in ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "yesterday", ""] {
            assert_eq!(silent_since(&lease(other)), None, "{other}");
        }
    }

    #[test]
    fn a_pods_name_fits_however_long_the_sandboxs() {
        for name in ["pb-1", &"a".repeat(63), &format!("{}-b", "a".repeat(53))] {
            let holder = Holder::new_for(name);
            assert!(holder.pod.len() <= 63 && !holder.pod.contains("--"), "{}", holder.pod);
        }
    }
}
