//! The Lease that is a sandbox: creating it is what makes one, and deleting it is what ends one.
//!
//! | who | writes | when |
//! |---|---|---|
//! | a creator | all of it; the holder is a pod that waits (name and UID) or one to be made (name) | before there is a pod of its own |
//! | whoever finishes a new pod | the pod's UID, `renewTime` | last of all: from then on the sandbox may be in use |
//! | whoever attaches, or finishes another's claim | `renewTime` | before it looks at the pod |
//! | whoever revives it | another holder, `acquireTime`, its own wishes | before there is another pod |
//! | a client that uses it | `renewTime` | once a minute |
//!
//! `leaseDurationSeconds` is how long a creator may take, from `acquireTime` on. All times are the API server's.
//!
//! Somebody who deletes because of what it saw, and not because a user said so, may have seen something old. These deletes
//! name the resourceVersion that was seen, and look again on a conflict:
//!
//! | who | deletes | if |
//! |---|---|---|
//! | the reaper | the Lease | it is over or idle, and unchanged since it was listed |
//! | a creator that failed | the Lease | nobody else has written it, or nobody has finished its pod yet |
//! | whoever revives it | the pod before | the Lease doesn't name it any more |
//! | a pool's filler | a pod of the pool | a patch that tests its state has taken it out of the pool; a claim tests the same |
//! | the reaper | a pool's Lease | nobody looks after it any more, and it is unchanged |

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
use crate::names::{CREATOR, IDLE_TTL, MANAGED_BY, Marks, PODBAY, SANDBOX, TTL, pointer};
use crate::retry::patiently;

/// How often, and how long apart, something is tried that others were faster at. One that is never ready (a finalizer keeps
/// a deleted Lease) must not hold a caller for ever.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// How long a Lease may name a pod that waits in a pool without having it: a claim is under way.
pub(crate) const CLAIMING: Duration = Duration::from_secs(30);

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

/// How an attempt to delete a Lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// It is gone, by this request.
    Done,
    /// There was none.
    Absent,
    /// It isn't as it was when it was looked at.
    Changed,
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

    pub(crate) async fn now(&self) -> MicroTime {
        MicroTime(self.cluster.now().await)
    }

    /// Makes a Lease for a pod, to be finished within a time, or attaches to the one of that name, whatever pod it has;
    /// whether it was made.
    pub(crate) async fn make(
        &self,
        name: &str,
        marks: &Marks,
        holder: &Holder,
        within: Duration,
    ) -> Result<(Lease, bool)> {
        let now = self.now().await;
        // Another creator may have named the same pod of a pool, so the holder doesn't tell whose Lease it is.
        let creator = format!("{:016x}", rand::random::<u64>());
        let mut annotations = marks.annotations.clone();
        annotations.insert(CREATOR.into(), creator.clone());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(marks.labels.clone()),
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
            match patiently(|| async { self.api.create(&PostParams::default(), &lease).await }).await {
                Ok(lease) => return Ok((lease, true)),
                Err(error) if Error::code(&error) == Some(409) && left > 0 => {}
                Err(error) => return Err(Error::api("make the sandbox's Lease")(error)),
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

    /// Writes down that a sandbox that must exist is about to be used, and gives its Lease. From then on nobody deletes it
    /// because of what was seen before.
    pub(crate) async fn attach(&self, name: &str) -> Result<Lease> {
        let address = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{name}", self.cluster.namespace);
        // Whose it is has to be known before anything is written: it may be a program's that has to do with Podbay nothing.
        let patch = json!([
            {"op": "test", "path": pointer("labels", MANAGED_BY), "value": PODBAY},
            {"op": "test", "path": pointer("labels", SANDBOX), "value": name},
            {"op": "add", "path": "/spec/renewTime", "value": self.now().await},
        ]);
        let body = serde_json::to_vec(&patch).map_err(|error| Error::Config(format!("a patch: {error}")))?;
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let written = patiently(|| async {
                let request = http::Request::patch(&address)
                    .header(http::header::CONTENT_TYPE, "application/json-patch+json")
                    .body(body.clone())
                    .map_err(kube::Error::HttpError)?;
                self.cluster.client.request::<Lease>(request).await
            })
            .await;
            match written {
                Ok(lease) => return self.ours(name, lease),
                Err(error) if Error::code(&error) == Some(404) => return Err(Error::SandboxNotFound(name.to_owned())),
                // It isn't a sandbox's, and this says so.
                Err(error) if Error::code(&error) == Some(422) => return self.find(name).await,
                // Nothing is tested that others change; the API server gave up on doing it after them.
                Err(error) if Error::code(&error) == Some(409) && left > 0 => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(Error::api("write the sandbox's Lease")(error)),
            }
        }
    }

    /// The Lease of a sandbox that must exist.
    pub(crate) async fn find(&self, name: &str) -> Result<Lease> {
        let lease = patiently(|| self.api.get_opt(name))
            .await
            .map_err(Error::api("get the sandbox's Lease"))?
            .ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?;
        self.ours(name, lease)
    }

    fn ours(&self, name: &str, lease: Lease) -> Result<Lease> {
        if lease.metadata.deletion_timestamp.is_some() {
            return Err(Error::SandboxNotFound(name.to_owned()));
        }
        let label = |key: &str| lease.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        // A pool's Lease is Podbay's too, and no sandbox.
        match (label(MANAGED_BY), label(SANDBOX)) {
            (Some(PODBAY), Some(sandbox)) if sandbox == name => Ok(lease),
            _ => Err(Error::NotOurs(format!("the Lease {name}"))),
        }
    }

    /// Names another pod, because the one before is gone; the Lease as it is after that, whoever was first. The sandbox
    /// begins anew, as it is wanted now.
    pub(crate) async fn replace_pod(
        &self,
        lease: &Lease,
        holder: &Holder,
        marks: &Marks,
        within: Duration,
    ) -> Result<Lease> {
        let now = self.now().await;
        let mut annotations = json!({TTL: null, IDLE_TTL: null});
        for (key, value) in &marks.annotations {
            annotations[key] = value.as_str().into();
        }
        let change = json!({
            "metadata": {"labels": marks.labels, "annotations": annotations},
            "spec": {
                "holderIdentity": holder.text(),
                "acquireTime": now,
                "renewTime": now,
                "leaseDurationSeconds": seconds(within),
            },
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
            let change = json!({"spec": {"holderIdentity": wanted.text(), "renewTime": self.now().await}});
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

    /// Deletes a Lease and with it all that it owns, if it is the one that is meant.
    pub(crate) async fn delete(&self, name: &str, preconditions: Preconditions) -> Result<Deletion> {
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match patiently(|| self.api.delete(name, &parameters)).await {
            Ok(_) => Ok(Deletion::Done),
            Err(error) if Error::code(&error) == Some(404) => Ok(Deletion::Absent),
            Err(error) if Error::code(&error) == Some(409) => Ok(Deletion::Changed),
            Err(error) => Err(Error::api("delete the sandbox's Lease")(error)),
        }
    }

    /// Writes down that a sandbox was used just now.
    pub(crate) async fn renew(&self, name: &str) {
        let patch = json!({"spec": {"renewTime": self.now().await}});
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

/// When anybody last wrote that it is wanted.
pub(crate) fn written(lease: &Lease) -> Option<Timestamp> {
    begun(lease).max(used(lease))
}

/// Whether nobody has finished its pod yet, so that nobody can be using it.
pub(crate) fn is_unfinished(lease: &Lease) -> bool {
    Holder::of(lease).is_some_and(|holder| holder.uid.is_none())
}

/// Whether whoever makes its pod should be done with it. A Lease that doesn't say how long that may take is an older
/// version's.
pub(crate) fn startup_is_over(lease: &Lease, now: Timestamp, otherwise: Duration) -> bool {
    let within = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let within = within.and_then(|seconds| u64::try_from(seconds).ok()).map_or(otherwise, Duration::from_secs);
    begun(lease).is_none_or(|begun| age(begun, now) > within)
}

/// How long ago something was. What is still to come, by a clock that differs, was just now.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// How long its sandbox may live and be idle, in seconds.
pub(crate) fn limits(lease: &Lease) -> Limits {
    let seconds = |key: &str| annotation(lease, key)?.parse().ok();
    Limits { ttl: seconds(TTL), idle_ttl: seconds(IDLE_TTL) }
}

/// What is left of these times.
pub(crate) fn limits_left(lease: &Lease, now: Timestamp) -> Limits {
    let Limits { ttl, idle_ttl } = limits(lease);
    let age = begun(lease).map_or(0, |begun| age(begun, now).as_secs());
    // Not nothing: that would be no limit at all to some.
    Limits { ttl: ttl.map(|ttl| ttl.saturating_sub(age).max(1)), idle_ttl }
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn seconds(time: Duration) -> Option<i32> {
    i32::try_from(time.as_secs()).ok()
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
