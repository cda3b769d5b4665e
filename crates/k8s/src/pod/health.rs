//! Whether a pod has ended, is usable, or is out of reach. The sandbox's own container decides, not the pod's phase: a service
//! mesh's sidecar keeps running when the sandbox has ended, and may not be ready when the sandbox is.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// How a pod has ended or is ending, if it has or is.
pub(crate) fn ending(pod: &Pod, container: &str) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".into());
    }
    let status = pod.status.as_ref()?;
    if let Some(phase @ ("Failed" | "Succeeded")) = status.phase.as_deref() {
        return Some(format!("it has ended ({})", status.reason.as_deref().unwrap_or(phase)));
    }
    let ended = container_of(pod, container)?.state.as_ref()?.terminated.as_ref()?;
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let stays_down = match policy {
        Some("Never") => true,
        Some("OnFailure") => ended.exit_code == 0,
        _ => false,
    };
    stays_down.then(|| format!("it has ended ({})", ended.reason.as_deref().unwrap_or("no reason given")))
}

/// Whether the sandbox's container is running, by its node's last report.
pub(crate) fn is_running(pod: &Pod, container: &str) -> bool {
    let state = container_of(pod, container).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// Whether a pod is ready for use: it hasn't ended, isn't restarting, and its node is in reach.
pub(crate) fn is_ready(pod: &Pod, container: &str) -> bool {
    let ready = ready_condition(pod);
    let others_are_not = || ready.is_some_and(|ready| ready.reason.as_deref() == Some("ContainersNotReady"));
    ending(pod, container).is_none()
        && container_of(pod, container).is_some_and(|status| status.ready)
        && (ready.is_some_and(|ready| ready.status == "True") || others_are_not())
}

/// The node that a pod is on, if the cluster has lost contact with it.
///
/// The control plane then marks the node's pods as not ready, and leaves the rest of their status as the node last reported it:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/util/node/controller_utils.go> (`MarkPodsNotReady`).
/// A live kubelet gives a reason when it reports that a pod isn't ready.
pub(crate) fn lost_node(pod: &Pod, container: &str) -> Option<String> {
    let marked = ready_condition(pod)
        .is_some_and(|ready| ready.status == "False" && ready.reason.as_deref().is_none_or(str::is_empty));
    let fine = container_of(pod, container).is_some_and(|status| status.ready);
    pod.spec.as_ref()?.node_name.clone().filter(|_| marked && fine)
}

/// Whether the sandbox's container was restarted.
pub(crate) fn was_restarted(pod: &Pod, container: &str) -> bool {
    container_of(pod, container).is_some_and(|status| status.restart_count > 0)
}

pub(crate) fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pod.status.as_ref()?.container_statuses.iter().flatten().find(|status| status.name == name)
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(phase: &str, ready: Value, containers: &[(&str, Value)]) -> Pod {
        let statuses: Vec<Value> = containers
            .iter()
            .map(|(name, state)| {
                let up = state.get("running").is_some();
                json!({"name": name, "image": "", "imageID": "", "ready": up, "restartCount": 0, "state": state})
            })
            .collect();
        serde_json::from_value(json!({
            "spec": {"nodeName": "one", "restartPolicy": "OnFailure", "containers": []},
            "status": {"phase": phase, "conditions": [ready], "containerStatuses": statuses},
        }))
        .unwrap()
    }

    fn ready() -> Value {
        json!({"type": "Ready", "status": "True"})
    }

    fn not_ready(reason: &str) -> Value {
        json!({"type": "Ready", "status": "False", "reason": reason})
    }

    /// A mesh's sidecar kept the pod of an ended sandbox in phase Running, so nobody ever took it for over.
    #[test]
    fn a_sandbox_is_over_when_its_own_container_is() {
        let up = || json!({"running": {}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code, "reason": "Completed"}});
        let beside = |state: Value, sidecar: Value| {
            pod("Running", not_ready("ContainersNotReady"), &[("istio-proxy", sidecar), ("sandbox", state)])
        };
        assert_eq!(ending(&beside(ended(0), up()), "sandbox").as_deref(), Some("it has ended (Completed)"));
        // One that crashed is started again.
        assert_eq!(ending(&beside(ended(137), up()), "sandbox"), None);
        // The sidecar's own end, and that it isn't ready, is its own business.
        let alone = beside(up(), ended(0));
        assert_eq!(ending(&alone, "sandbox"), None);
        assert!(is_ready(&alone, "sandbox") && lost_node(&alone, "sandbox").is_none());
        assert!(is_ready(&pod("Running", ready(), &[("sandbox", up())]), "sandbox"));
        assert!(ending(&pod("Failed", ready(), &[("sandbox", up())]), "sandbox").is_some());
    }

    #[test]
    fn a_node_that_is_lost_is_told_from_a_container_that_is_not_ready() {
        let up = ("sandbox", json!({"running": {}}));
        let lost = pod("Running", not_ready(""), std::slice::from_ref(&up));
        assert_eq!(lost_node(&lost, "sandbox").as_deref(), Some("one"));
        assert!(!is_ready(&lost, "sandbox") && is_running(&lost, "sandbox"));
        assert_eq!(lost_node(&pod("Running", ready(), std::slice::from_ref(&up)), "sandbox"), None);
        let restarting = ("sandbox", json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        assert_eq!(lost_node(&pod("Running", not_ready("ContainersNotReady"), &[restarting]), "sandbox"), None);
    }
}
