//! Limits by control group, version 1 or 2, where groups can be made.

mod hierarchies;
mod orphans;
mod setting;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::hierarchies::Hierarchies;
pub use self::orphans::sweep;
use crate::error::{FailedStep, Step};
use crate::limits::{InForce, JailLimits};

/// The beginning of every group's name. An id follows, and pid and start time of the maker.
const PREFIX: &str = "podbay-jail-";
/// How long the group of an ended sandbox may stay busy: the kernel releases dead tasks a little later.
const PATIENCE: Duration = Duration::from_secs(5);

/// The control groups of one jail or command: one, or in version 1 one for each controller.
#[derive(Debug)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the groups that the limits need, as far as this machine allows, and reports which limits they enforce.
    pub fn make(id: &str, limits: &JailLimits) -> (Option<Self>, Vec<InForce>) {
        let mut report = Vec::new();
        let mut directories = Vec::new();
        let settings = setting::settings(limits);
        if settings.is_empty() {
            return (None, report);
        }
        let name = match orphans::own_name(id) {
            Ok(name) => name,
            Err(error) => {
                report.extend(settings.iter().map(|setting| InForce::missing(setting.limit, error.to_string())));
                return (None, report);
            }
        };
        let own = Hierarchies::of_this_process();
        for setting in &settings {
            match own.as_ref().map_err(Clone::clone).and_then(|own| setting.apply(own, &name)) {
                Ok((directory, by)) => {
                    report.push(InForce::by(setting.limit, by));
                    if !directories.contains(&directory) {
                        directories.push(directory);
                    }
                }
                Err(failure) => report.push(InForce::missing(setting.limit, failure.to_string())),
            }
        }
        ((!directories.is_empty()).then_some(Self { directories }), report)
    }

    /// Opens what a process needs to [enter](CgroupProcs::enter) the groups.
    ///
    /// # Errors
    /// When this process may make groups, but not fill them.
    pub fn procs(&self) -> Result<CgroupProcs, FailedStep> {
        let (mut files, mut unified) = (Vec::new(), None);
        for directory in &self.directories {
            let step = || format!("move the sandbox into {}", directory.display());
            let open = |name: &str| File::options().write(true).open(directory.join(name)).map(OwnedFd::from);
            // Only version 1 has `tasks`. A thread that writes to it moves alone, and the kernel needn't stop all others from
            // forking meanwhile, for which it waits milliseconds.
            let file = match open("tasks") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    unified = Some(File::open(directory).map(OwnedFd::from).step(step)?);
                    open("cgroup.procs")
                }
                opened => opened,
            };
            files.push(file.step(step)?);
        }
        // A machine has one hierarchy of version 2, but the groups may be at several places in it, below different delegations.
        let unified = unified.filter(|_| files.len() == 1);
        Ok(CgroupProcs { files, unified })
    }

    /// Whether the kernel has killed a process in the groups because their memory ran out.
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

    /// Removes the groups, whose processes must have ended. A group that doesn't exist is no error.
    ///
    /// # Errors
    /// When a process in one of them is still alive.
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

/// The `cgroup.procs` of each group (of version 1: `tasks`), opened: processes enter by them even where the groups can't be seen.
#[derive(Debug, Default)]
pub struct CgroupProcs {
    files: Vec<OwnedFd>,
    /// The directory of the only group, if it is of version 2: `clone3` starts a process in it.
    pub(crate) unified: Option<OwnedFd>,
}

impl CgroupProcs {
    /// Moves this process, which must have one thread, into the groups; processes that it starts later are in them too. System
    /// calls only.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        for file in &self.files {
            rustix::io::write(file, b"0")?;
        }
        Ok(())
    }
}

/// Whether a sandbox's memory can be limited on this machine, found out by making a group and removing it again.
pub fn can_limit_memory() -> bool {
    let limits = JailLimits { memory: Some(64 << 20), ..JailLimits::default() };
    // If the group can't be removed, it is empty, and the next sweep removes it.
    Cgroup::make("probe", &limits).0.is_some_and(|group| group.remove().is_ok())
}

/// The directory of this process's group in version 2, if the machine has that.
#[cfg(test)]
pub(crate) fn unified_group_of_this_process() -> Option<PathBuf> {
    Hierarchies::of_this_process().ok()?.v2
}

/// How much memory this process can use: the machine's, or less if its control groups limit it.
pub fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB")?.trim().parse().ok());
    let total: u64 = total.and_then(|total: u64| total.checked_mul(1024))?;
    let hierarchies = Hierarchies::of_this_process().unwrap_or_default();
    let own = hierarchies.v1("memory").or(hierarchies.v2.as_deref());
    let groups = own.into_iter().flat_map(Path::ancestors).take_while(|group| group.join("cgroup.procs").exists());
    let limit = |group: &Path| {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))
    };
    Some(groups.filter_map(limit).fold(total, u64::min))
}
