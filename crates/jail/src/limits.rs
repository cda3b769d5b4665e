//! Resource limits: those that rlimits enforce, and the report of what enforces each.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, CgroupProcs};
use crate::error::{FailedStep, JailError, Step};
use crate::jail::{Isolation, Jail};

/// Resource limits of a jail. [`Jailed::limits`](crate::Jailed::limits) says which of them are enforced, and by what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailLimits {
    /// Bytes of memory, swap included.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Processors, such as 1.5.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Processes and threads.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Bytes on disk: of all temporary files together, and of each file elsewhere.
    #[serde(default)]
    pub disk: Option<u64>,
    /// Open descriptors of one process.
    #[serde(default)]
    pub descriptors: Option<u64>,
}

impl JailLimits {
    pub(crate) fn validate(&self) -> Result<(), JailError> {
        const MIB: u64 = 1 << 20;
        let least = [
            ("limits.memory", self.memory, 4 * MIB),
            ("limits.processes", self.processes, 2),
            ("limits.disk", self.disk, MIB),
            ("limits.descriptors", self.descriptors, 32),
        ];
        for (field, value, least) in least {
            if let Some(value) = value.filter(|value| *value < least) {
                return Err(JailError::invalid(
                    field,
                    value,
                    format!("is too low to run anything: use at least {least}"),
                ));
            }
        }
        match self.cpu {
            Some(cpu) if !cpu.is_finite() || cpu < 0.01 => {
                Err(JailError::invalid("limits.cpu", cpu, "isn't a valid number of processors: use at least 0.01"))
            }
            _ => Ok(()),
        }
    }
}

/// A requested limit, and what enforces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The field of [`JailLimits`](crate::JailLimits): `memory`, `cpu`, `processes`, `disk`, `descriptors`.
    pub limit: String,
    /// What enforces it; `None` if nothing does.
    pub by: Option<String>,
    /// How far the limit goes, or why it isn't enforced.
    pub note: Option<String>,
}

impl InForce {
    pub(crate) fn by(limit: &str, by: impl Into<String>) -> Self {
        Self { limit: limit.into(), by: Some(by.into()), note: None }
    }

    pub(crate) fn missing(limit: &str, why: impl Into<String>) -> Self {
        Self { limit: limit.into(), by: None, note: Some(why.into()) }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// Applies to this process the limits that rlimits can enforce.
pub(crate) fn apply(jail: &Jail) -> Result<(), FailedStep> {
    // The host's core_pattern may send core files anywhere.
    set(Resource::Core, 0)?;
    if let Some(processes) = jail.limits.processes {
        let others = match jail.isolation {
            Isolation::Namespaces => 0,
            // The kernel counts all of this user's threads. Those that run now aren't the jail's. As they end, the jail can
            // take their place: without namespaces or a cgroup the kernel knows nothing that would hold it to its own.
            Isolation::Landlock => threads_of_this_user().step(|| "count this user's threads".into())?,
        };
        set(Resource::Nproc, processes.saturating_add(others))?;
    }
    if let Some(descriptors) = jail.limits.descriptors {
        set(Resource::Nofile, descriptors)?;
    }
    if let Some(disk) = jail.limits.disk {
        set(Resource::Fsize, disk)?;
    }
    set(Resource::Memlock, 8 << 20)?;
    set(Resource::Msgqueue, 819_200)?;
    set(Resource::Rtprio, 0)
}

/// The threads that the kernel counts against this user's limit, without this process's own: those whose real user it is. The
/// owner of a process's directory in `/proc` is its effective user, which for `sudo` is root.
fn threads_of_this_user() -> std::io::Result<u64> {
    let uid = rustix::process::getuid().as_raw();
    let own = std::process::id().to_string();
    let mut threads = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let is_other = name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && name != own.as_str();
        // Processes come and go while they are counted.
        if is_other && let Ok(status) = std::fs::read(entry.path().join("status")) {
            threads += threads_of(&String::from_utf8_lossy(&status), uid);
        }
    }
    Ok(threads)
}

/// The threads of a process, by its `/proc/PID/status`; none if its real user is another.
fn threads_of(status: &str, uid: u32) -> u64 {
    let number = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    if number("Uid:") == Some(u64::from(uid)) { number("Threads:").unwrap_or(1) } else { 0 }
}

/// Lowers a limit, unless it is lower already.
fn set(resource: Resource, value: u64) -> Result<(), FailedStep> {
    let hard = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
        .step(|| format!("set the limit {resource:?} to {hard}"))
}

/// The control groups of a jail that is about to start, and what enforces each of its limits.
pub(crate) struct Arranged {
    cgroup: Option<Cgroup>,
    pub(crate) procs: CgroupProcs,
    by_cgroup: Vec<InForce>,
}

impl Arranged {
    /// Makes control groups as far as possible.
    pub(crate) fn new(jail: &Jail) -> Self {
        let (cgroup, by_cgroup) = Cgroup::make(&jail.id, &jail.limits);
        let mut arranged = Self { cgroup, procs: CgroupProcs::default(), by_cgroup };
        match arranged.cgroup.as_ref().map(Cgroup::procs) {
            Some(Ok(procs)) => arranged.procs = procs,
            Some(Err(failure)) => arranged.give_up(&failure),
            None => {}
        }
        arranged
    }

    /// Removes the groups: on some machines they can be made, but no process can enter them.
    pub(crate) fn give_up(&mut self, failure: &FailedStep) {
        let unused = self.cgroup.take().and_then(|cgroup| cgroup.remove().err());
        let also = unused.map_or_else(String::new, |second| format!(" (and then: {second})"));
        for entry in self.by_cgroup.iter_mut().filter(|entry| entry.by.is_some()) {
            *entry = InForce::missing(&entry.limit, format!("{failure}{also}"));
        }
    }

    /// The groups, and what enforces each limit.
    pub(crate) fn in_force(self, jail: &Jail) -> (Option<Cgroup>, Vec<InForce>) {
        let mut report = self.by_cgroup;
        for entry in without_cgroup(jail) {
            match report.iter_mut().find(|known| known.limit == entry.limit) {
                Some(known) if known.by.is_none() => *known = entry,
                Some(_) => {}
                None => report.push(entry),
            }
        }
        (self.cgroup, report)
    }
}

/// The limits that rlimits and the temporary file system enforce, with or without a cgroup.
fn without_cgroup(jail: &Jail) -> Vec<InForce> {
    let mut list = Vec::new();
    if jail.limits.processes.is_some() {
        list.push(match jail.isolation {
            Isolation::Namespaces => InForce::by("processes", "rlimit").note("counted per sandbox from Linux 5.14 on"),
            Isolation::Landlock => InForce::by("processes", "rlimit").note(
                "the user's processes outside the sandbox count too, so the effective limit is this number plus \
                     the processes that were running when the sandbox was created",
            ),
        });
    }
    if jail.limits.descriptors.is_some() {
        list.push(InForce::by("descriptors", "rlimit"));
    }
    if jail.limits.disk.is_some() {
        let temporary = jail.workspace.is_none() && jail.isolation == Isolation::Namespaces;
        list.push(match temporary {
            true => InForce::by("disk", "tmpfs").note("the workspace and all temporary files together"),
            false => InForce::by("disk", "rlimit")
                .note("each file in the workspace, not their sum; tmpfs limits all temporary files together"),
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_for_its_real_user() {
        let status = "Name:\ta Uid: 7\nPid:\t12\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\nThreads:\t3\n";
        assert_eq!((threads_of(status, 1000), threads_of(status, 0)), (3, 0));
        assert_eq!(threads_of("", 0), 0);
    }

    #[test]
    fn limits_that_let_nothing_run_are_refused() {
        let with = |limits| Jail { limits, ..Jail::new("pb-x") }.validate();
        assert!(with(JailLimits { memory: Some(1024), ..JailLimits::default() }).is_err());
        assert!(with(JailLimits { processes: Some(1), ..JailLimits::default() }).is_err());
        for cpu in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(with(JailLimits { cpu: Some(cpu), ..JailLimits::default() }).is_err(), "{cpu}");
        }
        assert!(with(JailLimits { cpu: Some(0.5), memory: Some(64 << 20), ..JailLimits::default() }).is_ok());
    }
}
