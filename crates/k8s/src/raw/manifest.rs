//! The pod of a sandbox.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use podbay_proto::layout::{ARTEFACT_PATHS, LIFETIME, LOG, PROGRAM, STATE_DIR};
use serde_json::{Value, json};

use super::config::Config;
use super::overrides;
use crate::error::{Error, Result};
use crate::names::{Metadata, NETWORK};

/// The sandbox's container in its pod.
pub const CONTAINER: &str = "sandbox";

/// Waits, and ends at once on TERM, which `sleep infinity` as the first process would ignore. A restarted container starts
/// podbayd again, so that the sandbox's limits hold even if no client comes.
fn wait_script(flags: &str) -> String {
    format!(
        "trap 'exit 0' TERM INT
d={STATE_DIR}
if [ -f $d/{LIFETIME} ]; then
  p=$d/{PROGRAM}; [ -x $p ] || p={PROGRAM}
  $p serve --state $d --workdir \"$PWD\" --ends-container{flags} </dev/null >/dev/null 2>$d/{LOG} &
fi
while :; do sleep 3600 & wait $!; done"
    )
}

/// podbayd's own directory, and those that agent frameworks write to, whatever the image and its user.
pub(crate) const VOLUMES: [(&str, &str); 4] = [
    ("podbay-run", STATE_DIR),
    ("podbay-results", ARTEFACT_PATHS[0]),
    ("podbay-history", ARTEFACT_PATHS[1]),
    ("podbay-blobs", ARTEFACT_PATHS[2]),
];

/// The names of all volumes that Podbay may add.
pub(crate) const OWN_VOLUMES: [&str; 6] =
    ["podbay-workspace", "podbay-tmp", "podbay-run", "podbay-results", "podbay-history", "podbay-blobs"];

/// Annotations that keep service meshes from injecting a sidecar. A sandbox without a network has no use for one, and it
/// wouldn't get ready either. `extra_annotations` overrides them.
const NO_SIDECARS: [(&str, &str); 4] = [
    ("sidecar.istio.io/inject", "false"),
    ("linkerd.io/inject", "disabled"),
    ("kuma.io/sidecar-injection", "disabled"),
    ("consul.hashicorp.com/connect-inject", "false"),
];

/// The same as labels: Kuma reads nothing else, and Istio prefers it.
const NO_SIDECARS_LABELS: [&str; 2] = ["sidecar.istio.io/inject", "kuma.io/sidecar-injection"];

/// The taints of a node that the cluster has lost contact with. Pods tolerate these for 300 s unless they say otherwise.
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The manifest of a sandbox's pod.
///
/// # Errors
/// When the configuration isn't valid, or weakens the pod's protection without permission.
pub(crate) fn pod(
    config: &Config,
    name: &str,
    metadata: &Metadata,
    owner: OwnerReference,
    network: Option<&str>,
    ttl: Option<u64>,
) -> Result<Pod> {
    let mut labels = metadata.labels.clone();
    if let Some(network) = network {
        labels.insert(NETWORK.into(), network.into());
    }
    let mut annotations = metadata.annotations.clone();
    annotations.extend(NO_SIDECARS.map(|(key, value)| (key.to_owned(), value.to_owned())));
    annotations.extend(config.extra_annotations.clone());
    let mut all_labels = labels.clone();
    for key in NO_SIDECARS_LABELS {
        // With the annotation's value, so that overriding the annotation is enough.
        all_labels.extend(annotations.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let mut value = json!({
        "metadata": {"name": name, "labels": all_labels, "annotations": annotations},
        "spec": spec(config, ttl)?,
    });
    overrides::merge(&mut value, &config.pod_template_overrides);
    overrides::check(&value, config, &labels)?;
    // Overrides can't change these: without its owner a pod would never be removed.
    value["metadata"]["name"] = name.into();
    value["metadata"]["ownerReferences"] = json!([plain(&owner)?]);
    // What Podbay itself describes is a pod; overrides are any JSON.
    serde_json::from_value(value)
        .map_err(|error| Error::Config(format!("raw.pod_template_overrides don't fit into a pod: {error}")))
}

fn spec(config: &Config, ttl: Option<u64>) -> Result<Value> {
    let mut mounts = vec![("podbay-workspace", config.workdir.as_str())];
    mounts.extend(VOLUMES);
    if config.read_only_root {
        mounts.push(("podbay-tmp", "/tmp"));
    }
    // The user's own mounts win.
    mounts.retain(|(_, path)| config.volume_mounts.iter().all(|mount| mount.mount_path != *path));
    let mut volumes: Vec<Value> = mounts.iter().map(|(name, _)| json!({"name": name, "emptyDir": {}})).collect();
    let mut volume_mounts: Vec<Value> =
        mounts.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
    for volume in &config.volumes {
        volumes.push(plain(volume)?);
    }
    for mount in &config.volume_mounts {
        volume_mounts.push(plain(mount)?);
    }
    let seccomp = match config.seccomp_profile.as_str() {
        profile @ ("RuntimeDefault" | "Unconfined") => json!({"type": profile}),
        path => json!({"type": "Localhost", "localhostProfile": path}),
    };
    let command = config.command.clone().filter(|command| !only_waits(command));
    let flags = if config.command_filter { "" } else { " --no-command-filter" };
    let command = command.unwrap_or_else(|| vec!["sh".into(), "-c".into(), wait_script(flags)]);
    let mut env: Vec<Value> = config.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    for (name, source) in &config.env_from {
        env.push(json!({"name": name, "valueFrom": plain(source)?}));
    }
    let mut spec = json!({
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 2,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {"runAsNonRoot": config.run_as_non_root, "seccompProfile": seccomp},
        "containers": [{
            "name": CONTAINER,
            "image": config.image,
            "imagePullPolicy": config.image_pull_policy,
            "command": command,
            "workingDir": config.workdir,
            "env": env,
            "resources": {
                "requests": {
                    "cpu": config.cpu_request,
                    "memory": config.memory_request,
                    "ephemeral-storage": config.ephemeral_storage_request,
                },
                "limits": {
                    "cpu": config.cpu_limit,
                    "memory": config.memory_limit,
                    "ephemeral-storage": config.ephemeral_storage_limit,
                },
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": config.read_only_root,
            },
            "volumeMounts": volume_mounts,
        }],
        "volumes": volumes,
    });
    let ids = [("runAsUser", config.run_as_user), ("runAsGroup", config.run_as_group), ("fsGroup", config.fs_group)];
    for (key, id) in ids {
        if let Some(id) = id {
            spec["securityContext"][key] = id.into();
        }
    }
    if let Some(ttl) = ttl {
        spec["activeDeadlineSeconds"] = ttl.into();
    }
    if let Some(account) = &config.service_account {
        spec["serviceAccountName"] = account.as_str().into();
    }
    if let Some(class) = &config.runtime_class {
        spec["runtimeClassName"] = class.as_str().into();
    }
    if let Some(affinity) = &config.affinity {
        spec["affinity"] = plain(affinity)?;
    }
    let nodes = config.nodes()?;
    if !nodes.is_empty() {
        spec["nodeSelector"] = plain(&nodes)?;
    }
    spec["tolerations"] = tolerations(config)?;
    if !config.init_containers.is_empty() {
        spec["initContainers"] =
            config.init_containers.iter().map(|one| init_container(one, config)).collect::<Result<_>>()?;
    }
    if config.user_namespace {
        spec["hostUsers"] = false.into();
    }
    if !config.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = config.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    }
    Ok(spec)
}

/// The user's tolerations, and those for a lost node unless the user's cover it.
fn tolerations(config: &Config) -> Result<Value> {
    let mut all = config.tolerations.iter().map(plain).collect::<Result<Vec<_>>>()?;
    for key in LOST {
        // No key means all taints.
        let said = config.tolerations.iter().any(|one| {
            one.key.as_deref().is_none_or(|said| said == key || said.is_empty())
                && one.effect.as_deref().is_none_or(|effect| effect == "NoExecute" || effect.is_empty())
        });
        if !said {
            all.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": config.node_loss_tolerance,
            }));
        }
    }
    Ok(Value::Array(all))
}

/// An init container, protected like the sandbox unless it says otherwise.
fn init_container(container: &Container, config: &Config) -> Result<Value> {
    let own = plain(container)?;
    if config.allow_weaker_security {
        return Ok(own);
    }
    let mut hardened = json!({
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    overrides::merge(&mut hardened, &own);
    Ok(hardened)
}

/// Whether a command does nothing but wait. As the first process it would ignore TERM, so neither podbayd nor the kubelet
/// could end the sandbox cleanly; Podbay's own command waits better.
fn only_waits(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    matches!(words[..], ["sleep", "infinity" | "inf"] | ["tail", "-f", "/dev/null"])
}

fn plain(part: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(part).map_err(Error::manifest("the pod"))
}

#[cfg(test)]
mod fields;
#[cfg(test)]
mod tests;
