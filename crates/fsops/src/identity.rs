//! A file's identity and metadata.

// The widths of these fields differ between architectures.
#![allow(clippy::unnecessary_cast)]

use std::os::fd::AsFd;

use podbay_proto::files::{Kind, Time};
use rustix::fs::{AtFlags, FileType, Stat};

/// Identifies a file and the state of its content. Two equal ones are the same file, unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Stat> for Identity {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

pub(crate) fn kind_of(stat: &Stat) -> Kind {
    kind(FileType::from_raw_mode(stat.st_mode))
}

pub(crate) fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => Kind::Other,
    }
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(crate) fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

pub(crate) fn modified(stat: &Stat) -> Time {
    Time { secs: stat.st_mtime as i64, nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
}

/// How many hard links a file has.
pub(crate) fn links(stat: &Stat) -> u64 {
    stat.st_nlink as u64
}

/// The file's number in its file system.
pub(crate) fn inode(stat: &Stat) -> u64 {
    stat.st_ino as u64
}

/// `lstat` of a name in a directory.
pub(crate) fn lstat(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Whether both are the same file, changed or not.
pub(crate) fn same_file(one: &Stat, other: &Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}
