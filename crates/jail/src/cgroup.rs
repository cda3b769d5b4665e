//! Limits by control group, version 1 or 2, where a group can be made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::error::{FailedStep, Step};
use crate::jail::Limits;
use crate::limits::InForce;

/// What the groups of jails are called: then come the sandbox's id, and pid and start time of the maker.
const PREFIX: &str = "podbay-jail-";
/// How long an ended sandbox's group may stay busy: the kernel lets go of dead tasks a little later.
const PATIENCE: Duration = Duration::from_secs(5);

/// The groups of one jail: one, or on version 1 one for each controller.
#[derive(Debug)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes groups for what the limits ask for, as far as this machine lets us, and says what is in
    /// force and what isn't.
    pub fn make(id: &str, limits: &Limits) -> (Option<Self>, Vec<InForce>) {
        let mut report = Vec::new();
        let mut directories = Vec::new();
        let wanted = wanted(limits);
        if wanted.is_empty() {
            return (None, report);
        }
        let name = match own_name(id) {
            Ok(name) => name,
            Err(error) => {
                report.extend(wanted.iter().map(|want| InForce::missing(want.limit, error.to_string())));
                return (None, report);
            }
        };
        let places = Places::of_this_process();
        for want in &wanted {
            match places.as_ref().map_err(Clone::clone).and_then(|places| want.apply(places, &name)) {
                Ok((directory, by)) => {
                    report.push(InForce::by(want.limit, by));
                    if !directories.contains(&directory) {
                        directories.push(directory);
                    }
                }
                Err(failure) => report.push(InForce::missing(want.limit, failure.to_string())),
            }
        }
        ((!directories.is_empty()).then_some(Self { directories }), report)
    }

    /// Puts a process into the groups; what it starts later follows it.
    pub(crate) fn add(&self, pid: Pid) -> Result<(), FailedStep> {
        for directory in &self.directories {
            let file = directory.join("cgroup.procs");
            fs::write(&file, pid.as_raw_nonzero().to_string())
                .step(|| format!("put the sandbox into {}", directory.display()))?;
        }
        Ok(())
    }

    /// Whether the kernel has killed something in the groups for want of memory.
    pub fn out_of_memory(&self) -> bool {
        let files = self.directories.iter().flat_map(|dir| [dir.join("memory.events"), dir.join("memory.oom_control")]);
        files
            .filter_map(|file| fs::read_to_string(file).ok())
            .any(|text| text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0"))
    }

    /// The directories of the groups.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Removes the groups, whose processes must have ended. A group that is gone is no error.
    ///
    /// # Errors
    /// When something in it lives on.
    pub fn remove(&self) -> Result<(), FailedStep> {
        let end = Instant::now() + PATIENCE;
        for directory in &self.directories {
            loop {
                match fs::remove_dir(directory) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(error) => {
                        let step = format!("remove the cgroup {}", directory.display());
                        return Err(
                            FailedStep::new(step, error).fix("end the processes in its cgroup.procs, then rmdir it")
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

/// Removes groups whose makers died before they could: of this process's own cgroup, empty ones only.
/// Returns how many went.
pub fn sweep() -> Result<usize, FailedStep> {
    let places = Places::of_this_process()?;
    let mut swept = 0;
    for directory in places.all() {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(FailedStep::new(format!("list {}", directory.display()), error)),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            // Makers that live may be about to use theirs.
            if name.to_str().is_some_and(is_orphan) && fs::remove_dir(entry.path()).is_ok() {
                swept += 1;
            }
        }
    }
    Ok(swept)
}

/// How much memory there is for this process: the machine's, or what its own control groups leave of it.
pub fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB")?.trim().parse().ok());
    let total: u64 = total.and_then(|total: u64| total.checked_mul(1024))?;
    let places = Places::of_this_process().unwrap_or_default();
    let own = places.v1("memory").or(places.v2.as_deref());
    let groups = own.into_iter().flat_map(Path::ancestors).take_while(|group| group.join("cgroup.procs").exists());
    let limit = |group: &Path| {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))
    };
    Some(groups.filter_map(limit).fold(total, u64::min))
}

/// Whether a sandbox's memory can be limited here: this makes a group, and removes it again.
pub fn can_limit_memory() -> bool {
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    // One that can't be removed is empty, and the next sweep takes it.
    Cgroup::make("probe", &limits).0.is_some_and(|group| group.remove().is_ok())
}

fn own_name(id: &str) -> io::Result<String> {
    let pid = std::process::id();
    let start = start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat can't be read"))?;
    Ok(format!("{PREFIX}{id}.{pid}.{start}"))
}

pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.rsplitn(3, '.');
    let start = parts.next().and_then(|n| n.parse::<u64>().ok());
    let pid = parts.next().and_then(|n| n.parse::<u32>().ok());
    match (start, pid, parts.next()) {
        (Some(start), Some(pid), Some(_)) => start_time(pid) != Some(start),
        _ => false,
    }
}

/// One limit, as each version writes it.
struct Want {
    limit: &'static str,
    controller: &'static str,
    v1: Vec<(&'static str, String)>,
    v2: Vec<(&'static str, String)>,
}

fn wanted(limits: &Limits) -> Vec<Want> {
    let mut list = Vec::new();
    if let Some(bytes) = limits.memory {
        let bytes = bytes.to_string();
        list.push(Want {
            limit: "memory",
            controller: "memory",
            // A `?` marks files that kernels without swap accounting don't have.
            v1: vec![("memory.limit_in_bytes", bytes.clone()), ("?memory.memsw.limit_in_bytes", bytes.clone())],
            v2: vec![("memory.max", bytes), ("?memory.swap.max", "0".into())],
        });
    }
    if let Some(cpu) = limits.cpu {
        const PERIOD: f64 = 100_000.0;
        let quota = (cpu * PERIOD).round().max(1000.0) as u64;
        list.push(Want {
            limit: "cpu",
            controller: "cpu",
            v1: vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
            v2: vec![("cpu.max", format!("{quota} {PERIOD}"))],
        });
    }
    if let Some(processes) = limits.processes {
        let max = processes.to_string();
        list.push(Want {
            limit: "processes",
            controller: "pids",
            v1: vec![("pids.max", max.clone())],
            v2: vec![("pids.max", max)],
        });
    }
    list
}

impl Want {
    /// Makes the group if it isn't there, and sets the limit.
    fn apply(&self, places: &Places, name: &str) -> Result<(PathBuf, &'static str), FailedStep> {
        let (parent, files, by) = match (places.v1(self.controller), &places.v2) {
            (Some(parent), _) => (parent.to_owned(), &self.v1, "cgroup v1"),
            (None, Some(own)) => (delegated(own, self.controller)?, &self.v2, "cgroup v2"),
            (None, None) => {
                let step = format!("find the cgroup controller {}", self.controller);
                return Err(FailedStep { step, errno: 0, fix: Some("this machine has none mounted".into()) });
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
                // Without create, a missing file of cgroupfs answers EACCES or EPERM.
                Err(_) if optional && !path.exists() => {}
                Err(error) => {
                    // The group may hold other limits: it goes only if this one made it alone.
                    let _ = fs::remove_dir(&directory);
                    return Err(FailedStep::new(format!("write {value} to {}", path.display()), error));
                }
                Ok(()) => {}
            }
        }
        Ok((directory, by))
    }
}

/// The nearest group at or above our own that hands the controller down and that we may add to.
fn delegated(own: &Path, controller: &str) -> Result<PathBuf, FailedStep> {
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
        // Only in our own group, whose processes are ours; the kernel refuses (EBUSY) while any sit in it.
        if directory == own
            && has(directory, "cgroup.controllers")
            && fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}")).is_ok()
        {
            return Ok(directory.to_owned());
        }
        candidate = directory.parent();
    }
    let step = format!("find a cgroup with the controller {controller} delegated to us at or above {}", own.display());
    let fix = "run as root, or under `systemd-run --user --scope -p Delegate=yes`".to_owned();
    Err(FailedStep { step, errno: 0, fix: Some(fix) })
}

/// Where this process is in the machine's hierarchies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Controllers of version 1, and our directory in each.
    v1: Vec<(String, PathBuf)>,
    /// Our directory in version 2.
    pub(crate) v2: Option<PathBuf>,
}

impl Places {
    pub(crate) fn of_this_process() -> Result<Self, FailedStep> {
        let read = |path: &str| fs::read_to_string(path).step(|| format!("read {path}"));
        Ok(Self::parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?))
    }

    /// From `/proc/self/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc(5)).
    fn parse(groups: &str, mounts: &str) -> Self {
        let mut places = Self::default();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let Some(directory) = mounts.lines().find_map(|mount| in_mount(mount, controllers, path)) else { continue };
            match controllers {
                "" => places.v2 = Some(directory),
                _ => places.v1.extend(controllers.split(',').map(|name| (name.to_owned(), directory.clone()))),
            }
        }
        places
    }

    pub(crate) fn v1(&self, controller: &str) -> Option<&Path> {
        self.v1.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }

    /// Every directory that groups of ours may be in.
    fn all(&self) -> impl Iterator<Item = &Path> {
        let v2 = self.v2.iter().flat_map(|own| own.ancestors());
        let v2 = v2.take_while(|directory| directory.join("cgroup.procs").exists());
        self.v1.iter().map(|(_, path)| path.as_path()).chain(v2)
    }
}

/// The directory of a group, if this line of mountinfo is the mount of its hierarchy.
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
        let places = Places::parse(groups, MOUNTS);
        assert_eq!(places.v1("memory"), Some(Path::new("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(places.v1("cpu"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(places.v1("pids"), None);
        assert_eq!(places.v2, Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice")));
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mounts = "35 31 0:32 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let places = Places::parse("0::/docker/x/y\n", mounts);
        assert_eq!(places.v2, Some(PathBuf::from("/sys/fs/cgroup/y")));
        assert_eq!(Places::parse("0::/elsewhere\n", mounts), Places::default());
    }

    /// A directory with the files of a version 2 group.
    fn group(path: &Path, controllers: &str, handed_down: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("cgroup.procs"), "").unwrap();
        fs::write(path.join("cgroup.controllers"), controllers).unwrap();
        fs::write(path.join("cgroup.subtree_control"), handed_down).unwrap();
    }

    #[test]
    fn the_nearest_group_that_hands_the_controller_down_is_taken() {
        let top = tempfile::tempdir().unwrap();
        let (slice, scope) = (top.path().join("slice"), top.path().join("slice/scope"));
        group(&slice, "cpu memory pids", "memory pids");
        group(&scope, "memory pids", "");
        // What our own group has we hand down ourselves (here nothing is in it).
        assert_eq!(delegated(&scope, "memory").unwrap(), scope);
        assert_eq!(fs::read_to_string(scope.join("cgroup.subtree_control")).unwrap(), "+memory");
        // What it lacks may come from above, as it is; nothing is switched on there.
        group(&scope, "", "");
        assert_eq!(delegated(&scope, "pids").unwrap(), slice);
        let error = delegated(&scope, "cpu").unwrap_err().to_string();
        assert!(error.contains("Delegate=yes"), "{error}");
        assert_eq!(fs::read_to_string(slice.join("cgroup.subtree_control")).unwrap(), "memory pids");
    }

    #[test]
    fn version_2_limits_are_written_as_the_kernel_reads_them() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "cpu memory pids", "cpu memory pids");
        let places = Places { v1: Vec::new(), v2: Some(top.path().to_owned()) };
        let limits = Limits { memory: Some(1 << 30), cpu: Some(1.5), processes: Some(100), ..Limits::default() };
        for want in wanted(&limits) {
            assert_eq!(want.apply(&places, "x").unwrap().1, "cgroup v2");
        }
        let read = |file: &str| fs::read_to_string(top.path().join("x").join(file)).unwrap();
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("pids.max"), "100");
    }

    #[test]
    fn only_groups_of_dead_makers_are_orphans() {
        let own = own_name("pb-a.b").unwrap();
        assert!(!is_orphan(&own), "{own}");
        assert!(is_orphan("podbay-jail-pb-x.1.999999999999"), "the pid lives, but began at another time");
        assert!(is_orphan("podbay-jail-pb-x.4194304.5"));
        assert!(!is_orphan("podbay-jail-something-else") && !is_orphan("podbay-other.4194304.5"));
        assert!(!is_orphan("system.slice"));
    }
}
