//! The description of a jail: plain data, refused where it makes no sense.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::JailError;

/// The user inside, whatever the user outside.
pub const INSIDE_UID: u32 = 1000;
/// The group inside.
pub const INSIDE_GID: u32 = 1000;
/// The name of the user inside.
pub const INSIDE_USER: &str = "agent";
/// Where the workspace is inside, and the home of [`INSIDE_USER`].
pub const WORKSPACE: &str = "/workspace";
/// podbayd's own directory inside.
pub const STATE: &str = "/run/podbay";
/// Where the agent frameworks write; always there, always writable.
pub const ARTEFACTS: [&str; 3] = ["/large_tool_results", "/conversation_history", "/blobs"];

/// What a confined process may see and use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jail {
    /// The sandbox's id. Root's sandboxes get their host uid from it, cgroups their name.
    pub id: String,
    /// How the process is confined.
    #[serde(default)]
    pub isolation: Isolation,
    /// The host's directory bound at `/workspace`; without one, memory that is gone with the jail.
    #[serde(default)]
    pub workspace: Option<PathBuf>,
    /// The host's directory bound at `/run/podbay`; without one, memory that is gone with the jail.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// The host's directory for temporary files of a jail without namespaces; without one, the workspace. Namespaces have
    /// a `/tmp` of their own.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// More of the host, where the caller wants it. An entry for `/tmp` or one of the artefact
    /// directories replaces the private one.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// What network there is.
    #[serde(default)]
    pub network: Network,
    /// How much it may use.
    #[serde(default)]
    pub limits: Limits,
    /// Environment variables inside, beside and instead of ours.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The host name inside.
    #[serde(default = "default_hostname")]
    pub hostname: String,
}

fn default_hostname() -> String {
    "podbay".to_owned()
}

impl Jail {
    /// A jail with nothing of the host's but its programs: temporary workspace, no network, no limits.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            isolation: Isolation::default(),
            workspace: None,
            state: None,
            temporary: None,
            mounts: Vec::new(),
            network: Network::default(),
            limits: Limits::default(),
            env: BTreeMap::new(),
            hostname: default_hostname(),
        }
    }

    /// Refuses what makes no sense, before anything is touched.
    pub fn validate(&self) -> Result<(), JailError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.len() > 128 || self.id.starts_with('.') || !self.id.chars().all(plain) {
            let reason = "is no sandbox id: 1 to 128 letters, digits, '-', '_' or '.', not starting with '.'";
            return Err(JailError::invalid("id", &self.id, reason));
        }
        let label = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.hostname.is_empty() || self.hostname.len() > 63 || !self.hostname.chars().all(label) {
            let reason = "is no host name: 1 to 63 letters, digits or '-'";
            return Err(JailError::invalid("hostname", &self.hostname, reason));
        }
        for (field, path) in [("workspace", &self.workspace), ("state", &self.state), ("temporary", &self.temporary)] {
            if let Some(path) = path {
                host_path(field, path)?;
            }
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            host_path("mounts.host", &mount.host)?;
            inside_path(&mount.inside)?;
            if self.mounts[..index].iter().any(|other| other.inside == mount.inside) {
                let reason = "is there twice: give each place inside once";
                return Err(JailError::invalid("mounts.inside", mount.inside.display(), reason));
            }
        }
        if self.isolation == Isolation::Landlock {
            self.validate_without_namespaces()?;
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let reason = "can't be an environment variable: '=' or NUL in its name, or NUL in its value";
                return Err(JailError::invalid("env", name, reason));
            }
        }
        self.limits.validate()
    }

    fn validate_without_namespaces(&self) -> Result<(), JailError> {
        match self.mounts.iter().find(|mount| mount.host != mount.inside) {
            Some(mount) => {
                let reason = format!("must be {} too: without namespaces paths are the host's", mount.host.display());
                Err(JailError::invalid("mounts.inside", mount.inside.display(), reason))
            }
            None => Ok(()),
        }
    }

    /// The environment inside: ours, the caller's, and nothing of the host's.
    pub(crate) fn environment(&self) -> Vec<(&str, String)> {
        let home = match (self.isolation, &self.workspace) {
            (Isolation::Landlock, Some(workspace)) => workspace.display().to_string(),
            _ => WORKSPACE.to_owned(),
        };
        let mut environment = vec![
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("USER", INSIDE_USER.to_owned()),
            ("LOGNAME", INSIDE_USER.to_owned()),
            ("SHELL", "/bin/sh".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "dumb".to_owned()),
        ];
        if self.isolation == Isolation::Landlock {
            // There is no private /tmp without a mount namespace.
            let temporary = self.temporary.as_ref().map(|place| place.display().to_string());
            // A system-wide file that can't be read stops git; one that isn't asked for doesn't.
            environment.push(("GIT_CONFIG_NOSYSTEM", "1".to_owned()));
            environment.push(("TMPDIR", temporary.unwrap_or_else(|| home.clone())));
        }
        environment.push(("HOME", home));
        // Set one after the other, so the caller's come out on top.
        environment.extend(self.env.iter().map(|(name, value)| (name.as_str(), value.clone())));
        environment
    }
}

fn host_path(field: &'static str, path: &Path) -> Result<(), JailError> {
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match path.is_absolute() && plain {
        true => Ok(()),
        false => Err(JailError::invalid(field, path.display(), "must be absolute and without '..'")),
    }
}

/// Places that are the jail's own: a mount there would undo the confinement or break the inside.
const RESERVED: [&str; 5] = ["/proc", "/dev", "/sys", STATE, "/etc"];

fn inside_path(path: &Path) -> Result<(), JailError> {
    host_path("mounts.inside", path)?;
    if path == Path::new("/") || path == Path::new(WORKSPACE) {
        let reason = "can't be mounted over; `workspace` sets what is at /workspace";
        return Err(JailError::invalid("mounts.inside", path.display(), reason));
    }
    if let Some(reserved) = RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
        let reason = format!("is below {reserved}, which is the jail's own; choose another place");
        return Err(JailError::invalid("mounts.inside", path.display(), reason));
    }
    Ok(())
}

/// One more piece of the host's file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The file or directory on the host. No component may be a symbolic link: one that a sandbox
    /// put into a shared directory would lead the next start anywhere on the host.
    pub host: PathBuf,
    /// Where it is inside. A place below the workspace that is missing is made, and stays there.
    pub inside: PathBuf,
    /// Whether it can be written inside.
    #[serde(default)]
    pub writable: bool,
}

/// How a process is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Namespaces, seccomp, Landlock where the kernel has it, and limits.
    #[default]
    Namespaces,
    /// For machines that can't make user namespaces, from Linux 6.12 on: Landlock, seccomp, rlimits. Paths are the
    /// host's: a workspace must be given, mounts must have the same place inside and outside. Names, sizes and modes of
    /// the host's files and the command lines of its processes can be seen; what isn't given can't be opened. Programs
    /// can't have UNIX sockets or shared memory.
    Landlock,
}

/// What network there is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A loopback of its own and nothing else.
    #[default]
    None,
    /// The host's network, loopback included. Refused where Landlock can't keep the sandbox from
    /// the host's abstract sockets (desktops listen there): before Linux 6.12.
    Host,
    /// As `host`, also where abstract sockets can't be fenced off.
    HostUnfenced,
}

/// How much a jail may use. Which limits are in force, and by what, is in
/// [`Jailed::limits`](crate::Jailed::limits).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory, swap included.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Processors: 1.5 is one and a half.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Processes and threads at the same time.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Bytes on disk: of everything temporary together, else of each file.
    #[serde(default)]
    pub disk: Option<u64>,
    /// Open descriptors of one process.
    #[serde(default)]
    pub descriptors: Option<u64>,
}

impl Limits {
    fn validate(&self) -> Result<(), JailError> {
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
                    format!("is too little to run anything: at least {least}"),
                ));
            }
        }
        match self.cpu {
            Some(cpu) if !cpu.is_finite() || cpu < 0.01 => {
                Err(JailError::invalid("limits.cpu", cpu, "is no number of processors: at least 0.01"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_refused() {
        let jail: Jail = serde_json::from_str(r#"{"id": "pb-x", "network": "host", "limits": {"cpu": 1.5}}"#).unwrap();
        assert_eq!((jail.network, jail.limits.cpu, jail.hostname.as_str()), (Network::Host, Some(1.5), "podbay"));
        for wrong in [r#"{"id": "x", "netwrok": "none"}"#, r#"{"id": "x", "limits": {"ram": 1}}"#, r#"{}"#] {
            assert!(serde_json::from_str::<Jail>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_that_are_the_jails_own_are_refused() {
        for inside in
            ["/", "/proc", "/proc/x", "/dev/null", "/sys", "/etc/passwd", "/run/podbay", "/workspace", "x", "/a/../b"]
        {
            let mut jail = Jail::new("pb-x");
            jail.mounts.push(Mount { host: "/usr".into(), inside: inside.into(), writable: false });
            assert!(jail.validate().is_err(), "{inside}");
        }
        for inside in ["/data", "/tmp", "/blobs", "/workspace/x", "/run/other", "/procx"] {
            let mut jail = Jail::new("pb-x");
            jail.mounts.push(Mount { host: "/usr".into(), inside: inside.into(), writable: false });
            assert!(jail.validate().is_ok(), "{inside}");
        }
    }

    #[test]
    fn limits_that_let_nothing_run_are_refused() {
        let with = |limits| Jail { limits, ..Jail::new("pb-x") }.validate();
        assert!(with(Limits { memory: Some(1024), ..Limits::default() }).is_err());
        assert!(with(Limits { processes: Some(1), ..Limits::default() }).is_err());
        for cpu in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(with(Limits { cpu: Some(cpu), ..Limits::default() }).is_err(), "{cpu}");
        }
        assert!(with(Limits { cpu: Some(0.5), memory: Some(64 << 20), ..Limits::default() }).is_ok());
    }
}
