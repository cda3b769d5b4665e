//! What became of the pod that a Lease names.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::lease::Holder;
use super::manifest::CONTAINER;
use super::place::Place;
use crate::error::{Error, Result};
use crate::names::{POOL, STATE, WARM};
use crate::pod::health::ending;
use crate::retry::patiently;

/// What is known about the pod that a Lease names.
pub(crate) enum Occupant {
    /// It exists, and may be used or waited for.
    Live(Box<Pod>),
    /// It waits in a pool: whoever made the Lease was about to claim it.
    Warm(Box<Pod>),
    /// It was never made.
    NotYet,
    /// It has ended or was deleted, with all that was in it; or another sandbox got it.
    Gone {
        /// What became of it.
        how: String,
        /// What is still there of it and belongs to this Lease.
        remains: Option<Holder>,
    },
}

impl Place {
    /// Looks at the pod that a Lease names.
    pub(crate) async fn occupant(&self, lease: &Lease, holder: &Holder) -> Result<Occupant> {
        let pod = patiently(|| self.pods.get_opt(&holder.pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        let gone = |how: &str| Occupant::Gone { how: how.into(), remains: None };
        let Some(pod) = pod else {
            return Ok(match holder.uid {
                Some(_) => gone("it was deleted"),
                None => Occupant::NotYet,
            });
        };
        let over = ending(&pod, CONTAINER);
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref()) {
            let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
            return match (label(POOL), label(STATE)) {
                (Some(_), Some(WARM)) if over.is_none() && holder.uid == pod.metadata.uid => {
                    Ok(Occupant::Warm(Box::new(pod)))
                }
                (Some(_), _) => Ok(gone("another sandbox has it")),
                // An id reaches what Podbay made for it and nothing else, whatever a Lease says.
                _ => Err(Error::NotOurs(format!("the pod {}", holder.pod))),
            };
        }
        if holder.uid.is_some() && holder.uid != pod.metadata.uid {
            return Ok(gone("another pod has its name"));
        }
        Ok(match over {
            Some(how) => {
                let going = pod.metadata.deletion_timestamp.is_some();
                Occupant::Gone { how, remains: (!going).then(|| holder_of(&pod)) }
            }
            None => Occupant::Live(Box::new(pod)),
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
    Holder::of(lease).ok_or_else(|| Error::NotOurs(format!("the Lease {name} names no pod: it")))
}
