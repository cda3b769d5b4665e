//! Options of local sandboxes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use podbay_client::mount::MountSpec;
use podbay_jail::{Isolation, Jail, JailLimits, Mount, Network};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::workspace;

/// Replaced by the sandbox's id in a workspace's path.
const ID: &str = "{id}";

/// Options of the sandboxes that a [`Local`](crate::Local) creates.
///
/// The names of its fields, and of those of [`JailLimits`], are those of the settings `local.*`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A directory of this machine to use as the workspace; it outlives the sandbox. Without one, the workspace is temporary.
    /// `{id}` in the path is replaced by the sandbox's id, and the directory is created if it is missing, so that every sandbox
    /// gets a workspace of its own.
    pub workspace: Option<PathBuf>,
    /// Other files and directories of this machine.
    pub mounts: Vec<Mount>,
    /// Network access; none by default.
    pub network: Network,
    /// Environment variables of every command.
    pub env: BTreeMap<String, String>,
    /// Resource limits; [`default_limits`] by default.
    pub limits: JailLimits,
    /// How sandboxes are confined.
    pub isolation: Isolation,
    /// Labels of every sandbox.
    pub labels: BTreeMap<String, String>,
    /// How long a sandbox lives; unlimited by default.
    pub ttl: Option<Duration>,
    /// How long a sandbox may go unused before it ends; unlimited by default.
    pub idle_ttl: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workspace: None,
            mounts: Vec::new(),
            network: Network::default(),
            env: BTreeMap::new(),
            limits: default_limits(),
            isolation: Isolation::default(),
            labels: BTreeMap::new(),
            ttl: None,
            idle_ttl: None,
        }
    }
}

/// Processes and threads of one sandbox. The limit stops a fork bomb while the machine still responds, and leaves enough for
/// real builds: a Bazel or Gradle build on 64 processors has about 3,000 threads. podman's default is 2,048; systemd's was
/// 4,915 when the kernel had 32,768 process ids.
const PROCESSES: u64 = 4096;

/// Open descriptors of one process: more than compilers, browsers and file watchers need, and few enough that a process runs
/// out of them long before the kernel runs out of memory.
const DESCRIPTORS: u64 = 16_384;

/// The limits of a sandbox unless others are set: half of the machine's memory (where a control group can enforce it), and as
/// many processes and descriptors as real work needs. [`JailLimits::default`] sets none.
pub fn default_limits() -> JailLimits {
    // Half a dozen files have to be read for it, and it is asked for more than once.
    static MEMORY: LazyLock<Option<u64>> = LazyLock::new(podbay_jail::machine_memory);
    JailLimits {
        // In whole MiB, which are easier to read.
        memory: MEMORY.map(|bytes| (bytes / 2) & !((1 << 20) - 1)),
        processes: Some(PROCESSES),
        descriptors: Some(DESCRIPTORS),
        ..JailLimits::default()
    }
}

/// Whether a sandbox's memory can be limited on this machine, found out by creating a control group.
pub fn can_limit_memory() -> bool {
    podbay_jail::can_limit_memory()
}

impl Options {
    /// The jail of a sandbox with this id. Creates its workspace if the path contains `{id}`.
    pub(crate) fn jail(&self, id: &str) -> Result<Jail> {
        let jail = Jail {
            workspace: self.workspace.as_deref().map(|path| self.workspace(path, id)).transpose()?,
            mounts: self.mounts.clone(),
            network: self.network,
            limits: self.limits.clone(),
            env: self.env.clone(),
            isolation: self.isolation,
            ..Jail::new(id)
        };
        jail.validate().map_err(|error| Error::BadOptions(error.to_string()))?;
        Ok(jail)
    }

    fn workspace(&self, path: &Path, id: &str) -> Result<PathBuf> {
        let text = path.to_str().filter(|text| text.contains(ID));
        let path = text.map_or_else(|| path.to_owned(), |text| PathBuf::from(text.replace(ID, id)));
        let path =
            std::path::absolute(&path).map_err(Error::home(&path, "can't make the workspace's path absolute"))?;
        if path.is_dir() {
            return Ok(path);
        }
        if text.is_none() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::home(&path, "the workspace isn't a directory; create it, or choose another")(source));
        }
        // Without namespaces no id map gives the sandbox's user access to root's files, so that user must own them.
        let owner = (self.isolation == Isolation::Landlock && rustix::process::geteuid().is_root())
            .then(|| podbay_jail::own_id(id).map_err(|error| Error::BadOptions(error.to_string())))
            .transpose()?;
        workspace::make(&path, owner)?;
        Ok(path)
    }
}

/// Reads a mount such as `/data:/data:rw` (see [`MountSpec`]). The host's path has to be absolute.
///
/// # Errors
/// When it isn't a mount.
pub fn parse_mount(text: &str) -> Result<Mount> {
    let MountSpec { host, inside, writable } = text.parse().map_err(Error::BadOptions)?;
    match host.is_absolute() {
        true => Ok(Mount { host, inside, writable }),
        false => Err(Error::BadOptions(format!("mount {text:?}: the host's path has to be absolute"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_needs_an_absolute_path_on_the_host() {
        let mount = parse_mount("/a:/b:rw").unwrap();
        assert_eq!((mount.host, mount.inside, mount.writable), ("/a".into(), "/b".into(), true));
        assert!(parse_mount("a:/b").unwrap_err().to_string().contains("absolute"));
    }

    #[test]
    fn a_workspace_can_carry_the_id() {
        let home = tempfile::tempdir().unwrap();
        let options = Options { workspace: Some(home.path().join("w/{id}")), ..Options::default() };
        let jail = options.jail("pb-1").unwrap();
        assert_eq!(jail.workspace, Some(home.path().join("w/pb-1")));
        assert!(home.path().join("w/pb-1").is_dir());
    }

    #[test]
    fn invalid_options_are_named_in_the_error() {
        let missing = Options { workspace: Some("/nonexistent/x".into()), ..Options::default() };
        assert!(missing.jail("pb-1").unwrap_err().to_string().contains("/nonexistent/x"));
        let limits = JailLimits { memory: Some(7), ..JailLimits::default() };
        let tiny = Options { limits, ..Options::default() };
        assert!(tiny.jail("pb-1").unwrap_err().to_string().contains("limits.memory"));
        let env = Options { env: [("A=B".to_owned(), String::new())].into(), ..Options::default() };
        assert!(env.jail("pb-1").unwrap_err().to_string().contains("A=B"));
    }
}
