//! Whether every mounted file system answers from this machine.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// File systems that answer from this machine's memory and disks. Others may wait for a network, or for a process that never
/// answers.
const LOCAL: [&str; 26] = [
    "bpf",
    "binfmt_misc",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "mqueue",
    "overlay",
    "proc",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "xfs",
];

/// Watches the mount table.
pub struct MountWatcher(Mutex<Known>);

struct Known {
    /// The kernel's table, which can be polled for changes.
    list: Option<File>,
    local: bool,
}

impl MountWatcher {
    pub fn look() -> Self {
        let mut known = Known { list: File::open("/proc/self/mountinfo").ok(), local: false };
        known.read();
        Self(Mutex::new(known))
    }

    /// Whether all mounted file systems are local.
    pub fn are_local(&self) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.have_changed() {
            known.read();
        }
        known.local
    }
}

impl Known {
    fn have_changed(&self) -> bool {
        let Some(list) = &self.list else { return false };
        let changed = PollFlags::PRI | PollFlags::ERR;
        let mut fds = [PollFd::new(list, changed)];
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(changed)
    }

    fn read(&mut self) {
        let mut text = String::new();
        let read = self.list.as_mut().map(|list| list.rewind().and_then(|()| list.read_to_string(&mut text)));
        self.local = matches!(read, Some(Ok(_))) && are_local(&text);
    }
}

/// Each line has the type behind ` - `: see proc_pid_mountinfo(5).
fn are_local(mountinfo: &str) -> bool {
    let mut types = mountinfo.lines().map(|line| line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next()));
    types.all(|kind| kind.is_some_and(|kind| LOCAL.contains(&kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_or_a_process_behind_a_mount_is_noticed() {
        let root = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n23 22 0:21 / /proc rw - proc proc rw";
        assert!(are_local(root));
        for kind in ["nfs4", "fuse.sshfs", "9p", "autofs", "cifs", "ceph"] {
            assert!(!are_local(&format!("{root}\n24 22 0:50 / /data rw,relatime - {kind} server:/x rw\n")), "{kind}");
        }
        assert!(!are_local("something else"));
    }

    #[test]
    fn what_is_known_stays_known() {
        let mounts = MountWatcher::look();
        assert_eq!(mounts.are_local(), mounts.are_local());
    }
}
