//! Which labels and annotations the controller lets a claim put on a pod.
//!
//! It reports others only after the claim was created (`InvalidMetadata`), so they are rejected before that. See
//! `additionalPodMetadata` in <https://github.com/kubernetes-sigs/agent-sandbox/blob/main/extensions/api/v1beta1/sandboxclaim_types.go>.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::names;

/// Domains of annotations that belong to Kubernetes and the controller.
const RESERVED: [&str; 3] = ["kubernetes.io", "k8s.io", "agents.x-k8s.io"];

/// An annotation that the controller lets through all the same.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Checks labels of a pod. Which domains are allowed is the controller's own setting, so only the form is checked here.
///
/// # Errors
/// When the controller refuses one whatever its settings are.
pub(super) fn check_pod_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    for (key, value) in labels {
        let refuse = |why: &str| Err(Error::Config(format!("agent_sandbox.pod_labels: {key:?} {why}")));
        let Some((domain, _)) = key.split_once('/').filter(|(domain, name)| !domain.is_empty() && !name.is_empty())
        else {
            return refuse("has no domain: the controller allows labels such as sandbox.users.io/team");
        };
        if is_below(domain, &RESERVED) || domain == "podbay.dev" {
            return refuse("has a reserved domain");
        }
        if names::label_value(value) != *value {
            return refuse("has a value that isn't valid: use up to 63 letters, digits, '-', '_' or '.'");
        }
    }
    Ok(())
}

/// Checks annotations of a pod.
///
/// # Errors
/// When the controller refuses one.
pub(super) fn check_pod_annotations(annotations: &BTreeMap<String, String>) -> Result<()> {
    for key in annotations.keys().filter(|key| *key != SAFE_TO_EVICT) {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        if is_below(domain, &RESERVED) {
            return Err(Error::Config(format!("agent_sandbox.pod_annotations: {key:?} has a reserved domain")));
        }
    }
    Ok(())
}

fn is_below(domain: &str, of: &[&str]) -> bool {
    of.iter().any(|reserved| domain == *reserved || domain.ends_with(&format!(".{reserved}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_controller_refuses_is_refused_before() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert!(check_pod_labels(&one("sandbox.users.io/team", "blue")).is_ok());
        for (key, value) in [("client-id", "x"), ("x.k8s.io/a", "b"), ("agents.x-k8s.io/a", "b"), ("a.b/c", "d e")] {
            assert!(check_pod_labels(&one(key, value)).is_err(), "{key}");
        }
        assert!(check_pod_annotations(&one("note", "any text")).is_ok());
        assert!(check_pod_annotations(&one(SAFE_TO_EVICT, "true")).is_ok());
        assert!(check_pod_annotations(&one("kubernetes.io/x", "y")).is_err());
    }
}
