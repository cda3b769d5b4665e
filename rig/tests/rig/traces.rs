//! What a cluster could leave on the host.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// What all clusters share with the host, before and after.
pub(crate) struct Traces {
    links: BTreeSet<String>,
    tables: BTreeSet<String>,
    settings: Vec<String>,
}

impl Traces {
    pub(crate) fn of_host() -> Result<Self> {
        let links = std::fs::read_dir("/sys/class/net")?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        // Before the first `up` there may be no nft; then there are no tables either.
        let tables =
            Command::new("nft").args(["list", "tables"]).output().map(|output| output.stdout).unwrap_or_default();
        let tables = String::from_utf8_lossy(&tables).lines().map(str::to_owned).collect();
        // The kubelet and kube-proxy set these for the whole machine if they are let.
        let names =
            ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"];
        let settings = names
            .iter()
            .map(|name| Ok(format!("{name} = {}", std::fs::read_to_string(format!("/proc/sys/{name}"))?)))
            .collect::<std::io::Result<_>>()?;
        Ok(Self { links, tables, settings })
    }

    pub(crate) fn compare(&self, after: &Self) -> Result<()> {
        ensure!(self.links == after.links, "network devices: {:?}, then {:?}", self.links, after.links);
        ensure!(self.tables == after.tables, "nft tables: {:?}, then {:?}", self.tables, after.tables);
        ensure!(self.settings == after.settings, "settings: {:?}, then {:?}", self.settings, after.settings);
        Ok(())
    }
}

/// Fails when a process, mount, cgroup, network namespace, port or file of this cluster is left.
pub(crate) fn nothing_of(name: &str, port: u16) -> Result<()> {
    let cgroup = format!("podbay-{name}-");
    for entry in std::fs::read_dir("/proc")? {
        let directory = entry?.path();
        let cgroups = std::fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
        ensure!(!cgroups.contains(&cgroup), "a process is left: {}", directory.display());
    }
    // A network namespace without a process lives only as long as something has it mounted.
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mine = format!("clusters/{name}");
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&mine) || line.contains(" nsfs ")).collect();
    ensure!(left.is_empty(), "mounts are left: {left:?}");
    let mut cgroups = Vec::new();
    find(Path::new("/sys/fs/cgroup"), &cgroup, &mut cgroups);
    ensure!(cgroups.is_empty(), "cgroups are left: {cgroups:?}");
    let cache = rig::Cache::place()?;
    ensure!(!cache.join("clusters").join(name).exists(), "the directory is left");
    ensure!(!cache.join("locks").join(format!("cluster-{name}")).exists(), "a lock is left");
    ensure!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "port {port} still answers");
    Ok(())
}

fn find(directory: &Path, name: &str, found: &mut Vec<std::path::PathBuf>) {
    // A cgroup of somebody else may go away while we look.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains(name) {
                found.push(entry.path());
            }
            find(&entry.path(), name, found);
        }
    }
}
