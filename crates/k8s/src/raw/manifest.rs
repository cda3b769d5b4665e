//! The pod of a sandbox.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::config::Config;
use super::overrides;
use crate::error::{Error, Result};
use crate::names::{Marks, NETWORK};

/// The sandbox's container in its pod.
pub const CONTAINER: &str = "sandbox";

/// Waits, and ends at once when told to: `sleep infinity` as the first process would ignore TERM. A container that is
/// started again finds podbayd, which then sees to it that the sandbox's times hold, also while nobody comes.
const WAIT: &str = "trap 'exit 0' TERM INT
d=/run/podbay
if [ -f $d/lifetime.json ]; then
  p=$d/podbayd; [ -x $p ] || p=podbayd
  $p serve --state $d --workdir \"$PWD\" --ends-container </dev/null >/dev/null 2>$d/podbayd.log &
fi
while :; do sleep 3600 & wait $!; done";

/// Where agent frameworks write, whatever the image and its user, and podbayd's own directory.
pub(crate) const VOLUMES: [(&str, &str); 4] = [
    ("podbay-run", "/run/podbay"),
    ("podbay-results", "/large_tool_results"),
    ("podbay-history", "/conversation_history"),
    ("podbay-blobs", "/blobs"),
];

/// The names of all volumes that Podbay may add.
pub(crate) const OWN_VOLUMES: [&str; 6] =
    ["podbay-workspace", "podbay-tmp", "podbay-run", "podbay-results", "podbay-history", "podbay-blobs"];

/// Describes a pod.
///
/// # Errors
/// When the configuration can't be a pod, or weakens its protection without leave.
pub(crate) fn pod(
    config: &Config,
    name: &str,
    marks: &Marks,
    owner: OwnerReference,
    network: Option<&str>,
    ttl: Option<u64>,
) -> Result<Pod> {
    let mut labels = marks.labels.clone();
    if let Some(network) = network {
        labels.insert(NETWORK.into(), network.into());
    }
    let mut annotations = marks.annotations.clone();
    annotations.extend(config.extra_annotations.clone());
    let mut value = json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec(config, ttl)?,
    });
    overrides::merge(&mut value, &config.pod_template_overrides);
    overrides::check(&value, config, &labels)?;
    // Not to be changed by anyone: without its owner a pod would never be removed.
    value["metadata"]["name"] = name.into();
    value["metadata"]["ownerReferences"] = json!([plain(&owner)?]);
    serde_json::from_value(value).map_err(|error| Error::Config(format!("the pod can't be described: {error}")))
}

fn spec(config: &Config, ttl: Option<u64>) -> Result<Value> {
    let mut mounts = vec![("podbay-workspace", config.workdir.as_str())];
    mounts.extend(VOLUMES);
    if config.read_only_root {
        mounts.push(("podbay-tmp", "/tmp"));
    }
    // What the user mounts somewhere is meant to be there.
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
    let command = config.command.clone().unwrap_or_else(|| vec!["sh".into(), "-c".into(), WAIT.into()]);
    let env: Vec<Value> = config.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
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
                "requests": {"cpu": config.cpu_request, "memory": config.memory_request},
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
    if !config.tolerations.is_empty() {
        spec["tolerations"] = plain(&config.tolerations)?;
    }
    if !config.init_containers.is_empty() {
        spec["initContainers"] = plain(&config.init_containers)?;
    }
    if !config.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = config.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    }
    Ok(spec)
}

fn plain(part: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(part).map_err(|error| Error::Config(format!("a part of the pod can't be described: {error}")))
}
