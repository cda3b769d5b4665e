//! Turns a pod that waits into a sandbox's, for one of all those who want it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use podbay_client::{ErrorCode, Lifetime, Sandbox};
use serde_json::{Value, json};

use crate::bootstrap::Limits;
use crate::error::{Error, Result};
use crate::names::{CLAIMED, DISCARDED, Marks, STATE, WARM, pointer};
use crate::raw::lease::{self, Holder};
use crate::raw::occupant::holder_of;
use crate::raw::place::Place;
use crate::retry::patiently;

/// A pod that may be claimed.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) holder: Holder,
    /// When the API server made the pod: no later than the start from which its deadline counts.
    made: Option<Timestamp>,
    /// The deadline that it has already.
    deadline: Option<u64>,
    /// A session that is open to it.
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

/// Claims a pod for a Lease; nothing when it isn't to be had any more. One request tests that it waits and makes it the
/// Lease's, so no two get it.
pub(crate) async fn claim(
    place: &Place,
    lease: &Lease,
    marks: &Marks,
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
    for (key, value) in &marks.labels {
        add("labels", key, value.as_str().into());
    }
    for (key, value) in &marks.annotations {
        add("annotations", key, value.as_str().into());
    }
    if let Some(ttl) = ttl {
        // It counts from the pod's start, not from now. The start is by the node's clock, so it isn't compared with this one.
        // What is a little too long here podbayd ends in time.
        let now = place.cluster.now().await;
        let age = candidate.made.map_or(0, |made| lease::age(made, now).as_secs().saturating_add(1));
        // One that is there can only be lowered.
        let deadline = age.saturating_add(ttl).min(candidate.deadline.unwrap_or(u64::MAX));
        patch.push(json!({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": deadline}));
    }
    match json_patch(place, &candidate.holder.pod, &patch).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_taken(&error) => {
            tracing::debug!(%error, pod = candidate.holder.pod, "another has it");
            Ok(None)
        }
        Err(error) => Err(Error::api("claim a pod of the pool")(error)),
    }
}

/// Whether a pod isn't what a patch tests for any more.
pub(super) fn is_taken(error: &kube::Error) -> bool {
    match error {
        // A test that fails is a 422, as is a pod that can't be; only the latter is told in so many words.
        kube::Error::Api(status) if status.code == 422 => !status.message.contains("is invalid"),
        error => matches!(Error::code(error), Some(404 | 409)),
    }
}

/// Deletes a pod that is in this state, unless somebody changes that first: a claimed one is a sandbox. Whether it did.
pub(crate) async fn discard(place: &Place, pod: &Pod, state: &str) -> Result<bool> {
    let patch = [
        json!({"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}),
        json!({"op": "test", "path": pointer("labels", STATE), "value": state}),
        json!({"op": "replace", "path": pointer("labels", STATE), "value": DISCARDED}),
    ];
    match json_patch(place, pod.metadata.name.as_deref().unwrap_or_default(), &patch).await {
        Ok(_) => place.delete_pod(&holder_of(pod)).await.map(|()| true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) => Err(Error::api("discard a pod of the pool")(error)),
    }
}

/// Patches a pod if what is tested holds.
pub(super) async fn json_patch(place: &Place, pod: &str, patch: &[Value]) -> Result<Pod, kube::Error> {
    let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
    let address = format!("/api/v1/namespaces/{}/pods/{pod}", place.cluster.namespace);
    patiently(|| async {
        let request = http::Request::patch(&address)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(body.clone())
            .map_err(kube::Error::HttpError)?;
        place.cluster.client.request(request).await
    })
    .await
}

/// Tells podbayd in a claimed pod how long the sandbox may go on.
///
/// # Errors
/// When it can't be reached, so that the pod is of no use.
pub(crate) async fn set_limits(sandbox: &Sandbox, limits: Limits) -> podbay_client::Result<()> {
    if limits == Limits::default() {
        return Ok(());
    }
    let millis = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1000));
    let lifetime = Lifetime { ttl_ms: millis(limits.ttl), idle_ttl_ms: millis(limits.idle_ttl) };
    match sandbox.set_lifetime(&lifetime).await {
        // An image may have an older podbayd of its own. The pod's deadline and the reaper hold all the same.
        Err(error) if error.code() == Some(ErrorCode::UnknownOperation) => {
            tracing::warn!("podbayd in the image is too old to end the sandbox by itself");
            Ok(())
        }
        other => other,
    }
}
