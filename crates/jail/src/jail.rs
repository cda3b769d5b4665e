//! The description of a jail: plain data, validated before use.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

pub use podbay_proto::layout::{ARTEFACT_PATHS as ARTEFACTS, STATE_DIR as STATE, WORKSPACE};
use serde::{Deserialize, Serialize};

use crate::error::JailError;
use crate::limits::JailLimits;

/// The user id inside, whatever the user outside.
pub const INSIDE_UID: u32 = 1000;
/// The group id inside.
pub const INSIDE_GID: u32 = 1000;
/// The name of the user inside.
pub const INSIDE_USER: &str = "agent";

/// What a confined process can see and use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jail {
    /// An id, from which cgroups get their name and root's jails their host uid.
    pub id: String,
    /// How the process is confined.
    #[serde(default)]
    pub isolation: Isolation,
    /// The host's directory to mount at `/workspace`; by default a tmpfs that is gone with the jail.
    #[serde(default)]
    pub workspace: Option<PathBuf>,
    /// The host's directory to mount at `/run/podbay`; by default a tmpfs that is gone with the jail.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// The host's directory for temporary files, for a jail without namespaces; by default the workspace. With namespaces, a
    /// jail has a private `/tmp`.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// Other files and directories of the host. An entry for `/tmp` or one of [`ARTEFACTS`] replaces the private one.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Network access.
    #[serde(default)]
    pub network: Network,
    /// Resource limits.
    #[serde(default)]
    pub limits: JailLimits,
    /// Environment variables inside, which override the default ones.
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
    /// A jail with the host's programs and nothing else: a temporary workspace, no network, no limits.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            isolation: Isolation::default(),
            workspace: None,
            state: None,
            temporary: None,
            mounts: Vec::new(),
            network: Network::default(),
            limits: JailLimits::default(),
            env: BTreeMap::new(),
            hostname: default_hostname(),
        }
    }

    /// Checks the description.
    ///
    /// # Errors
    /// When a field is invalid; the error names it.
    pub fn validate(&self) -> Result<(), JailError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.len() > 128 || self.id.starts_with('.') || !self.id.chars().all(plain) {
            let reason = "isn't a valid id: use 1 to 128 letters, digits, '-', '_' or '.', not starting with '.'";
            return Err(JailError::invalid("id", &self.id, reason));
        }
        let label = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.hostname.is_empty() || self.hostname.len() > 63 || !self.hostname.chars().all(label) {
            let reason = "isn't a valid host name: use 1 to 63 letters, digits or '-'";
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
                let reason = "is the target of two mounts";
                return Err(JailError::invalid("mounts.inside", mount.inside.display(), reason));
            }
        }
        if self.isolation == Isolation::Landlock {
            self.validate_without_namespaces()?;
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let reason =
                    "isn't a valid environment variable: its name contains '=' or NUL, or its value contains NUL";
                return Err(JailError::invalid("env", name, reason));
            }
        }
        self.limits.validate()
    }

    fn validate_without_namespaces(&self) -> Result<(), JailError> {
        match self.mounts.iter().find(|mount| mount.host != mount.inside) {
            Some(mount) => {
                let reason = format!("must be {}: without namespaces, a mount keeps its path", mount.host.display());
                Err(JailError::invalid("mounts.inside", mount.inside.display(), reason))
            }
            None => Ok(()),
        }
    }

    /// The environment inside: defaults and the caller's variables, nothing of the host's.
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
            // Without a mount namespace there is no private /tmp.
            let temporary = self.temporary.as_ref().map(|place| place.display().to_string());
            // git fails if it can't read the system-wide settings, unless it is told to skip them.
            environment.push(("GIT_CONFIG_NOSYSTEM", "1".to_owned()));
            environment.push(("TMPDIR", temporary.unwrap_or_else(|| home.clone())));
        }
        environment.push(("HOME", home));
        // Later ones override earlier ones.
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

/// Paths that a mount must not replace, because it would break the confinement or the jail.
const RESERVED: [&str; 5] = ["/proc", "/dev", "/sys", STATE, "/etc"];

fn inside_path(path: &Path) -> Result<(), JailError> {
    host_path("mounts.inside", path)?;
    if path == Path::new("/") || path == Path::new(WORKSPACE) {
        let reason = "can't be the target of a mount; to replace /workspace, set `workspace`";
        return Err(JailError::invalid("mounts.inside", path.display(), reason));
    }
    if let Some(reserved) = RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
        let reason = format!("is reserved ({reserved} belongs to the jail): choose another path");
        return Err(JailError::invalid("mounts.inside", path.display(), reason));
    }
    Ok(())
}

/// A file or directory of the host, mounted in the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The path on the host. No component may be a symbolic link: a sandbox could put one into a shared directory, and the next
    /// sandbox would mount whatever it points to.
    pub host: PathBuf,
    /// The path inside. A missing mount point in the workspace is created, and stays there.
    pub inside: PathBuf,
    /// Whether it is writable inside.
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
    /// For machines that can't make user namespaces, from Linux 6.12 on: Landlock, seccomp, rlimits. Paths are the host's, so a
    /// workspace must be set, and mounts must have the same path inside and outside. Names, sizes and modes of the host's files
    /// and the command lines of its processes are visible, but only given files can be opened. Programs can't use UNIX sockets or
    /// shared memory.
    Landlock,
}

/// Network access of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A loopback of its own and nothing else.
    #[default]
    None,
    /// The host's network, including its loopback interface. Refused before Linux 6.12, where Landlock can't keep the jail away
    /// from the host's abstract sockets, which desktops use.
    Host,
    /// As `host`, also where the host's abstract sockets stay reachable.
    HostUnfenced,
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
}
