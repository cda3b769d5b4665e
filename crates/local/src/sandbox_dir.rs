//! What a sandbox's directory says about the sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use podbay_client::provider::Phase;
use podbay_supervision::{CONTROL, DirectoryIdentity, SOCKET, SPEC, STARTED, Spec, Started};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Error, Result};

/// The longest path of a unix socket, in bytes.
const SOCKET_PATH: usize = 107;

/// A sandbox's directory, held open, and what its files say. The sandbox itself can't change any of it.
///
/// This value always refers to the directory that it was read from, also when another sandbox of the same name has replaced it.
#[derive(Debug)]
pub(crate) struct SandboxDir {
    pub(crate) id: String,
    /// The path at which the directory was found.
    pub(crate) dir: PathBuf,
    pub(crate) identity: DirectoryIdentity,
    handle: OwnedFd,
    pub(crate) spec: Option<Spec>,
    pub(crate) started: Option<Started>,
}

impl SandboxDir {
    /// Reads a sandbox's directory; `None` when there is no such sandbox.
    pub(crate) fn read(sandboxes: &Path, id: &str) -> Result<Option<Self>> {
        let dir = sandboxes.join(id);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(&dir, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(Error::home(&dir, "can't open the sandbox's directory")(error.into())),
        };
        let root = root(&handle);
        let identity =
            DirectoryIdentity::of(&root.join(".")).map_err(Error::home(&dir, "can't stat the sandbox's directory"))?;
        let (spec, started) = (read_json(&root, SPEC)?, read_json(&root, STARTED)?);
        Ok(Some(Self { id: id.to_owned(), dir, identity, handle, spec, started }))
    }

    /// A path to the directory, wherever it is by now. Valid while this value lives.
    pub(crate) fn root(&self) -> PathBuf {
        root(&self.handle)
    }

    /// Whether the directory is still at its path.
    pub(crate) fn is_in_place(&self) -> bool {
        DirectoryIdentity::of(&self.dir).is_ok_and(|now| now == self.identity)
    }

    /// The sandbox's phase, by its socket and by what its supervisor has written.
    pub(crate) fn phase(&self) -> Phase {
        match (is_alive(&self.root()), &self.started) {
            (true, Some(_)) => Phase::Running,
            (true, None) => Phase::Pending,
            (false, _) => Phase::Terminated,
        }
    }
}

fn root(handle: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
}

/// The contents of a file, if it exists: a sandbox can go away while its directory is read.
fn read_json<T: serde::de::DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>> {
    let path = dir.join(name);
    match fs::read(&path) {
        // Another version of Podbay may have written it. The sandbox can still be deleted.
        Ok(json) => Ok(serde_json::from_slice(&json)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "ignoring a file of a sandbox that this version can't parse"))
            .ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::home(path, "can't read the file")(error)),
    }
}

/// Whether a sandbox is alive: its podbayd keeps the socket open for as long as it runs.
pub(crate) fn is_alive(dir: &Path) -> bool {
    let path = dir.join(SOCKET);
    let connected = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .and_then(|socket| rustix::net::connect(&socket, &SocketAddrUnix::new(path)?));
    // A full queue has a living process behind it.
    matches!(connected, Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Checks that a name can be a sandbox's.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edges = [name.bytes().next(), name.bytes().last()];
    match name.len() <= 63 && name.bytes().all(legal) && edges.iter().all(|edge| edge.is_some_and(|b| b != b'-')) {
        true => Ok(()),
        false => Err(Error::BadName(name.chars().take(100).collect())),
    }
}

/// Checks that the directory's path leaves room for its sockets' names.
pub(crate) fn check_length(dir: &Path) -> Result<()> {
    let longest = dir.join(CONTROL);
    match longest.as_os_str().len() <= SOCKET_PATH {
        true => Ok(()),
        false => Err(Error::BadOptions(format!(
            "the socket's path {} is too long: at most {SOCKET_PATH} bytes are possible; \
             use a shorter name, or set PODBAY_HOME to a shorter path",
            longest.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "pb-0", "0", &"x".repeat(63)] {
            check_name(good).unwrap();
        }
        for bad in ["", "-a", "a-", "A", "a/b", "..", "a.b", "a b", "ä", &"x".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
