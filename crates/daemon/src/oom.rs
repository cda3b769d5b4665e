//! Which process the kernel kills first when memory runs out: a command, before podbayd.
//!
//! A shim sets its command's `oom_score_adj` to 1000. The kernel lets any process lower its own again, but not below the value
//! that a process with CAP_SYS_RESOURCE has set last, there or in an ancestor at the time of a fork. So where the supervisor
//! has that capability it sets that bound to 1000 for all that it will start. Where it hasn't, a command can put itself on
//! podbayd's level, never below it; then the kernel chooses by size, and podbayd has a few megabytes. In a pod the bound is what
//! the container's runtime has set, which podbayd has as well.

use std::fs;
use std::io;

use crate::stderr_log::log_error;

/// The capability's number; see capabilities(7).
const CAP_SYS_RESOURCE: u32 = 24;

/// Keeps processes that this one starts from lowering `oom_score_adj` once it is 1000. Does nothing without the capability.
pub fn set_minimum() {
    if is_privileged().unwrap_or(false)
        && let Err(error) = try_set_minimum()
    {
        log_error(format_args!("commands can lower their oom_score_adj: {error}"));
    }
}

/// Whether this process has the capability over the whole machine, and not only in a user namespace.
fn is_privileged() -> io::Result<bool> {
    let everybody = fs::read_to_string("/proc/self/uid_map")?.split_whitespace().eq(["0", "0", "4294967295"]);
    let status = fs::read_to_string("/proc/self/status")?;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    Ok(everybody && held >> CAP_SYS_RESOURCE & 1 == 1)
}

fn try_set_minimum() -> io::Result<()> {
    let before: i32 = fs::read_to_string("/proc/self/oom_score_adj")?.trim().parse().map_err(io::Error::other)?;
    fs::write("/proc/self/oom_score_adj", "1000")?;
    // The older file, in steps of 1/17, changes the value and leaves the bound.
    fs::write("/proc/self/oom_adj", (before * 17 / 1000).to_string())
}
