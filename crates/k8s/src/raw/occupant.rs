//! What became of the pod that a Lease names.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::lease::Holder;
use super::place::Place;
use crate::error::{Error, Result};
use crate::names::{POOL, STATE, WARM};
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
    Gone(&'static str),
}

impl Place {
    /// Looks at the pod that a Lease names.
    pub(crate) async fn occupant(&self, lease: &Lease, holder: &Holder) -> Result<Occupant> {
        let pod = patiently(|| self.pods.get_opt(&holder.pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        let Some(pod) = pod else {
            return Ok(match holder.uid {
                Some(_) => Occupant::Gone("it was deleted"),
                None => Occupant::NotYet,
            });
        };
        let over = ending(&pod);
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref()) {
            let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
            return match (label(POOL), label(STATE)) {
                (Some(_), Some(WARM)) if over.is_none() && holder.uid == pod.metadata.uid => {
                    Ok(Occupant::Warm(Box::new(pod)))
                }
                (Some(_), _) => Ok(Occupant::Gone("another sandbox has it")),
                // An id reaches what Podbay made for it and nothing else, whatever a Lease says.
                _ => Err(Error::NotOurs(format!("the pod {}", holder.pod))),
            };
        }
        if holder.uid.is_some() && holder.uid != pod.metadata.uid {
            return Ok(Occupant::Gone("another pod has its name"));
        }
        Ok(match over {
            Some(how) => Occupant::Gone(how),
            None => Occupant::Live(Box::new(pod)),
        })
    }
}

/// How a pod ends or has ended, if it does.
pub(crate) fn ending(pod: &Pod) -> Option<&'static str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted");
    }
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Failed" | "Succeeded") => Some("it has ended"),
        _ => None,
    }
}

/// Whether a pod that was brought up is up yet: its node may be gone.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    ending(pod).is_none() && conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Whether a container of a pod was started again.
pub(crate) fn was_restarted(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().any(|one| one.restart_count > 0)
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
