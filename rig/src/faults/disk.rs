//! A pod's disk is full.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fstatvfs, openat, openat2, unlinkat};
use rustix::process::Pid;

use super::container::id;
use crate::cluster::Cluster;

/// More than this is not filled: it would be the machine's own disk or memory.
const LIMIT: u64 = 1 << 30;
const FILE: &str = ".full";

/// A directory of a pod whose file system has no byte left. Freed when dropped.
pub struct FullDisk {
    cluster: Cluster,
    namespace: String,
    pod: String,
    container: String,
    directory: String,
}

/// Fills the file system of a directory in a pod. Give the pod a small one for it, a volume like this:
/// `emptyDir: {medium: Memory, sizeLimit: 16Mi}`; one with more than 1 GiB free is refused. Not for gVisor pods.
pub fn fill_disk(cluster: &Cluster, namespace: &str, pod: &str, container: &str, directory: &str) -> Result<FullDisk> {
    let disk = FullDisk {
        cluster: cluster.clone(),
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        directory: directory.to_owned(),
    };
    let place = disk.open()?;
    let space = fstatvfs(&place)?;
    let free = space.f_bavail * space.f_frsize;
    ensure!(
        free <= LIMIT,
        "{directory} of pod {namespace}/{pod} has {} MiB free, more than is filled: mount a small emptyDir there \
         (medium: Memory, sizeLimit: 16Mi)",
        free >> 20
    );
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&place, FILE, flags, Mode::RUSR | Mode::WUSR)?);
    // Large pieces first, then single bytes: the last block must not keep room for a small file.
    let zeros = vec![0; 1 << 20];
    let mut piece = zeros.len();
    while piece > 0 {
        match file.write(&zeros[..piece]) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => piece /= 16,
            Err(error) => bail!("cannot fill {directory} of pod {namespace}/{pod}: {error}"),
        }
    }
    Ok(disk)
}

impl FullDisk {
    /// Makes room again.
    pub fn free(self) -> Result<()> {
        self.remove()
    }

    /// The directory, as the container's first process sees it; links in it can't lead out of the container.
    fn open(&self) -> Result<OwnedFd> {
        let first = self.first_process()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, format!("/proc/{}/root", first.as_raw_pid()), flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&root, self.directory.as_str(), flags, Mode::empty(), ResolveFlags::IN_ROOT)
            .with_context(|| format!("cannot open {} of pod {}/{}", self.directory, self.namespace, self.pod))
    }

    /// The container's first process by its number on the host. With gVisor there is none: it keeps its own processes.
    fn first_process(&self) -> Result<Pid> {
        let id = id(&self.cluster, &self.namespace, &self.pod, &self.container)?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            // A process may end while we look: then it isn't the container's any more.
            let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid())).unwrap_or_default();
            if cgroups.lines().any(|line| line.ends_with(&id)) {
                found.push(pid);
            }
        }
        found.into_iter().min_by_key(|pid| pid.as_raw_pid()).with_context(|| {
            format!("container {:?} of pod {}/{} has no process on the host", self.container, self.namespace, self.pod)
        })
    }

    fn remove(&self) -> Result<()> {
        match unlinkat(self.open()?, FILE, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error).context("cannot free the disk"),
        }
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        // The pod may be gone, and its disk with it: then there is nothing to free.
        let _ = self.remove();
    }
}
