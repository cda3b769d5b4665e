//! The options of a sandbox that is to be made.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use podbay::config::Config;

use crate::failure::Failure;
use crate::quantity::{self, Most};

/// What raw mode sets aside for a pod unless told otherwise, in bytes: 256 MiB.
const DEFAULT_MEMORY_REQUEST: u64 = 256 << 20;

/// The same for processors.
const DEFAULT_CPU_REQUEST: f64 = 0.1;

/// The options of a sandbox that is to be made.
#[derive(Debug, Args)]
#[command(next_help_heading = "The sandbox")]
pub struct SandboxOptions {
    /// Its name: lower-case letters, digits and '-'; a random one when there is none
    #[arg(long)]
    pub name: Option<String>,

    /// A directory of this machine as /workspace, writable; without one it is memory that is gone with the sandbox
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,

    /// One more file or directory of this machine, read-only unless ':rw' is added; may be repeated
    #[arg(long = "mount", value_name = "HOST:INSIDE[:rw]", value_parser = mount)]
    mounts: Vec<Mounted>,

    /// What it can reach: nothing (unless set otherwise), or whatever this machine can
    #[arg(long, value_enum)]
    network: Option<Network>,

    /// The most memory, as in 512M, or 'none'; half of this machine's unless set, where a control group can limit it
    #[arg(long, value_name = "SIZE", value_parser = quantity::most_bytes)]
    memory: Option<Most<u64>>,

    /// The most processors, as in 1.5, or 'none'
    #[arg(long, value_name = "NUMBER", value_parser = quantity::most_real)]
    cpus: Option<Most<f64>>,

    /// The most processes and threads at once, or 'none'; 4096 unless set
    #[arg(long, value_name = "NUMBER", value_parser = quantity::most_whole)]
    processes: Option<Most<u64>>,

    /// The most disk space, as in 2G: of everything temporary together; of a host directory, each file
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    disk: Option<u64>,

    /// An environment variable of every command in it; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    env: Vec<(String, String)>,

    /// A label, by which 'podbay list' finds it; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = quantity::pair)]
    labels: Vec<(String, String)>,

    /// How long it lives at most, as in 2h
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    ttl: Option<Duration>,

    /// How long it lives without being used, as in 15m
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    idle_ttl: Option<Duration>,

    /// The image of its pod, with --mode raw; python:3.12-slim when not given
    #[arg(long)]
    image: Option<String>,

    /// What runs its pod, such as gvisor, with --mode raw
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,

    /// The service account of its pod, whose token it doesn't get, with --mode raw
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,

    /// How long its pod may take to run, as in 5m, with --mode raw
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_span)]
    startup_timeout: Option<Duration>,

    /// How it is kept apart: 'namespaces' (unless set otherwise), or 'landlock', for machines that can't make user namespaces;
    /// it protects less
    #[arg(long, value_enum, hide_possible_values = true)]
    isolation: Option<Isolation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    /// A loopback of its own, nothing else
    None,
    /// This machine's network, with all that listens on it
    Host,
    /// The same, without the fence that keeps it from sockets of this machine that have no address
    HostUnfenced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Isolation {
    Namespaces,
    Landlock,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mounted {
    host: PathBuf,
    inside: PathBuf,
    writable: bool,
}

impl Mounted {
    /// As the setting is written. The sandbox refuses links in the path: this one is the user's own and means what it says now.
    fn absolute(&self) -> Result<String, Failure> {
        let host = std::fs::canonicalize(&self.host)
            .map_err(|error| Failure::local(&self.host, "can't be mounted", &error))?;
        let access = if self.writable { "rw" } else { "ro" };
        Ok(format!("{}:{}:{access}", text(host)?, text(&self.inside)?))
    }
}

/// A path as a setting.
fn text(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(format!("{} can't be used: its name isn't UTF-8; rename it", path.display())).coded("local_file")
    })
}

/// The word of a choice.
fn word(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn mount(text: &str) -> Result<Mounted, String> {
    let mut parts = text.split(':');
    let (Some(host), Some(inside), access, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("use HOST:INSIDE or HOST:INSIDE:rw".to_owned());
    };
    let writable = match access {
        None | Some("ro") => false,
        Some("rw") => true,
        Some(other) => return Err(format!("{other:?} is neither 'ro' nor 'rw'")),
    };
    if host.is_empty() || !inside.starts_with('/') {
        return Err("name what to mount, and an absolute path inside: HOST:/INSIDE".to_owned());
    }
    Ok(Mounted { host: host.into(), inside: inside.into(), writable })
}

impl SandboxOptions {
    /// Puts what these flags say over the settings.
    ///
    /// # Errors
    /// When one names something that isn't there.
    pub fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        for (key, value) in &self.env {
            config.add_pair("--env", "env", (key, value))?;
        }
        for (flag, key, span) in [("--ttl", "ttl", self.ttl), ("--idle-ttl", "idle_ttl", self.idle_ttl)] {
            if let Some(span) = span {
                // Less than a millisecond is one.
                config.set_by(flag, key, &format!("{}ms", span.as_millis().max(1)))?;
            }
        }
        if config.mode() == "raw" { self.apply_raw(config) } else { self.apply_local(config) }
    }

    fn apply_local(&self, config: &mut Config) -> Result<(), Failure> {
        let only_raw = [
            ("--image", self.image.is_some()),
            ("--runtime-class", self.runtime_class.is_some()),
            ("--service-account", self.service_account.is_some()),
            ("--startup-timeout", self.startup_timeout.is_some()),
        ];
        if let Some((flag, _)) = only_raw.iter().find(|(_, given)| *given) {
            let message = format!("{flag} is for pods on a cluster, and the mode is local: add --mode raw");
            return Err(Failure::new(message).coded("usage"));
        }
        if let Some(workspace) = self.workspace()? {
            config.set_by("--workspace", "local.workspace", &workspace)?;
        }
        for mount in &self.mounts {
            config.add_item("--mount", "local.mounts", mount.absolute()?)?;
        }
        for (flag, key, value) in [
            ("--network", "local.network", self.network.map(word)),
            ("--isolation", "local.isolation", self.isolation.map(word)),
            ("--memory", "local.memory", self.memory.map(|memory| memory.setting())),
            ("--cpus", "local.cpu", self.cpus.map(|cpus| cpus.setting())),
            ("--processes", "local.processes", self.processes.map(|count| count.setting())),
            ("--disk", "local.disk", self.disk.map(|bytes| bytes.to_string())),
        ] {
            if let Some(value) = value {
                config.set_by(flag, key, &value)?;
            }
        }
        Ok(())
    }

    fn apply_raw(&self, config: &mut Config) -> Result<(), Failure> {
        for (flag, given, instead) in [
            ("--workspace", self.workspace.is_some(), "copy it with 'podbay cp', or mount a volume with raw.volumes"),
            ("--mount", !self.mounts.is_empty(), "copy it with 'podbay cp', or mount a volume with raw.volumes"),
            ("--isolation", self.isolation.is_some(), "choose a --runtime-class"),
            ("--processes", self.processes.is_some(), "the cluster's nodes have a limit of their own (podPidsLimit)"),
            ("--memory none", self.memory == Some(Most(None)), "a pod always has a limit; set one"),
            ("--cpus none", self.cpus == Some(Most(None)), "a pod always has a limit; set one"),
            (
                "--network host",
                matches!(self.network, Some(Network::Host | Network::HostUnfenced)),
                "--set raw.block_network=false opens all of the network, raw.egress a part of it",
            ),
        ] {
            if given {
                let message = format!("{flag} is for sandboxes on this machine, and the mode is raw: {instead}");
                return Err(Failure::new(message).coded("usage"));
            }
        }
        if self.network == Some(Network::None) {
            config.set_by("--network", "raw.block_network", "true")?;
        }
        let startup = self.startup_timeout.map(|span| format!("{}ms", span.as_millis().max(1)));
        for (flag, key, value) in [
            ("--image", "raw.image", self.image.clone()),
            ("--runtime-class", "raw.runtime_class", self.runtime_class.clone()),
            ("--service-account", "raw.service_account", self.service_account.clone()),
            ("--startup-timeout", "raw.startup_timeout", startup),
            ("--memory", "raw.memory_limit", self.memory.map(|memory| memory.setting())),
            ("--cpus", "raw.cpu_limit", self.cpus.map(|cpus| cpus.setting())),
            ("--disk", "raw.ephemeral_storage_limit", self.disk.map(|bytes| bytes.to_string())),
        ] {
            if let Some(value) = value {
                config.set_by(flag, key, &value)?;
            }
        }
        // More can't be set aside than may be used, and the defaults would set aside more.
        if let Some(memory) = self.memory.and_then(|memory| memory.0).filter(|bytes| *bytes < DEFAULT_MEMORY_REQUEST)
            && !config.is_set("raw.memory_request")
        {
            config.set_by("--memory", "raw.memory_request", &memory.to_string())?;
        }
        if let Some(cpus) = self.cpus.and_then(|cpus| cpus.0).filter(|cpus| *cpus < DEFAULT_CPU_REQUEST)
            && !config.is_set("raw.cpu_request")
        {
            config.set_by("--cpus", "raw.cpu_request", &cpus.to_string())?;
        }
        Ok(())
    }

    /// The workspace's path: that of this machine's working directory where it is relative.
    fn workspace(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.workspace else { return Ok(None) };
        let failed = |error: std::io::Error| Failure::local(path, "can't be the workspace", &error);
        // A sandbox's own directory is made when the sandbox is, and has no real path before.
        if path.to_string_lossy().contains("{id}") {
            return text(std::path::absolute(path).map_err(failed)?).map(Some);
        }
        let real = std::fs::canonicalize(path).map_err(failed)?;
        match real.is_dir() {
            true => text(real).map(Some),
            false => Err(Failure::new(format!(
                "{} can't be the workspace: it isn't a directory; use --mount for a file",
                path.display()
            ))),
        }
    }

    /// The sandbox that is wanted.
    pub fn wanted(&self, leashed: bool) -> podbay::provider::Wanted {
        podbay::provider::Wanted {
            id: self.name.clone(),
            labels: self.labels.iter().cloned().collect(),
            // Times are settings, and the provider has them.
            leashed,
            ..podbay::provider::Wanted::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_said_otherwise() {
        let parsed = |writable| Ok(Mounted { host: "a/b".into(), inside: "/c".into(), writable });
        assert_eq!(mount("a/b:/c"), parsed(false));
        assert_eq!(mount("a/b:/c:ro"), parsed(false));
        assert_eq!(mount("a/b:/c:rw"), parsed(true));
        for bad in ["", "a", ":/c", "a:", "a:c", "a:/c:x", "a:/c:rw:rw"] {
            assert!(mount(bad).is_err(), "{bad}");
        }
    }
}
