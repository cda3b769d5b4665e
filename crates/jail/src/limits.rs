//! Limits by rlimit, and the account of which limits are in force by what.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::error::{FailedStep, Step};
use crate::jail::{Isolation, Jail};

/// One limit that was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The field of [`Limits`](crate::Limits): `memory`, `cpu`, `processes`, `disk`, `descriptors`.
    pub limit: String,
    /// What enforces it; none where nothing does.
    pub by: Option<String>,
    /// What a user should know: how far it goes, or why it can't be had.
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

/// Applies to this process what rlimits can do.
pub(crate) fn apply(jail: &Jail) -> Result<(), FailedStep> {
    // A core file would carry the sandbox's memory to wherever the host's core_pattern says.
    set(Resource::Core, 0)?;
    if let Some(processes) = jail.limits.processes {
        let others = match jail.isolation {
            Isolation::Namespaces => 0,
            // The kernel counts all threads of this user: those that run now are not the sandbox's.
            Isolation::Landlock => threads_of_this_user().step(|| "count this user's threads".into())?,
        };
        set(Resource::Nproc, processes + others)?;
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

fn threads_of_this_user() -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let uid = rustix::process::getuid().as_raw();
    let mut threads = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // Processes come and go while they are counted.
        if entry.metadata().is_ok_and(|meta| meta.uid() == uid) {
            threads += std::fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64);
        }
    }
    Ok(threads)
}

/// Lowers a limit; one that is lower already stays.
fn set(resource: Resource, value: u64) -> Result<(), FailedStep> {
    let hard = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
    setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
        .step(|| format!("set the limit {resource:?} to {hard}"))
}

/// Makes what control groups there can be, puts the jail's first process into them, and says of each limit what enforces it.
pub(crate) fn arrange(jail: &Jail, first: Pid) -> (Option<Cgroup>, Vec<InForce>) {
    let (mut cgroup, mut report) = Cgroup::make(&jail.id, &jail.limits);
    // Some machines let us make a group and nobody enter it. Then it is as if there were none.
    if let Some(Err(failure)) = cgroup.as_ref().map(|cgroup| cgroup.add(first)) {
        let unused = cgroup.take().and_then(|cgroup| cgroup.remove().err());
        let also = unused.map_or_else(String::new, |second| format!(" (and then: {second})"));
        for entry in report.iter_mut().filter(|entry| entry.by.is_some()) {
            *entry = InForce::missing(&entry.limit, format!("{failure}{also}"));
        }
    }
    for entry in without_cgroup(jail) {
        match report.iter_mut().find(|known| known.limit == entry.limit) {
            Some(known) if known.by.is_none() => *known = entry,
            Some(_) => {}
            None => report.push(entry),
        }
    }
    (cgroup, report)
}

/// What rlimits and the temporary file system enforce of what was asked for, beside any cgroup.
fn without_cgroup(jail: &Jail) -> Vec<InForce> {
    let mut list = Vec::new();
    if jail.limits.processes.is_some() {
        list.push(match jail.isolation {
            Isolation::Namespaces => InForce::by("processes", "rlimit")
                .note("counted in the sandbox's own user namespace, from Linux 5.14 on"),
            Isolation::Landlock => {
                InForce::by("processes", "rlimit").note("shared with what this user starts elsewhere meanwhile")
            }
        });
    }
    if jail.limits.descriptors.is_some() {
        list.push(InForce::by("descriptors", "rlimit"));
    }
    if jail.limits.disk.is_some() {
        let temporary = jail.workspace.is_none() && jail.isolation == Isolation::Namespaces;
        list.push(match temporary {
            true => InForce::by("disk", "tmpfs").note("the workspace and everything temporary together"),
            false => InForce::by("disk", "rlimit")
                .note("each file in the workspace, not their sum; everything temporary together by tmpfs"),
        });
    }
    list
}
