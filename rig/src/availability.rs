//! Whether a cluster can run on this machine, and whether the tests that need one should.

use crate::cgroup;
use crate::process::{command, find, succeeds};

/// Why no cluster can run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Not Linux.
    #[error("a cluster needs Linux")]
    NotLinux,
    /// Not root.
    #[error("a cluster needs root: run as root (for example with sudo)")]
    NotRoot,
    /// The kernel or a container refuses namespaces.
    #[error("this machine doesn't allow mount, network and PID namespaces (`unshare -mnpui --fork true` fails)")]
    NoNamespaces,
    /// No Go tool.
    #[error("no `go` in PATH: install Go 1.26 or newer")]
    NoGo,
    /// Controllers are missing.
    #[error("the rig's node needs the memory, cpu and pids controllers, of cgroup v1 or v2, below /sys/fs/cgroup")]
    NoCgroups,
}

/// Whether a cluster can run here.
pub fn available() -> Result<(), Reason> {
    if !cfg!(target_os = "linux") {
        return Err(Reason::NotLinux);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Reason::NotRoot);
    }
    if !succeeds(command("unshare").args(["-m", "-n", "-p", "-u", "-i", "--fork", "true"])) {
        return Err(Reason::NoNamespaces);
    }
    if !cgroup::available() {
        return Err(Reason::NoCgroups);
    }
    if find("go").is_none() {
        return Err(Reason::NoGo);
    }
    Ok(())
}

/// What a test that needs a cluster should do.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Use the cluster.
    Run,
    /// Do nothing and pass, after printing this.
    LeaveOut(String),
    /// Fail with this.
    Refuse(String),
}

/// Decides from `PODBAY_RIG` (set by `cargo xtask test`), `PODBAY_REQUIRE` and [`available`].
pub fn decision() -> Decision {
    let asked = std::env::var_os("PODBAY_RIG").is_some_and(|value| value == "1");
    let required = std::env::var_os("PODBAY_REQUIRE").is_some_and(|value| value == "all");
    decide(asked, required, available())
}

fn decide(asked: bool, required: bool, available: Result<(), Reason>) -> Decision {
    match available {
        _ if !asked => {
            Decision::LeaveOut("left out: needs a cluster; `cargo xtask test` runs it (PODBAY_RIG=1)".into())
        }
        Ok(()) => Decision::Run,
        Err(reason) if required => Decision::Refuse(format!("PODBAY_REQUIRE=all, but no cluster can run: {reason}")),
        Err(reason) => Decision::LeaveOut(format!("left out: no cluster can run: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_left_out_unless_asked_for_and_fails_only_when_required() {
        assert!(matches!(decide(false, true, Ok(())), Decision::LeaveOut(_)));
        assert_eq!(decide(true, false, Ok(())), Decision::Run);
        assert!(matches!(decide(true, false, Err(Reason::NotRoot)), Decision::LeaveOut(line) if line.contains("root")));
        assert!(matches!(decide(true, true, Err(Reason::NoGo)), Decision::Refuse(line) if line.contains("Go 1.26")));
    }
}
