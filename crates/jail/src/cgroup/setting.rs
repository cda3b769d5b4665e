//! One limit, as a control group of either version takes it.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::hierarchies::{Hierarchies, delegated};
use crate::error::FailedStep;
use crate::limits::JailLimits;

/// A limit, and the files that set it.
pub(super) struct Setting {
    pub(super) limit: &'static str,
    controller: &'static str,
    v1: Vec<(&'static str, String)>,
    v2: Vec<(&'static str, String)>,
}

/// The settings for these limits.
pub(super) fn settings(limits: &JailLimits) -> Vec<Setting> {
    let mut list = Vec::new();
    if let Some(bytes) = limits.memory {
        let bytes = bytes.to_string();
        list.push(Setting {
            limit: "memory",
            controller: "memory",
            // `?` marks files that don't exist without swap accounting.
            v1: vec![("memory.limit_in_bytes", bytes.clone()), ("?memory.memsw.limit_in_bytes", bytes.clone())],
            v2: vec![("memory.max", bytes), ("?memory.swap.max", "0".into())],
        });
    }
    if let Some(cpu) = limits.cpu {
        const PERIOD: f64 = 100_000.0;
        let quota = (cpu * PERIOD).round().max(1000.0) as u64;
        list.push(Setting {
            limit: "cpu",
            controller: "cpu",
            v1: vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
            v2: vec![("cpu.max", format!("{quota} {PERIOD}"))],
        });
    }
    if let Some(processes) = limits.processes {
        let max = processes.to_string();
        list.push(Setting {
            limit: "processes",
            controller: "pids",
            v1: vec![("pids.max", max.clone())],
            v2: vec![("pids.max", max)],
        });
    }
    list
}

impl Setting {
    /// Sets the limit, in a group of this name that is made if it doesn't exist. Returns the group and what it is.
    pub(super) fn apply(&self, own: &Hierarchies, name: &str) -> Result<(PathBuf, &'static str), FailedStep> {
        let (parent, files, by) = match (own.v1(self.controller), &own.v2) {
            (Some(parent), _) => (parent.to_owned(), &self.v1, "cgroup v1"),
            (None, Some(group)) => (delegated(group, self.controller)?, &self.v2, "cgroup v2"),
            (None, None) => {
                let step = format!("find the cgroup controller {}", self.controller);
                return Err(FailedStep { step, errno: 0, fix: Some("mount cgroup2 on this machine".into()) });
            }
        };
        let directory = parent.join(name);
        match fs::create_dir(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let failure = FailedStep::new(format!("make a cgroup below {}", parent.display()), error);
                return Err(failure.fix("run as root, or under `systemd-run --user --scope -p Delegate=yes`"));
            }
        }
        for (file, value) in files {
            let (file, optional) = file.strip_prefix('?').map_or((*file, false), |file| (file, true));
            let path = directory.join(file);
            match fs::write(&path, value) {
                Err(error) if optional && error.kind() == io::ErrorKind::NotFound => {}
                // cgroupfs answers EACCES or EPERM to opening a missing file.
                Err(_) if optional && !path.exists() => {}
                Err(error) => {
                    // If the group has other limits too, its maker removes it.
                    let _ = fs::remove_dir(&directory);
                    return Err(FailedStep::new(format!("write {value} to {}", path.display()), error));
                }
                Ok(()) => {}
            }
        }
        Ok((directory, by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_limits_are_written_as_the_kernel_reads_them() {
        let top = tempfile::tempdir().unwrap();
        for (file, controllers) in [("cgroup.procs", ""), ("cgroup.subtree_control", "cpu memory pids")] {
            fs::write(top.path().join(file), controllers).unwrap();
        }
        let own = Hierarchies { v1: Vec::new(), v2: Some(top.path().to_owned()) };
        let limits =
            JailLimits { memory: Some(1 << 30), cpu: Some(1.5), processes: Some(100), ..JailLimits::default() };
        for setting in settings(&limits) {
            assert_eq!(setting.apply(&own, "x").unwrap().1, "cgroup v2");
        }
        let read = |file: &str| fs::read_to_string(top.path().join("x").join(file)).unwrap();
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("pids.max"), "100");
    }
}
