//! A container dies.

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::process::output;

/// Kills a pod's container as a crash does: SIGKILL to its first process, and with it to all others. The kubelet then
/// does what the pod's `restartPolicy` says. Works with every runtime.
pub fn kill_container(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> Result<()> {
    let id = id(cluster, namespace, pod, container)?;
    let mut kill = cluster.inside("ctr")?;
    kill.args([
        "--address",
        "/run/rig/containerd.sock",
        "--namespace",
        "k8s.io",
        "tasks",
        "kill",
        "--signal",
        "SIGKILL",
    ]);
    output(kill.arg(id))
        .with_context(|| format!("cannot kill container {container:?} of pod {namespace}/{pod}"))
        .map(drop)
}

/// containerd's name for a pod's container.
pub(super) fn id(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].containerID}}");
    let id = output(cluster.kubectl().args(["--namespace", namespace, "get", "pod", pod, "-o", &path]))?;
    let id = id.strip_prefix("containerd://").with_context(|| {
        format!("pod {namespace}/{pod} has no container {container:?} that was started (its id: {id:?})")
    })?;
    Ok(id.to_owned())
}
