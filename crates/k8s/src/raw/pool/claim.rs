//! Turns a pod of the pool into a sandbox's, for exactly one of those who want it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use podbay_client::{ErrorCode, Lifetime, Sandbox};
use serde_json::{Value, json};

use crate::api::patch::{is_test_failure, json_patch};
use crate::error::{Error, Result};
use crate::lifetime::{LifetimeLimits, age};
use crate::names::{CLAIMED, DISCARDED, Metadata, STATE, WARM, pointer};
use crate::raw::lease::{self, Holder};
use crate::raw::namespace::SandboxNamespace;
use crate::raw::pod_state::holder_of;

/// A pod that can be claimed.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) holder: Holder,
    /// When the API server created the pod: no later than the start that its deadline counts from.
    made: Option<Timestamp>,
    /// The deadline that it has.
    deadline: Option<u64>,
    /// An open session to it.
    pub(crate) sandbox: Option<Sandbox>,
}

impl Candidate {
    pub(crate) fn of(pod: &Pod) -> Self {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let deadline = deadline.and_then(|seconds| u64::try_from(seconds).ok());
        Self { holder: holder_of(pod), made, deadline, sandbox: None }
    }

    pub(crate) fn with_session(self, sandbox: Sandbox) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }
}

/// Claims a pod for a Lease; returns nothing when somebody else has it. One request tests that the pod is free and gives it to
/// the Lease, so no two get it.
pub(crate) async fn claim(
    namespace: &SandboxNamespace,
    lease: &Lease,
    metadata: &Metadata,
    ttl: Option<u64>,
    candidate: &Candidate,
) -> Result<Option<Pod>> {
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": candidate.holder.uid}),
        json!({"op": "test", "path": pointer("labels", STATE), "value": WARM}),
        json!({"op": "replace", "path": pointer("labels", STATE), "value": CLAIMED}),
        json!({"op": "add", "path": "/metadata/ownerReferences", "value": [lease::owner(lease)]}),
    ];
    let mut add = |part: &str, key: &str, value: Value| {
        patch.push(json!({"op": "add", "path": pointer(part, key), "value": value}));
    };
    for (key, value) in &metadata.labels {
        add("labels", key, value.as_str().into());
    }
    for (key, value) in &metadata.annotations {
        add("annotations", key, value.as_str().into());
    }
    if let Some(ttl) = ttl {
        // The deadline counts from the pod's start, by the node's clock. The creation is a little earlier, so the deadline
        // may be a little late; podbayd ends the sandbox in time.
        let now = namespace.cluster.now().await?;
        let age = candidate.made.map_or(0, |made| age(made, now).as_secs().saturating_add(1));
        // A deadline that is set can only be lowered.
        let deadline = age.saturating_add(ttl).min(candidate.deadline.unwrap_or(u64::MAX));
        patch.push(json!({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": deadline}));
    }
    match json_patch(&namespace.cluster, &candidate.holder.pod, &patch).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_test_failure(&error) => {
            tracing::debug!(%error, pod = candidate.holder.pod, "somebody else has claimed it");
            Ok(None)
        }
        Err(error) => Err(Error::api("claim a pod of the pool")(error)),
    }
}

/// Deletes a pod of the pool that is in this state, unless somebody changes that first: a claimed one is a sandbox. Says
/// whether it did.
pub(crate) async fn discard(namespace: &SandboxNamespace, pod: &Pod, state: &str) -> Result<bool> {
    let patch = [
        json!({"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}),
        json!({"op": "test", "path": pointer("labels", STATE), "value": state}),
        json!({"op": "replace", "path": pointer("labels", STATE), "value": DISCARDED}),
    ];
    match json_patch::<Pod>(&namespace.cluster, pod.metadata.name.as_deref().unwrap_or_default(), &patch).await {
        Ok(_) => namespace.delete_pod(&holder_of(pod)).await.map(|()| true),
        Err(error) if is_test_failure(&error) => Ok(false),
        Err(error) => Err(Error::api("discard a pod of the pool")(error)),
    }
}

/// Tells podbayd in a claimed pod how long the sandbox may live.
///
/// # Errors
/// When podbayd can't be reached, so that the pod is useless.
pub(crate) async fn set_limits(sandbox: &Sandbox, limits: LifetimeLimits) -> podbay_client::Result<()> {
    if limits == LifetimeLimits::default() {
        return Ok(());
    }
    let millis = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1000));
    let lifetime = Lifetime { ttl_ms: millis(limits.ttl), idle_ttl_ms: millis(limits.idle_ttl) };
    match sandbox.set_lifetime(&lifetime).await {
        // An image may contain an older podbayd. The pod's deadline and the reaper still apply.
        Err(error) if error.code() == Some(ErrorCode::UnknownOperation) => {
            tracing::warn!("podbayd in the image is too old to end the sandbox by itself");
            Ok(())
        }
        other => other,
    }
}
