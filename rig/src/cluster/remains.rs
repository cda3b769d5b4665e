//! Ending a cluster and removing what it left. Works on a running one as on what a crash left of one.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::state::State;
use crate::cache::remove_tree;
use crate::cgroup;

/// Ends the processes, then removes the cgroups, then the files. Mounts and network devices are the namespaces', and
/// the kernel removes those with their last process.
pub(super) fn remove(state: &State) -> Result<()> {
    if let Some(init) = &state.init
        && init.is_alive()
        && let Some(pid) = Pid::from_raw(init.pid)
    {
        // Nothing in a PID namespace outlives its PID 1, and that goes away after all others.
        kill_process(pid, Signal::KILL)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while init.is_alive() {
            ensure!(Instant::now() < deadline, "process {} of cluster {} didn't exit", init.pid, state.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    cgroup::remove(&state.cgroups)?;
    remove_tree(&state.directory)
}
