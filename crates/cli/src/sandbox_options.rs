//! The options of a sandbox that is to be made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::quantity;

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

    /// What it can reach: nothing, or whatever this machine can
    #[arg(long, value_enum, default_value_t = Network::None)]
    network: Network,

    /// The most memory, as in 512M
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    memory: Option<u64>,

    /// The most processors, as in 1.5
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<f64>,

    /// The most processes and threads at once
    #[arg(long, value_name = "NUMBER")]
    processes: Option<u64>,

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

    /// How it is kept apart. 'landlock', for machines that can't make user namespaces, isn't ready and is refused
    #[arg(long, value_enum, default_value_t = Isolation::Namespaces)]
    isolation: Isolation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    /// A loopback of its own, nothing else
    None,
    /// This machine's network, with all that listens on it
    Host,
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
    /// As the local provider understands them. Relative paths are those of this machine's working directory.
    pub fn local(&self) -> Result<podbay::local::Options, Failure> {
        let mut mounts = Vec::with_capacity(self.mounts.len());
        for Mounted { host, inside, writable } in &self.mounts {
            // The sandbox refuses links in the path: this one is the user's own and means what it says now.
            let host = std::fs::canonicalize(host)
                .map_err(|error| Failure::local(host, "can't be mounted", &error).coded("local_file"))?;
            mounts.push(podbay::local::Mount { host, inside: inside.clone(), writable: *writable });
        }
        Ok(podbay::local::Options {
            workspace: self.workspace()?,
            mounts,
            network: match self.network {
                Network::None => podbay::local::Network::None,
                Network::Host => podbay::local::Network::Host,
            },
            env: self.env.iter().cloned().collect(),
            limits: podbay::local::Limits {
                memory: self.memory,
                cpu: self.cpus,
                processes: self.processes,
                disk: self.disk,
                ..Default::default()
            },
            isolation: match self.isolation {
                Isolation::Namespaces => podbay::local::Isolation::Namespaces,
                Isolation::Landlock => podbay::local::Isolation::Landlock,
            },
            labels: BTreeMap::new(),
            ttl: self.ttl,
            idle_ttl: self.idle_ttl,
        })
    }

    fn workspace(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(path) = &self.workspace else { return Ok(None) };
        let real =
            std::fs::canonicalize(path).map_err(|error| Failure::local(path, "can't be the workspace", &error))?;
        match real.is_dir() {
            true => Ok(Some(real)),
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
            ttl: self.ttl,
            idle_ttl: self.idle_ttl,
            leashed,
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
