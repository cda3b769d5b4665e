//! What became of the pod that a Lease names.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::lease::Holder;
use super::manifest::CONTAINER;
use super::namespace::SandboxNamespace;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::names::{POOL, STATE, WARM};
use crate::pod::health::ending;

/// What is known about the pod that a Lease names.
pub(crate) enum PodState {
    /// It exists, and can be used or waited for.
    Live(Box<Pod>),
    /// It waits in a pool: whoever created the Lease was about to claim it.
    Warm(Box<Pod>),
    /// It was never created.
    NotCreated,
    /// It has ended or was deleted, with everything in it; or another sandbox got it.
    Gone {
        /// What became of it.
        how: String,
        /// The ended pod, where it still exists and belongs to this Lease.
        remains: Option<Box<Pod>>,
    },
}

impl PodState {
    /// The pod, live or ended, if it belongs to the Lease.
    pub(crate) fn owned(&self) -> Option<&Pod> {
        match self {
            Self::Live(pod) | Self::Gone { remains: Some(pod), .. } => Some(pod),
            _ => None,
        }
    }
}

impl SandboxNamespace {
    /// Looks at the pod that a Lease names.
    pub(crate) async fn pod_state(&self, lease: &Lease, holder: &Holder) -> Result<PodState> {
        let pod = with_retry(|| self.pods.get_opt(&holder.pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        let gone = |how: &str| PodState::Gone { how: how.into(), remains: None };
        let Some(pod) = pod else {
            return Ok(match holder.uid {
                Some(_) => gone("it was deleted"),
                None => PodState::NotCreated,
            });
        };
        let over = ending(&pod, CONTAINER);
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref()) {
            let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
            return match (label(POOL), label(STATE)) {
                (Some(_), Some(WARM)) if over.is_none() && holder.uid == pod.metadata.uid => {
                    Ok(PodState::Warm(Box::new(pod)))
                }
                (Some(_), _) => Ok(gone("another sandbox has it")),
                // An id reaches what Podbay created for it and nothing else, whatever a Lease says.
                _ => Err(Error::not_ours(format_args!("the pod {}", holder.pod))),
            };
        }
        if holder.uid.is_some() && holder.uid != pod.metadata.uid {
            return Ok(gone("another pod has its name"));
        }
        Ok(match over {
            Some(how) => PodState::Gone { how, remains: Some(Box::new(pod)) },
            None => PodState::Live(Box::new(pod)),
        })
    }
}

/// The pod as a Lease names it.
pub(crate) fn holder_of(pod: &Pod) -> Holder {
    Holder { pod: pod.metadata.name.clone().unwrap_or_default(), uid: pod.metadata.uid.clone() }
}

/// The pod that a Lease names.
///
/// # Errors
/// When it names none, so that it isn't a sandbox.
pub(crate) fn holder(lease: &Lease) -> Result<Holder> {
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    Holder::of(lease)
        .ok_or_else(|| Error::NotOurs(format!("the Lease {name} names no pod, so it isn't a Podbay sandbox")))
}
