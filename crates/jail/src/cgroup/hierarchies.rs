//! Where this process is in the machine's control group hierarchies, and where it can make groups.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{FailedStep, Step};

/// The directories of this process's own groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hierarchies {
    /// The controllers of version 1, and the group in each.
    pub(super) v1: Vec<(String, PathBuf)>,
    /// The group in version 2.
    pub(crate) v2: Option<PathBuf>,
}

impl Hierarchies {
    pub(crate) fn of_this_process() -> Result<Self, FailedStep> {
        let read = |path: &str| fs::read_to_string(path).step(|| format!("read {path}"));
        Ok(Self::parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?))
    }

    /// Parses `/proc/self/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc(5)).
    fn parse(groups: &str, mounts: &str) -> Self {
        let mut own = Self::default();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let Some(directory) = mounts.lines().find_map(|mount| in_mount(mount, controllers, path)) else { continue };
            match controllers {
                "" => own.v2 = Some(directory),
                _ => own.v1.extend(controllers.split(',').map(|name| (name.to_owned(), directory.clone()))),
            }
        }
        own
    }

    /// The group in the hierarchy of a controller of version 1.
    pub(crate) fn v1(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }

    /// All directories in which groups of ours may be.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let v2 = self.v2.iter().flat_map(|own| own.ancestors());
        let v2 = v2.take_while(|directory| directory.join("cgroup.procs").exists());
        self.v1.iter().map(|(_, path)| path.as_path()).chain(v2)
    }
}

/// The directory of a group, if this line of mountinfo is its hierarchy's mount.
fn in_mount(line: &str, controllers: &str, path: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split_ascii_whitespace().skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut kind = kind.split_ascii_whitespace();
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let right = match controllers {
        "" => kind == "cgroup2",
        _ => kind == "cgroup" && controllers.split(',').all(|name| options.split(',').any(|option| option == name)),
    };
    let below = Path::new(path).strip_prefix(root).ok()?;
    right.then(|| Path::new(point).join(below))
}

/// The nearest group at or above our own that delegates the controller and in which we may make groups (version 2).
pub(super) fn delegated(own: &Path, controller: &str) -> Result<PathBuf, FailedStep> {
    let has = |directory: &Path, file: &str| {
        fs::read_to_string(directory.join(file))
            .is_ok_and(|list| list.split_ascii_whitespace().any(|name| name == controller))
    };
    let writable = |directory: &Path| {
        rustix::fs::access(directory.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).is_ok()
            && rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let mut candidate = Some(own);
    while let Some(directory) = candidate.filter(|directory| writable(directory)) {
        if has(directory, "cgroup.subtree_control") {
            return Ok(directory.to_owned());
        }
        // Only in our own group, whose processes are ours. The kernel refuses with EBUSY while it has any.
        if directory == own
            && has(directory, "cgroup.controllers")
            && fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}")).is_ok()
        {
            return Ok(directory.to_owned());
        }
        candidate = directory.parent();
    }
    let step = format!("find a cgroup at or above {} that delegates the controller {controller}", own.display());
    let fix = "run as root, or under `systemd-run --user --scope -p Delegate=yes`".to_owned();
    Err(FailedStep { step, errno: 0, fix: Some(fix) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn finds_our_groups_of_both_versions() {
        let groups = "4:memory:/a/b\n1:cpu,cpuacct:/\n9:name=systemd:/x\n0::/user.slice\n";
        let own = Hierarchies::parse(groups, MOUNTS);
        assert_eq!(own.v1("memory"), Some(Path::new("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(own.v1("cpu"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(own.v1("pids"), None);
        assert_eq!(own.v2, Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice")));
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mounts = "35 31 0:32 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let own = Hierarchies::parse("0::/docker/x/y\n", mounts);
        assert_eq!(own.v2, Some(PathBuf::from("/sys/fs/cgroup/y")));
        assert_eq!(Hierarchies::parse("0::/elsewhere\n", mounts), Hierarchies::default());
    }

    /// A directory with the files of a version 2 group.
    fn group(path: &Path, controllers: &str, handed_down: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("cgroup.procs"), "").unwrap();
        fs::write(path.join("cgroup.controllers"), controllers).unwrap();
        fs::write(path.join("cgroup.subtree_control"), handed_down).unwrap();
    }

    #[test]
    fn the_nearest_group_that_delegates_the_controller_is_used() {
        let top = tempfile::tempdir().unwrap();
        let (slice, scope) = (top.path().join("slice"), top.path().join("slice/scope"));
        group(&slice, "cpu memory pids", "memory pids");
        group(&scope, "memory pids", "");
        // We delegate what our own group has ourselves (here it has no processes).
        assert_eq!(delegated(&scope, "memory").unwrap(), scope);
        assert_eq!(fs::read_to_string(scope.join("cgroup.subtree_control")).unwrap(), "+memory");
        // What it lacks can come from above, where nothing is changed.
        group(&scope, "", "");
        assert_eq!(delegated(&scope, "pids").unwrap(), slice);
        let error = delegated(&scope, "cpu").unwrap_err().to_string();
        assert!(error.contains("Delegate=yes"), "{error}");
        assert_eq!(fs::read_to_string(slice.join("cgroup.subtree_control")).unwrap(), "memory pids");
    }
}
