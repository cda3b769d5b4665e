//! A container dies.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;
use crate::process::output;

/// Kills every process of a pod's container, as the kernel does when it is out of memory. The kubelet then does what
/// the pod's `restartPolicy` says.
pub fn kill_container(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> Result<()> {
    for pid in processes(cluster, namespace, pod, container)? {
        match kill_process(pid, Signal::KILL) {
            // Gone with its PID 1 already.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot kill process {pid:?} of {pod}/{container}"));
            }
        }
    }
    Ok(())
}

/// The container's processes, by their numbers on the host; the first is its PID 1 (or, with gVisor, its sandbox).
pub(super) fn processes(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> Result<Vec<Pid>> {
    let path = format!("jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].containerID}}");
    let id = output(cluster.kubectl().args(["--namespace", namespace, "get", "pod", pod, "-o", &path]))?;
    let id = id.strip_prefix("containerd://").with_context(|| {
        format!("pod {namespace}/{pod} has no container {container:?} that was started (its id: {id:?})")
    })?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // A process may end while we look: then it isn't the container's any more.
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid())).unwrap_or_default();
        if cgroups.lines().any(|line| line.ends_with(id)) {
            found.push(pid);
        }
    }
    found.sort_by_key(|pid| pid.as_raw_pid());
    ensure!(!found.is_empty(), "container {container:?} of pod {namespace}/{pod} has no process");
    Ok(found)
}
