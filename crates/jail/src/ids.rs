//! The user that a jail's processes are on the host.
//!
//! An ordinary user's jail runs as that user. Root's jail runs as a host uid that nobody else has, and sees the host's
//! directories through idmapped mounts.

use std::cell::RefCell;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fstat;
use rustix::process::{Gid, Pid, Uid, WaitOptions};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{FailedStep, JailError, Step};
use crate::jail::{INSIDE_GID, INSIDE_UID, Jail};
use crate::{host_mounts, sys};

/// The first host uid of root's jails. systemd's registry leaves this range free: containers' ranges end below it, and from 2^31
/// on some programs take ids for negative.
/// <https://systemd.io/UIDS-GIDS/>
const FIRST_HOST_ID: u32 = 0x7000_0000;
const HOST_IDS: u32 = 0x0fff_fffe;

/// The host ids of a jail with namespaces.
pub(crate) struct Ids {
    uid: u32,
    gid: u32,
    /// Whether the caller is root, and the ids are other ones.
    privileged: bool,
    /// A user namespace for each owner of a mounted directory: it carries an id map to `mount_setattr`.
    maps: RefCell<Vec<(u32, u32, OwnedFd)>>,
}

impl Ids {
    /// Chooses the ids for a jail of this caller.
    pub(crate) fn choose(id: &str) -> Result<Self, JailError> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid != 0 {
            return Ok(Self { uid, gid, privileged: false, maps: RefCell::default() });
        }
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
        let held = capabilities(None).step(|| "read this process's capabilities".into())?.effective;
        if !held.contains(needed) {
            return Err(JailError::Unsupported {
                what: "namespaces as root".into(),
                why: "root lacks CAP_SYS_ADMIN, CAP_SETUID or CAP_SETGID, as in most containers".into(),
                fix: format!(
                    "run as an ordinary user, or give the container these capabilities{}",
                    crate::probe::instead()
                ),
            });
        }
        let host = own_id(id)?;
        Ok(Self { uid: host, gid: host, privileged: true, maps: RefCell::default() })
    }

    /// Whether the caller is root, so that the host's directories must be opened before the clone.
    pub(crate) fn privileged(&self) -> bool {
        self.privileged
    }

    /// The jail's uid on the host.
    pub(crate) fn host_uid(&self) -> u32 {
        self.uid
    }

    /// Writes the id maps of a child that was cloned just now.
    pub(crate) fn write_maps(&self, child: Pid) -> Result<(), FailedStep> {
        if !self.privileged {
            write(child, "setgroups", "deny")?;
        }
        write(child, "uid_map", &format!("{INSIDE_UID} {} 1", self.uid))?;
        write(child, "gid_map", &format!("{INSIDE_GID} {} 1", self.gid))
    }

    /// A namespace that maps the owner `uid` and `gid` of files on disk to the jail's ids; `None` for an ordinary user, whose ids
    /// are the same outside.
    pub(crate) fn idmap(&self, uid: u32, gid: u32) -> Result<Option<OwnedFd>, FailedStep> {
        if !self.privileged {
            return Ok(None);
        }
        let copy = |fd: &OwnedFd| fd.try_clone().step(|| "copy a descriptor".into());
        let mut maps = self.maps.borrow_mut();
        if let Some((.., namespace)) = maps.iter().find(|(u, g, _)| (*u, *g) == (uid, gid)) {
            return copy(namespace).map(Some);
        }
        let namespace = mapping_namespace(&format!("{uid} {} 1", self.uid), &format!("{gid} {} 1", self.gid))?;
        let result = copy(&namespace)?;
        maps.push((uid, gid, namespace));
        Ok(Some(result))
    }
}

/// The user that the processes of a jail without namespaces are on the host.
#[derive(Debug, Clone, Copy)]
pub struct HostUser {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// Whether the caller is root, so that this is another user than the caller.
    pub switches: bool,
}

impl HostUser {
    /// An ordinary user's jail runs as that user. Root's runs as the owner of its workspace, else with a user id of its own; never
    /// as root.
    ///
    /// # Errors
    /// When root lacks a capability that this needs, or when the workspace belongs to root or can't be opened.
    pub fn of(jail: &Jail) -> Result<Self, JailError> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid != 0 {
            return Ok(Self { uid, gid, switches: false });
        }
        let unsupported = |why: String, fix: &str| JailError::Unsupported {
            what: "isolation: landlock as root".into(),
            why,
            fix: fix.into(),
        };
        let held = capabilities(None).step(|| "read this process's capabilities".into())?.effective;
        if !held.contains(NEEDED) {
            let why = format!("root lacks {:?}, and a sandbox never runs as root", NEEDED - held);
            return Err(unsupported(why, "run as an ordinary user, or give the container these capabilities"));
        }
        let Some(workspace) = &jail.workspace else {
            let own = own_id(&jail.id)?;
            return Ok(Self { uid: own, gid: own, switches: true });
        };
        // Without following links, which others may be able to change.
        let found = host_mounts::open_without_links(workspace)?;
        let owner = fstat(found).step(|| format!("stat {}", workspace.display()))?;
        match owner.st_uid {
            0 => {
                let reason = "belongs to root, and a sandbox never runs as root: chown it to the user that the sandbox \
                              should run as, or omit it for a temporary one";
                Err(JailError::invalid("workspace", workspace.display(), reason))
            }
            uid => Ok(Self { uid, gid: owner.st_gid, switches: true }),
        }
    }

    /// Switches to these ids for good.
    pub(crate) fn switch(&self) -> Result<(), FailedStep> {
        if !self.switches {
            return Ok(());
        }
        crate::privileges::drop_bounding()?;
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[]).step(|| "drop the groups".into())?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).step(|| "become the sandbox's group".into())?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).step(|| "become the sandbox's user".into())
    }
}

/// The capabilities that root needs to start a jail as another user, and to end it.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE);

/// The host uid and gid that is reserved for root's jail with this id.
///
/// # Errors
/// When this user namespace has no free id.
pub fn own_id(id: &str) -> Result<u32, JailError> {
    let own = fs::read_to_string("/proc/self/uid_map").step(|| "read /proc/self/uid_map".into())?;
    host_id(id, &own).ok_or_else(|| JailError::Unsupported {
        what: "a sandbox as root".into(),
        why: format!("this user namespace has no free user id (its map is {:?})", own.trim()),
        fix: "run as an ordinary user, or give the container a range of ids".into(),
    })
}

fn write(child: Pid, file: &str, text: &str) -> Result<(), FailedStep> {
    let path = format!("/proc/{}/{file}", child.as_raw_nonzero());
    fs::write(&path, text).step(|| format!("write {text:?} to {file} of the new process"))
}

/// Makes a user namespace that only carries these maps.
#[allow(unsafe_code)]
fn mapping_namespace(uids: &str, gids: &str) -> Result<OwnedFd, FailedStep> {
    let (gate, child_gate) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .step(|| "make a socket pair".into())?;
    // SAFETY: the child waits for the gate to close and exits; it makes only system calls.
    let child =
        match unsafe { sys::clone(libc::CLONE_NEWUSER, None) }.step(|| "make a namespace for an id map".into())? {
            sys::Cloned::Child { .. } => {
                let _ = rustix::net::shutdown(&gate, rustix::net::Shutdown::Write);
                drop(gate);
                // If the parent dies, its side of the gate closes and this ends too.
                let mut byte = [0_u8];
                let _ = rustix::io::read(&child_gate, &mut byte);
                sys::exit(0);
            }
            sys::Cloned::Parent { pid, .. } => pid,
        };
    drop(child_gate);
    let namespace = write(child, "uid_map", uids).and_then(|()| write(child, "gid_map", gids)).and_then(|()| {
        let path = format!("/proc/{}/ns/user", child.as_raw_nonzero());
        fs::File::open(&path).step(|| "open the namespace of an id map".into())
    });
    drop(gate);
    rustix::process::waitpid(Some(child), WaitOptions::empty()).step(|| "wait for the id map's process".into())?;
    Ok(namespace?.into())
}

/// A host id for root's jail: from the reserved range, or else from what this user namespace has.
fn host_id(id: &str, own_map: &str) -> Option<u32> {
    let extents = own_map.lines().filter_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|n| n.parse::<u64>().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first, first + count))
    });
    let (first, end) = extents.max_by_key(|(first, end)| end - first)?;
    let (mut low, mut high) = (u64::from(FIRST_HOST_ID), u64::from(FIRST_HOST_ID + HOST_IDS));
    if first > low || end < high {
        // The upper half of what there is, without 65534, which means «nobody» and «unmapped».
        (low, high) = (first.max(1) + (end - first.max(1)) / 2, end.min(65_534));
    }
    (high > low).then(|| (low + hash(id.as_bytes()) % (high - low)) as u32)
}

/// FNV-1a, which distributes ids well and is the same in every build. <http://www.isthe.com/chongo/tech/comp/fnv/>
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Applies an id map to a detached mount.
pub(crate) fn apply_idmap(tree: &OwnedFd, namespace: &OwnedFd) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let attr = sys::MountAttr { set: sys::IDMAP, userns: namespace.as_raw_fd() as u64, ..Default::default() };
    sys::mount_setattr(tree.as_fd(), true, attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_on_the_host_uses_the_reserved_range() {
        let ids: std::collections::BTreeSet<_> =
            (0..1000).filter_map(|n| host_id(&format!("pb-{n}"), "0 0 4294967295\n")).collect();
        assert_eq!(ids.len(), 1000, "two of a thousand sandboxes share a uid");
        assert!(ids.iter().all(|id| (FIRST_HOST_ID..FIRST_HOST_ID + HOST_IDS).contains(id)));
    }

    #[test]
    fn root_in_a_container_uses_what_the_container_has() {
        let map = "0 1000 1\n1 100000 65536\n";
        for n in 0..1000 {
            let id = host_id(&format!("pb-{n}"), map).unwrap();
            assert!((30_000..65_534).contains(&id), "{id}");
        }
        assert_eq!(host_id("pb", "0 1000 1\n"), None);
        assert_eq!(host_id("pb", ""), None);
    }
}
