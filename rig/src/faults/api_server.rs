//! The API server goes away and comes back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::process::succeeds;

/// The name under which the node's init keeps it running.
const NAME: &str = "kube-apiserver";

/// Kills the API server and keeps it down until [`start_api_server`]. Connections to it end at once.
pub fn stop_api_server(cluster: &Cluster) -> Result<()> {
    let hold = cluster.directory().join("hold").join(NAME);
    std::fs::write(&hold, "").with_context(|| format!("cannot write {}", hold.display()))?;
    let pid_file = cluster.directory().join("pid").join(NAME);
    let pid = std::fs::read_to_string(&pid_file).with_context(|| format!("cannot read {}", pid_file.display()))?;
    let signal = |name: &str| Ok::<_, anyhow::Error>(succeeds(cluster.inside("kill")?.args([name, pid.trim()])));
    signal("-KILL")?; // fails when it is down already, which is as good
    let start = Instant::now();
    while signal("-0")? {
        ensure!(start.elapsed() < Duration::from_secs(10), "the API server (process {}) doesn't end", pid.trim());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Lets the API server start again and waits until the node is ready.
pub fn start_api_server(cluster: &Cluster) -> Result<()> {
    let hold = cluster.directory().join("hold").join(NAME);
    match std::fs::remove_file(&hold) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", hold.display()));
        }
        _ => {}
    }
    cluster.wait_until_ready()
}

/// Kills the API server and waits until it serves again.
pub fn restart_api_server(cluster: &Cluster) -> Result<()> {
    stop_api_server(cluster)?;
    start_api_server(cluster)
}
