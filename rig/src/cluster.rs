//! A cluster: starting it, finding it, using it, ending it.

mod remains;
mod start;
mod state;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::addon::AddOn;
use crate::cache::Cache;
use crate::image::{Archive, Image};
use crate::process::{command, output, output_with_input};
use crate::{availability, cgroup};
use state::State;

pub(crate) use start::{link_program, write_file};

/// The name of the cluster that is meant when nobody names one: `PODBAY_RIG_NAME`, else `default`.
pub fn default_name() -> String {
    std::env::var("PODBAY_RIG_NAME").unwrap_or_else(|_| "default".to_owned())
}

/// A cluster that is up. Dropping it leaves the cluster alone.
#[derive(Debug, Clone)]
pub struct Cluster {
    cache: Cache,
    state: State,
}

/// What `cluster status` shows.
#[derive(Debug)]
pub struct Status {
    /// The cluster's name.
    pub name: String,
    /// Whether it is up. If not, it is being started, or a crash left the rest: `up` or `down` removes that.
    pub running: bool,
    /// Whether its node says that it is ready.
    pub ready: bool,
    /// Where the API server is reached.
    pub server: String,
    /// What was added to it.
    pub add_ons: BTreeSet<AddOn>,
    /// Memory in bytes, without file cache.
    pub memory: Option<u64>,
}

/// How a cluster differs from what most people have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flavor {
    /// Runs pods that name no RuntimeClass on crun, not on runc. It is in C, and a pod takes about a quarter less processor time.
    pub crun: bool,
    /// Enforces NetworkPolicies, for which kube-router runs iptables and ipset whenever a pod comes or goes.
    pub network_policies: bool,
}

impl Default for Flavor {
    fn default() -> Self {
        Self { crun: false, network_policies: true }
    }
}

impl Cluster {
    /// Brings the cluster up, or finds it up, with at least these add-ons.
    pub fn up(name: &str, add_ons: &BTreeSet<AddOn>) -> Result<Self> {
        Self::up_as(name, Flavor::default(), add_ons)
    }

    /// The same; if it isn't up yet, of this flavor.
    pub fn up_as(name: &str, flavor: Flavor, add_ons: &BTreeSet<AddOn>) -> Result<Self> {
        check_name(name)?;
        availability::available()?;
        let cache = Cache::open()?;
        {
            let _lock = cache.lock("packages")?;
            crate::packages::ensure(crate::packages::NEEDS)?;
        }
        let _lock = cache.lock(&format!("cluster-{name}"))?;
        let mut cluster = match Self::load(&cache, name)? {
            Some(cluster) if cluster.state.is_up() => cluster,
            stale => {
                if let Some(stale) = stale {
                    remains::remove(&stale.state)?;
                }
                start::start(&cache, name, flavor)?
            }
        };
        for add_on in add_ons {
            if !cluster.state.add_ons.contains(add_on) {
                add_on.install(&cache, &cluster)?;
                cluster.state.add_ons.insert(*add_on);
                cluster.state.save()?;
            }
        }
        Ok(cluster)
    }

    /// The cluster of this name, if it is up.
    pub fn find(name: &str) -> Result<Option<Self>> {
        check_name(name)?;
        Ok(Self::load(&Cache::open()?, name)?.filter(|cluster| cluster.state.is_up()))
    }

    /// Ends the cluster of this name and removes everything that it left. Says whether there was anything.
    pub fn down(name: &str) -> Result<bool> {
        check_name(name)?;
        let cache = Cache::open()?;
        let _lock = cache.lock(&format!("cluster-{name}"))?;
        let Some(cluster) = Self::load(&cache, name)? else { return Ok(false) };
        remains::remove(&cluster.state)?;
        Ok(true)
    }

    /// Every cluster that is up or left something.
    pub fn list() -> Result<Vec<Status>> {
        let cache = Cache::open()?;
        let mut names: Vec<String> = std::fs::read_dir(cache.directory("clusters")?)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        names.sort();
        let clusters: Vec<Option<Self>> = names.iter().map(|name| Self::load(&cache, name)).collect::<Result<_>>()?;
        Ok(clusters.into_iter().flatten().map(|cluster| cluster.status()).collect())
    }

    fn load(cache: &Cache, name: &str) -> Result<Option<Self>> {
        Ok(State::load(&cache.directory("clusters")?.join(name))?.map(|state| Self { cache: cache.clone(), state }))
    }

    fn status(&self) -> Status {
        let running = self.state.is_up();
        Status {
            name: self.state.name.clone(),
            running,
            ready: running && start::node_is_ready(self),
            server: self.server(),
            add_ons: self.state.add_ons.clone(),
            memory: cgroup::memory(&self.state.cgroups),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The API server's address on the host.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.state.port)
    }

    /// The host's port of the API server.
    pub fn port(&self) -> u16 {
        self.state.port
    }

    /// The administrator's kubeconfig. Tests use it for their own set-up, not for what they test.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory().join("pki/host.kubeconfig")
    }

    /// The directory with `kubectl` and the other programs.
    pub fn programs(&self) -> PathBuf {
        self.directory().join("bin")
    }

    /// The directory with one log file for each program.
    pub fn logs(&self) -> PathBuf {
        self.directory().join("log")
    }

    /// The number, on the host, of the node's first process: whoever kills it kills the cluster.
    pub fn first_process(&self) -> Option<i32> {
        self.state.init.as_ref().map(|init| init.pid)
    }

    /// The cgroups that hold every process of the cluster.
    pub fn cgroups(&self) -> &[PathBuf] {
        &self.state.cgroups
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.state.directory
    }

    /// `kubectl` as the administrator.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = command(self.programs().join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig());
        kubectl
    }

    /// Applies manifests, YAML or JSON.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        let mut kubectl = self.kubectl();
        output_with_input(kubectl.args(["apply", "--server-side", "-f", "-"]), manifests.as_bytes()).map(drop)
    }

    /// A command inside the node: its files, processes and network.
    pub fn inside(&self, program: &str) -> Result<Command> {
        let Some(init) = &self.state.init else { bail!("cluster {} has no init process", self.name()) };
        ensure!(init.is_alive(), "cluster {} isn't up: run `cargo xtask cluster up`", self.name());
        let mut inside = command("nsenter");
        inside.args(["--target", &init.pid.to_string()]);
        inside.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--wd=/", "--", program]);
        let path = std::env::var("PATH").unwrap_or_default();
        inside.env("PATH", format!("/run/rig/bin:{path}")).env("KUBECONFIG", "/run/rig/pki/admin.kubeconfig");
        Ok(inside)
    }

    /// Waits until the API server serves, the node is ready and pods can be made.
    pub fn wait_until_ready(&self) -> Result<()> {
        start::wait_for(self, "the node", || start::node_is_ready(self))
    }

    /// containerd's command line, for what the kubelet sees.
    pub(crate) fn ctr(&self) -> Result<Command> {
        let mut ctr = self.inside("ctr")?;
        ctr.args(["--address", "/run/rig/containerd.sock", "--namespace", "k8s.io"]);
        Ok(ctr)
    }

    /// Makes images (or finds them in the cache) and imports them, for pods with `imagePullPolicy: Never`.
    pub fn add_images(&self, images: &[Image]) -> Result<()> {
        let present = output(self.ctr()?.args(["content", "ls", "--quiet"]))?.lines().map(str::to_owned).collect();
        // What is present may belong to an import that isn't finished, and be gone when it is needed.
        match self.import(images, &present) {
            Ok(()) => Ok(()),
            Err(error) => {
                crate::progress::say(&format!(
                    "importing all layers, because importing only the missing ones failed: {error:#}"
                ));
                self.import(images, &BTreeSet::new())
            }
        }
    }

    /// Imports images without the layers that are present.
    fn import(&self, images: &[Image], present: &BTreeSet<String>) -> Result<()> {
        let first = images.first().map(Image::name).unwrap_or_default().replace(['/', ':'], "-");
        // Several tests may import the same image at the same time.
        static IMPORTS: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), IMPORTS.fetch_add(1, Ordering::Relaxed));
        let layout = self.directory().join(format!("import-{first}-{unique}"));
        let _archive = Archive::create(&self.cache, images, &layout, present)?;
        let mut pack = command("tar").arg("-C").arg(&layout).args(["-cf", "-", "."]).stdout(Stdio::piped()).spawn()?;
        let archive = pack.stdout.take().context("no pipe from tar")?;
        let imported = output(self.ctr()?.args(["images", "import", "-"]).stdin(archive));
        let packed = pack.wait()?;
        imported.with_context(|| format!("cannot import {}", names(images)))?;
        ensure!(packed.success(), "tar failed to pack {}: {packed}", names(images));
        Ok(())
    }
}

fn names(images: &[Image]) -> String {
    images.iter().map(Image::name).collect::<Vec<_>>().join(", ")
}

/// A cluster's name is part of file and cgroup names.
fn check_name(name: &str) -> Result<()> {
    let fits = (1..=32).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-');
    ensure!(fits, "{name:?} can't name a cluster: use up to 32 lower-case letters, digits and hyphens");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "A", "-x", "a b", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("two-1").unwrap();
    }
}
