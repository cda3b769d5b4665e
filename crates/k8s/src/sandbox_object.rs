//! The object that *is* a sandbox: a Lease in raw mode, a SandboxClaim in agent-sandbox mode. Creating it creates the
//! sandbox, deleting it deletes everything that belongs to it.
//!
//! How one is created differs between the modes in every respect, so it isn't part of these traits.

use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;

/// What an object tells about its sandbox.
pub(crate) trait SandboxObject: Resource + Clone + Send + Sync {
    /// How long the sandbox may live and be idle.
    fn limits(&self) -> LifetimeLimits;

    /// When the sandbox began. Its object may be older.
    fn began(&self) -> Option<Timestamp>;

    /// When it was last used, as far as that was recorded.
    fn last_used(&self) -> Option<Timestamp>;

    /// The sandbox's id.
    fn id(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }
}

/// The objects of one namespace.
pub(crate) trait SandboxObjects: Clone + Send + Sync + 'static {
    /// Their kind.
    type Object: SandboxObject;

    /// The object of a sandbox that must exist.
    fn find(&self, name: &str) -> impl Future<Output = Result<Self::Object>> + Send;

    /// Records that a sandbox was used just now. Failures are logged: the next heartbeat tries again.
    fn renew(&self, name: &str) -> impl Future<Output = ()> + Send;

    /// Deletes an object and everything it owns, if the preconditions hold.
    fn delete(&self, name: &str, preconditions: Preconditions) -> impl Future<Output = Result<Deletion>> + Send;
}

/// How an attempt to delete an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// This request deleted it.
    Done,
    /// There was none.
    Absent,
    /// It isn't the object that was meant, or it was changed since it was read.
    Changed,
}

/// Deletes an object and everything it owns, if the preconditions hold. `what` is for the message of a refusal.
pub(crate) async fn delete<K>(
    api: &Api<K>,
    name: &str,
    preconditions: Preconditions,
    what: &'static str,
) -> Result<Deletion>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match with_retry(|| api.delete(name, &parameters)).await {
        Ok(_) => Ok(Deletion::Done),
        Err(error) if Error::code(&error) == Some(404) => Ok(Deletion::Absent),
        Err(error) if Error::code(&error) == Some(409) => Ok(Deletion::Changed),
        Err(error) => Err(Error::api(what)(error)),
    }
}

/// This very object, whatever has been written to it.
pub(crate) fn same(object: &impl Resource) -> Preconditions {
    Preconditions { uid: object.meta().uid.clone(), resource_version: None }
}

/// The object as it was read: not if anybody has written to it since.
pub(crate) fn unchanged(object: &impl Resource) -> Preconditions {
    Preconditions { resource_version: object.meta().resource_version.clone(), ..same(object) }
}
