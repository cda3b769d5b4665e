//! What users change about a pod, and what they may not change by accident.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::config::Config;
use super::manifest::CONTAINER;
use crate::error::{Error, Result};

/// Merges one description into another: objects key by key, lists of named things name by name, the rest as a whole.
pub(crate) fn merge(base: &mut Value, change: &Value) {
    match (base, change) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(change)) => {
            for (key, change) in change {
                // As in a merge patch, null takes something away.
                if change.is_null() {
                    base.remove(key);
                } else {
                    merge(base.entry(key.clone()).or_insert(Value::Object(Map::new())), change);
                }
            }
        }
        (Value::Array(base), Value::Array(change)) if named(base) && named(change) => {
            for change in change {
                match base.iter_mut().find(|item| item["name"] == change["name"]) {
                    Some(item) => merge(item, change),
                    None => base.push(change.clone()),
                }
            }
        }
        (base, change) => *base = change.clone(),
    }
}

/// Mounts have names too, but one volume may be mounted twice: they are told apart by nothing and replaced.
fn named(list: &[Value]) -> bool {
    list.iter().all(|item| item["name"].is_string() && item.get("mountPath").is_none())
}

/// Refuses a pod that is protected less than the configuration says.
pub(crate) fn check(pod: &Value, config: &Config, labels: &BTreeMap<String, String>) -> Result<()> {
    let containers = list(&pod["spec"]["containers"]);
    if !containers.iter().any(|container| container["name"] == CONTAINER) {
        return Err(Error::Config(format!("pod_template_overrides leaves no container {CONTAINER:?}")));
    }
    for (key, value) in labels {
        // Without these the pod would be out of its NetworkPolicy, and out of sight.
        if pod["metadata"]["labels"][key] != value.as_str() {
            return Err(Error::Config(format!("pod_template_overrides changes the label {key}, which is Podbay's")));
        }
    }
    if config.allow_weaker_security {
        return Ok(());
    }
    match weakness(pod, config) {
        None => Ok(()),
        Some(what) => Err(Error::Config(format!(
            "the pod would be protected less than by default: {what}. Set allow_weaker_security if that is meant"
        ))),
    }
}

fn weakness(pod: &Value, config: &Config) -> Option<String> {
    let spec = &pod["spec"];
    for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        if spec[key] == true {
            return Some(format!("{key} is true"));
        }
    }
    if spec["hostUsers"] == true {
        return Some("hostUsers is true".into());
    }
    if spec["automountServiceAccountToken"] != false {
        return Some("automountServiceAccountToken isn't false".into());
    }
    if let Some(volume) = list(&spec["volumes"]).iter().find(|volume| volume.get("hostPath").is_some()) {
        return Some(format!("volume {} is a directory of the node", volume["name"]));
    }
    let non_root = config.run_as_non_root;
    if let Some(what) = weak_context(&spec["securityContext"], non_root) {
        return Some(what);
    }
    if spec["securityContext"]["seccompProfile"]["type"].is_null() {
        return Some("there is no seccomp profile".into());
    }
    if non_root && spec["securityContext"]["runAsNonRoot"] != true {
        return Some("runAsNonRoot isn't true".into());
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(&spec[key]) {
            let context = &container["securityContext"];
            let name = &container["name"];
            if let Some(what) = weak_context(context, non_root) {
                return Some(format!("container {name}: {what}"));
            }
            // Init containers come from the user, and say little about themselves.
            if key == "containers" {
                if context["allowPrivilegeEscalation"] != false {
                    return Some(format!("container {name}: allowPrivilegeEscalation isn't false"));
                }
                if !list(&context["capabilities"]["drop"]).iter().any(|capability| capability == "ALL") {
                    return Some(format!("container {name}: not all capabilities are dropped"));
                }
                if config.read_only_root && context["readOnlyRootFilesystem"] != true {
                    return Some(format!("container {name}: readOnlyRootFilesystem isn't true"));
                }
            }
        }
    }
    None
}

fn weak_context(context: &Value, non_root: bool) -> Option<String> {
    if context["privileged"] == true {
        return Some("privileged is true".into());
    }
    if context["allowPrivilegeEscalation"] == true {
        return Some("allowPrivilegeEscalation is true".into());
    }
    if !list(&context["capabilities"]["add"]).is_empty() {
        return Some("capabilities are added".into());
    }
    if context["seccompProfile"]["type"] == "Unconfined" {
        return Some("the seccomp profile is Unconfined".into());
    }
    if context["appArmorProfile"]["type"] == "Unconfined" {
        return Some("the AppArmor profile is Unconfined".into());
    }
    if context["procMount"] == "Unmasked" {
        return Some("procMount is Unmasked".into());
    }
    if non_root && (context["runAsNonRoot"] == false || context["runAsUser"] == 0) {
        return Some("it may run as root".into());
    }
    None
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Marks;
    use crate::raw::manifest;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    fn pod(overrides: Value) -> Result<Pod> {
        let config = Config { pod_template_overrides: overrides, ..Config::default() };
        let marks = Marks::new("pb-1", "x/", &BTreeMap::new())?;
        manifest::pod(&config, "pb-1-a", &marks, OwnerReference::default(), Some("n1"), Some(60))
    }

    #[test]
    fn overrides_merge_deeply_and_by_name() {
        let overrides = json!({
            "metadata": {"labels": {"team": "blue"}},
            "spec": {"priorityClassName": "low", "containers": [
                {"name": "sandbox", "resources": {"limits": {"memory": "2Gi"}}},
            ]},
        });
        let pod = pod(overrides).unwrap();
        let labels = pod.metadata.labels.unwrap();
        assert_eq!((labels["team"].as_str(), labels["podbay.dev/net"].as_str()), ("blue", "n1"));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.priority_class_name.as_deref(), Some("low"));
        let limits = spec.containers[0].resources.clone().unwrap().limits.unwrap();
        assert_eq!((limits["memory"].0.as_str(), limits["cpu"].0.as_str()), ("2Gi", "1000m"));
        assert_eq!(spec.active_deadline_seconds, Some(60));
    }

    #[test]
    fn what_weakens_the_protection_is_refused() {
        let container =
            |context: Value| json!({"spec": {"containers": [{"name": "sandbox", "securityContext": context}]}});
        for (weak, word) in [
            (json!({"spec": {"hostNetwork": true}}), "hostNetwork"),
            (json!({"spec": {"automountServiceAccountToken": null}}), "automount"),
            (json!({"spec": {"securityContext": null}}), "seccomp"),
            (json!({"spec": {"securityContext": {"runAsUser": 0}}}), "root"),
            (json!({"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}}), "directory of the node"),
            (container(json!({"privileged": true})), "privileged"),
            (container(json!({"capabilities": {"add": ["SYS_ADMIN"]}})), "capabilities"),
            (container(json!({"capabilities": {"drop": []}})), "capabilities"),
            (container(Value::Null), "allowPrivilegeEscalation"),
            (json!({"spec": {"containers": [{"name": "more", "image": "x"}]}}), "allowPrivilegeEscalation"),
            (json!({"metadata": {"labels": {"podbay.dev/net": "other"}}}), "podbay.dev/net"),
            (json!({"spec": {"containers": null}}), "no container"),
        ] {
            let message = pod(weak.clone()).unwrap_err().to_string();
            assert!(message.contains(word), "{weak}: {message}");
        }
    }
}
