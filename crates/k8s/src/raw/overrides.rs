//! Merges users' changes into a pod, and refuses those that weaken its protection by accident.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::config::Config;
use super::manifest::CONTAINER;
use super::pod_security::{list, weakness};
use crate::error::{Error, Result};

/// Merges one value into another: objects key by key, lists of named items by name, everything else as a whole.
pub(crate) fn merge(base: &mut Value, change: &Value) {
    match (base, change) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(change)) => {
            for (key, change) in change {
                // As in a merge patch, null removes a field.
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

/// Mounts have names too, but one volume may be mounted twice, so lists of mounts are replaced.
fn named(list: &[Value]) -> bool {
    list.iter().all(|item| item["name"].is_string() && item.get("mountPath").is_none())
}

/// Checks that a pod isn't protected less than the configuration allows.
pub(crate) fn check(pod: &Value, config: &Config, labels: &BTreeMap<String, String>) -> Result<()> {
    let containers = list(&pod["spec"]["containers"]);
    if !containers.iter().any(|container| container["name"] == CONTAINER) {
        return Err(Error::Config(format!("pod_template_overrides leaves no container {CONTAINER:?}")));
    }
    for (key, value) in labels {
        // Without these the pod would be outside its NetworkPolicy, and not listed.
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
            "the pod would be protected less than by default: {what}. Set allow_weaker_security if that is intended"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Metadata;
    use crate::raw::manifest;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    fn pod(overrides: Value) -> Result<Pod> {
        made(Config { pod_template_overrides: overrides, ..Config::default() })
    }

    fn made(config: Config) -> Result<Pod> {
        let metadata = Metadata::new("pb-1", "x/", &BTreeMap::new())?;
        manifest::pod(&config, "pb-1-a", &metadata, OwnerReference::default(), Some("n1"), Some(60))
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

    /// An object with some of its fields replaced; null stays, as it does in an override.
    fn with(mut object: Value, fields: Value) -> Value {
        for (key, value) in fields.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    }

    fn container(fields: Value) -> Value {
        json!({"spec": {"containers": [with(json!({"name": "sandbox"}), fields)]}})
    }

    fn context(fields: Value) -> Value {
        container(json!({"securityContext": fields}))
    }

    fn quiet() -> Value {
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    }

    fn init(fields: Value) -> Value {
        let container = json!({"name": "first", "image": "x", "securityContext": quiet()});
        json!({"spec": {"initContainers": [with(container, fields)]}})
    }

    fn volume(fields: Value) -> Value {
        json!({"spec": {"volumes": [with(json!({"name": "v"}), fields)]}})
    }

    #[test]
    fn what_weakens_the_protection_is_refused() {
        for (weak, word) in [
            (json!({"spec": {"hostNetwork": true}}), "hostNetwork"),
            (json!({"spec": {"hostUsers": true}}), "hostUsers"),
            (json!({"spec": {"automountServiceAccountToken": null}}), "automount"),
            (json!({"spec": {"enableServiceLinks": null}}), "enableServiceLinks"),
            (json!({"spec": {"securityContext": null}}), "it may run as root"),
            (json!({"spec": {"securityContext": {"seccompProfile": null}}}), "seccomp"),
            (json!({"spec": {"securityContext": {"runAsUser": 0}}}), "root"),
            (
                json!({"spec": {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}}),
                "sysctl",
            ),
            (json!({"spec": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}}), "seLinux"),
            (json!({"spec": {"securityContext": {"windowsOptions": {"hostProcess": true}}}}), "windowsOptions"),
            (json!({"spec": {"os": {"name": "windows"}}}), "os"),
            (json!({"spec": {"fromTheFuture": true}}), "fromTheFuture"),
            (context(json!({"privileged": true})), "privileged"),
            (context(json!({"capabilities": {"add": ["SYS_ADMIN"]}})), "capabilities"),
            (context(json!({"capabilities": {"drop": []}})), "capabilities"),
            (context(json!({"procMount": "Unmasked"})), "procMount"),
            (context(json!({"appArmorProfile": {"type": "Unconfined"}})), "AppArmor"),
            (context(Value::Null), "allowPrivilegeEscalation"),
            (container(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})), "hostPort"),
            (container(json!({"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}})), "host"),
            (container(json!({"lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}})), "host"),
            (json!({"spec": {"containers": [{"name": "more", "image": "x"}]}}), "allowPrivilegeEscalation"),
            (init(json!({"securityContext": null})), "allowPrivilegeEscalation"),
            (init(json!({"securityContext": {"allowPrivilegeEscalation": false}})), "capabilities"),
            (init(json!({"securityContext": with(quiet(), json!({"runAsUser": 0}))})), "root"),
            (init(json!({"restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 1}]})), "hostPort"),
            (
                json!({"spec": {"ephemeralContainers": [{"name": "e", "securityContext": {"privileged": true}}]}}),
                "allowPrivilegeEscalation",
            ),
            (
                json!({"metadata": {"annotations": {
                    "container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined",
                }}}),
                "AppArmor",
            ),
            (json!({"metadata": {"labels": {"podbay.dev/net": "other"}}}), "podbay.dev/net"),
            (json!({"spec": {"containers": null}}), "no container"),
        ] {
            let message = pod(weak.clone()).unwrap_err().to_string();
            assert!(message.contains(word), "{weak}: {message}");
        }
        // Overrides are any JSON.
        let message = pod(json!({"spec": {"hostname": 7}})).unwrap_err().to_string();
        assert!(message.contains("pod_template_overrides don't fit"), "{message}");
        // What the baseline level calls safe is let through.
        let safe = json!([{"name": "net.ipv4.ping_group_range", "value": "0 0"}]);
        pod(json!({"spec": {"securityContext": {"sysctls": safe}}})).unwrap();
        pod(container(json!({"ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}}}))).unwrap();
        pod(init(json!({}))).unwrap();
    }

    /// Only hostPath was refused: NFS, CSI drivers and projected tokens went through.
    #[test]
    fn volumes_are_of_kinds_that_are_known_to_be_safe() {
        let token = json!({"serviceAccountToken": {"path": "token"}});
        for (weak, word) in [
            (json!({"hostPath": {"path": "/"}}), "directory of the node"),
            (json!({"nfs": {"server": "10.0.0.1", "path": "/"}}), "nfs"),
            (json!({"csi": {"driver": "secrets-store.csi.k8s.io"}}), "csi"),
            (json!({"projected": {"sources": [{"secret": {"name": "s"}}, token]}}), "serviceAccountToken"),
            (json!({"projected": {"sources": [{"podCertificate": {"keyType": "ED25519"}}]}}), "podCertificate"),
            (json!({"kindOfTomorrow": {}}), "kindOfTomorrow"),
        ] {
            let message = pod(volume(weak.clone())).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("\"v\""), "{weak}: {message}");
            // The same as a setting of its own.
            let volumes = serde_json::from_value(volume(weak.clone())["spec"]["volumes"].clone()).unwrap();
            let refused = made(Config { volumes, ..Config::default() });
            assert!(refused.is_err() || weak.get("kindOfTomorrow").is_some(), "{weak} as a volume");
            let allowed =
                Config { pod_template_overrides: volume(weak), allow_weaker_security: true, ..Config::default() };
            made(allowed).unwrap();
        }
        for fine in [
            json!({"emptyDir": {"medium": "Memory"}}),
            json!({"configMap": {"name": "c"}}),
            json!({"secret": {"secretName": "s"}}),
            json!({"persistentVolumeClaim": {"claimName": "p"}}),
            json!({"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}}),
            json!({"image": {"reference": "x"}}),
        ] {
            pod(volume(fine)).unwrap();
        }
    }

    /// An override could take the runtime class away, or put another in its place.
    #[test]
    fn a_runtime_class_that_is_asked_for_stays() {
        let with = |overrides| Config {
            runtime_class: Some("gvisor".into()),
            pod_template_overrides: overrides,
            ..Config::default()
        };
        for change in [json!(null), json!("runc")] {
            let message = made(with(json!({"spec": {"runtimeClassName": change}}))).unwrap_err().to_string();
            assert!(message.contains("gvisor"), "{message}");
        }
        assert_eq!(made(with(Value::Null)).unwrap().spec.unwrap().runtime_class_name.as_deref(), Some("gvisor"));
        // Where none was asked for, an override may add one.
        pod(json!({"spec": {"runtimeClassName": "kata"}})).unwrap();
    }

    /// Init containers that say nothing about themselves were refused by a restricted namespace.
    #[test]
    fn init_containers_are_hardened_like_the_sandbox() {
        let terse: k8s_openapi::api::core::v1::Container =
            serde_json::from_value(json!({"name": "first", "image": "x"})).unwrap();
        let config = Config { init_containers: vec![terse.clone()], ..Config::default() };
        let context = |config| made(config).unwrap().spec.unwrap().init_containers.unwrap()[0].security_context.clone();
        let hardened = context(config.clone()).unwrap();
        assert_eq!(hardened.allow_privilege_escalation, Some(false));
        assert_eq!(hardened.capabilities.unwrap().drop, Some(vec!["ALL".into()]));
        assert_eq!(context(Config { allow_weaker_security: true, ..config }), None);
        let loud = json!({"name": "first", "image": "x", "securityContext": {"privileged": true}});
        let config = Config { init_containers: vec![serde_json::from_value(loud).unwrap()], ..Config::default() };
        assert!(made(config).unwrap_err().to_string().contains("privileged"));
    }

    #[test]
    fn a_user_namespace_is_asked_for_and_stays() {
        let config = Config { user_namespace: true, ..Config::default() };
        assert_eq!(made(config.clone()).unwrap().spec.unwrap().host_users, Some(false));
        assert_eq!(pod(Value::Null).unwrap().spec.unwrap().host_users, None);
        let overrides = json!({"spec": {"hostUsers": null}});
        let message = made(Config { pod_template_overrides: overrides, ..config }).unwrap_err().to_string();
        assert!(message.contains("hostUsers"), "{message}");
    }
}
