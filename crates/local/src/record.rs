//! A sandbox as its directory tells of it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use podbay_client::provider::Phase;
use podbay_jail::supervision::{CONTROL, Identity, SOCKET, SPEC, STARTED, Spec, Started};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Error, Result};

/// The longest path that a unix socket can have.
const SOCKET_PATH: usize = 107;

/// What is known of a sandbox from outside. None of it can be changed from inside.
///
/// It stays with the directory that it was read from: should that be replaced by another sandbox of the same name, nothing
/// that is done here touches the other.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Where the directory was found.
    pub(crate) dir: PathBuf,
    pub(crate) identity: Identity,
    handle: OwnedFd,
    pub(crate) spec: Option<Spec>,
    pub(crate) started: Option<Started>,
}

impl Record {
    /// Reads one; nothing when there is no such sandbox.
    pub(crate) fn read(sandboxes: &Path, id: &str) -> Result<Option<Self>> {
        let dir = sandboxes.join(id);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(&dir, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(Error::home(&dir, "the sandbox can't be looked at")(error.into())),
        };
        let root = root(&handle);
        let identity = Identity::of(&root.join(".")).map_err(Error::home(&dir, "it can't be identified"))?;
        let (spec, started) = (read_json(&root, SPEC)?, read_json(&root, STARTED)?);
        Ok(Some(Self { id: id.to_owned(), dir, identity, handle, spec, started }))
    }

    /// A path to its directory, wherever that is by now; to be used while this value lives.
    pub(crate) fn root(&self) -> PathBuf {
        root(&self.handle)
    }

    /// Whether it still is at its place.
    pub(crate) fn is_in_place(&self) -> bool {
        Identity::of(&self.dir).is_ok_and(|now| now == self.identity)
    }

    /// What it is doing.
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

/// The file, when it is there: a sandbox can go while one looks.
fn read_json<T: serde::de::DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>> {
    let path = dir.join(name);
    match fs::read(&path) {
        // One that another version wrote says nothing to this one, but the sandbox can still be deleted.
        Ok(json) => Ok(serde_json::from_slice(&json)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a sandbox's record can't be read"))
            .ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::home(path, "it can't be read")(error)),
    }
}

/// A sandbox lives as long as its podbayd, and that as long as its socket is open.
pub(crate) fn is_alive(dir: &Path) -> bool {
    let path = dir.join(SOCKET);
    let connected = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .and_then(|socket| rustix::net::connect(&socket, &SocketAddrUnix::new(path)?));
    // A queue that is full is the queue of someone who lives.
    matches!(connected, Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Refuses a name that can't be one.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edges = [name.bytes().next(), name.bytes().last()];
    match name.len() <= 63 && name.bytes().all(legal) && edges.iter().all(|edge| edge.is_some_and(|b| b != b'-')) {
        true => Ok(()),
        false => Err(Error::BadName(name.chars().take(100).collect())),
    }
}

/// Refuses a directory whose sockets couldn't be reached.
pub(crate) fn check_length(dir: &Path) -> Result<()> {
    let longest = dir.join(CONTROL);
    match longest.as_os_str().len() <= SOCKET_PATH {
        true => Ok(()),
        false => Err(Error::BadOptions(format!(
            "{} is longer than the {SOCKET_PATH} bytes that a socket's path can have; \
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
