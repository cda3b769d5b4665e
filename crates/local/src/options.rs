//! How local sandboxes shall be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use podbay_jail::{Isolation, Jail, Limits, Mount, Network};

use crate::error::{Error, Result};
use crate::workspace;

/// In a workspace's path, this stands for the sandbox's id.
const ID: &str = "{id}";

/// How the sandboxes shall be that a [`Local`](crate::Local) makes.
#[derive(Debug, Clone)]
pub struct Options {
    /// A directory of this machine as the workspace: it is kept. Without one, the workspace is memory that is gone with the
    /// sandbox. `{id}` in it stands for the sandbox's id, and such a directory is made when it isn't there: sandboxes of
    /// several threads each have their own that way.
    pub workspace: Option<PathBuf>,
    /// More of this machine's files.
    pub mounts: Vec<Mount>,
    /// What network there is; none by default.
    pub network: Network,
    /// Environment variables of every command.
    pub env: BTreeMap<String, String>,
    /// How much a sandbox may use; [`default_limits`] unless set.
    pub limits: Limits,
    /// How it is confined.
    pub isolation: Isolation,
    /// Labels of every sandbox.
    pub labels: BTreeMap<String, String>,
    /// How long a sandbox lives.
    pub ttl: Option<Duration>,
    /// How long it may be idle.
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

/// Processes and threads of one sandbox. It stops a fork bomb while the machine still answers, and leaves room for what
/// real builds need: a Bazel or Gradle build on 64 processors has about 3,000 threads. podman's default is 2,048, and
/// systemd's was 4,915 for as long as there were 32,768 process ids.
const PROCESSES: u64 = 4096;

/// Descriptors of one process: more than compilers, browsers and file watchers open, and few enough that it runs out long
/// before the kernel's memory does.
const DESCRIPTORS: u64 = 16_384;

/// The limits of a sandbox for which nobody chose any: half of the machine's memory where a control group can limit it, and
/// as many processes and descriptors as real work needs. [`Limits::default`] has none.
pub fn default_limits() -> Limits {
    Limits {
        // In whole MiB, for people to read.
        memory: podbay_jail::machine_memory().map(|bytes| (bytes / 2) & !((1 << 20) - 1)),
        processes: Some(PROCESSES),
        descriptors: Some(DESCRIPTORS),
        ..Limits::default()
    }
}

/// Whether a sandbox's memory can be limited here. This tries it.
pub fn can_limit_memory() -> bool {
    podbay_jail::can_limit_memory()
}

impl Options {
    /// The description of a sandbox's jail. A workspace of its own is made.
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
        let path = std::path::absolute(&path).map_err(Error::home(&path, "the workspace can't be named"))?;
        if path.is_dir() {
            return Ok(path);
        }
        if text.is_none() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::home(&path, "the workspace isn't a directory; make it, or name another")(source));
        }
        // Without namespaces nothing maps root's files to the sandbox's user, so they are that user's.
        let owner = (self.isolation == Isolation::Landlock && rustix::process::geteuid().is_root())
            .then(|| podbay_jail::own_id(id).map_err(|error| Error::BadOptions(error.to_string())))
            .transpose()?;
        workspace::make(&path, owner)?;
        Ok(path)
    }
}

/// Reads a mount as people write it: `HOST`, `HOST:INSIDE` or `HOST:INSIDE:ro|rw`. It is read-only unless said otherwise.
///
/// # Errors
/// When it is none.
pub fn parse_mount(text: &str) -> Result<Mount> {
    let bad = |why: &str| Err(Error::BadOptions(format!("mount {text:?}: {why}; write HOST[:INSIDE[:ro|rw]]")));
    let parts: Vec<&str> = text.split(':').collect();
    let (host, inside, access) = match parts[..] {
        [host] => (host, host, "ro"),
        [host, access @ ("ro" | "rw")] => (host, host, access),
        [host, inside] => (host, inside, "ro"),
        [host, inside, access] => (host, inside, access),
        _ => return bad("it has too many parts"),
    };
    if !host.starts_with('/') || !inside.starts_with('/') {
        return bad("both paths have to be absolute");
    }
    match access {
        "ro" | "rw" => Ok(Mount { host: host.into(), inside: inside.into(), writable: access == "rw" }),
        _ => bad("it is either ro or rw"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_said_otherwise() {
        let read = |text: &str| parse_mount(text).map(|mount| (mount.host, mount.inside, mount.writable)).unwrap();
        assert_eq!(read("/a"), ("/a".into(), "/a".into(), false));
        assert_eq!(read("/a:rw"), ("/a".into(), "/a".into(), true));
        assert_eq!(read("/a:/b"), ("/a".into(), "/b".into(), false));
        assert_eq!(read("/a:/b:ro"), ("/a".into(), "/b".into(), false));
        assert_eq!(read("/a:/b:rw"), ("/a".into(), "/b".into(), true));
        for bad in ["", "a", "/a:b", "/a:/b:x", "/a:/b:rw:ro"] {
            assert!(parse_mount(bad).is_err(), "{bad}");
        }
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
    fn what_makes_no_sense_is_refused_with_a_word_on_it() {
        let missing = Options { workspace: Some("/nonexistent/x".into()), ..Options::default() };
        assert!(missing.jail("pb-1").unwrap_err().to_string().contains("/nonexistent/x"));
        let limits = Limits { memory: Some(7), ..Limits::default() };
        let tiny = Options { limits, ..Options::default() };
        assert!(tiny.jail("pb-1").unwrap_err().to_string().contains("limits.memory"));
        let env = Options { env: [("A=B".to_owned(), String::new())].into(), ..Options::default() };
        assert!(env.jail("pb-1").unwrap_err().to_string().contains("A=B"));
    }
}
