//! Files with set-id bits, which would give their owner's rights to whoever runs them on the host.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use podbay_jail::CommandFilter;

use crate::fallback::{self, attempt_as_command};
use crate::harness::{Case, Verdict, World, attempt};
use crate::raw::{call, refused, text};

pub(crate) const CASES: &[Case] =
    &[("no_call_makes_a_set_id_file", namespaces), ("no_call_makes_a_set_id_file_without_namespaces", landlock)];

/// `open(O_CREAT, 02644)`, a write and an ACL with `group::r-x` left the sandbox's set-gid program in root's workspace.
fn namespaces(world: &World) {
    let shared = world.directory("shared");
    furnish(&shared);
    let mut jail = world.jail();
    jail.workspace = Some(shared.clone());
    attempt(&jail, || {
        CommandFilter::Local.install().map_err(|error| error.to_string())?;
        all(Path::new("/workspace"))
    });
    check(&shared);
}

/// Without namespaces, the same worked with `fsetxattr`.
fn landlock(world: &World) {
    let jail = fallback::jail(world);
    let shared = jail.workspace.clone().unwrap();
    furnish(&shared);
    attempt_as_command(&jail, || all(&shared));
    check(&shared);
}

const HOSTS: &str = "of-the-host";

/// The host's files in the shared directory: a directory whose group new files inherit, and a file with a set-gid bit that has no
/// effect while its group can't run it.
fn furnish(shared: &Path) {
    let owner = fs::metadata(shared).unwrap();
    let (team, file) = (shared.join("team"), shared.join(HOSTS));
    fs::create_dir(&team).unwrap();
    fs::write(&file, "").unwrap();
    for (path, mode) in [(team, 0o2775), (file, 0o2664)] {
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
    }
}

fn check(shared: &Path) {
    let mut seen = 0;
    let mut left = vec![shared.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (mode, path) = (entry.metadata().unwrap().mode() & 0o7777, entry.path());
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else if entry.file_name() == HOSTS {
                assert_eq!(mode & 0o7010, 0o2000, "{} has {mode:o}", path.display());
            } else {
                assert_eq!(mode & 0o6000, 0, "{} is on the host with {mode:o}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 4, "the control: there are files");
}

/// An ACL that lets everybody run the file: `user::rwx,group::r-x,other::r-x`.
fn everybody_runs() -> Vec<u8> {
    let entries = [(0x01_u16, 7_u16), (0x04, 5), (0x20, 5)];
    let none = u32::MAX.to_le_bytes();
    let entries = entries.iter().flat_map(|(tag, access)| [tag.to_le_bytes(), access.to_le_bytes()].concat());
    let entries: Vec<u8> = entries.collect();
    let entries = entries.chunks(4).flat_map(|entry| [entry, &none].concat());
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

fn all(dir: &Path) -> Verdict {
    let named = |name: &str| CString::new(dir.join(name).as_os_str().as_bytes()).unwrap();
    fs::write(dir.join("own"), "x").unwrap();
    let file = File::open(dir.join("own")).unwrap();
    let (at, fd) = (libc::AT_FDCWD as u64, file.as_raw_fd() as u64);
    let (own, new, here) = (named("own"), named("new"), named("."));
    let making = (libc::O_CREAT | libc::O_WRONLY) as u64;
    let nameless = (libc::O_TMPFILE | libc::O_RDWR) as u64;
    for bits in [0o4755, 0o2755, 0o2644, 0o6777] {
        let regular = u64::from(libc::S_IFREG) | bits;
        let mut tries = vec![
            ("openat", libc::SYS_openat, [at, text(&new), making, bits, 0, 0]),
            ("openat of a file that is there", libc::SYS_openat, [at, text(&own), making, bits, 0, 0]),
            ("openat without a name", libc::SYS_openat, [at, text(&here), nameless, bits, 0, 0]),
            ("mknodat", libc::SYS_mknodat, [at, text(&new), regular, 0, 0, 0]),
            ("fchmod", libc::SYS_fchmod, [fd, bits, 0, 0, 0, 0]),
            ("fchmodat", libc::SYS_fchmodat, [at, text(&own), bits, 0, 0, 0]),
            ("fchmodat2", 452, [at, text(&own), bits, 0, 0, 0]),
            ("fchmodat2 of a descriptor", 452, [fd, text(c""), bits, libc::AT_EMPTY_PATH as u64, 0, 0]),
        ];
        #[cfg(target_arch = "x86_64")]
        tries.extend([
            ("open", libc::SYS_open, [text(&new), making, bits, 0, 0, 0]),
            ("open without a name", libc::SYS_open, [text(&here), nameless, bits, 0, 0, 0]),
            ("creat", libc::SYS_creat, [text(&new), bits, 0, 0, 0, 0]),
            ("mknod", libc::SYS_mknod, [text(&new), regular, 0, 0, 0, 0]),
            ("chmod", libc::SYS_chmod, [text(&own), bits, 0, 0, 0, 0]),
        ]);
        for (what, number, arguments) in tries {
            refused(&format!("{what} with {bits:o}"), number, arguments, libc::EPERM)?;
        }
        let how = [making, bits, 0];
        let arguments = [at, text(&new), how.as_ptr() as u64, size_of_val(&how) as u64, 0, 0];
        refused("openat2", libc::SYS_openat2, arguments, libc::ENOSYS)?;
    }
    refused("io_uring_setup", libc::SYS_io_uring_setup, [0; 6], libc::EPERM)?;
    attributes(dir, &named(HOSTS))?;
    attributes(dir, &own)?;
    usual_work(dir, &own)
}

/// No extended attribute can be set, whether it changes the meaning of a mode or not.
fn attributes(dir: &Path, path: &CStr) -> Verdict {
    let acl = everybody_runs();
    let file = OpenOptions::new().write(true).open(path.to_str().unwrap()).unwrap();
    (&file).write_all(b"#!/bin/sh\n").map_err(|error| error.to_string())?;
    let (at, fd, dir) = (libc::AT_FDCWD as u64, file.as_raw_fd() as u64, File::open(dir).unwrap());
    let (value, size) = (acl.as_ptr() as u64, acl.len() as u64);
    for name in [c"system.posix_acl_access", c"system.posix_acl_default", c"security.capability", c"user.x"] {
        let (name, path) = (text(name), text(path));
        // The value, its size and the flags, behind a pointer.
        let how = [value, size];
        let arguments = [at, path, 0, name, how.as_ptr() as u64, size_of_val(&how) as u64];
        refused("setxattrat", 463, arguments, libc::EOPNOTSUPP)?;
        refused("setxattr", libc::SYS_setxattr, [path, name, value, size, 0, 0], libc::EOPNOTSUPP)?;
        refused("lsetxattr", libc::SYS_lsetxattr, [path, name, value, size, 0, 0], libc::EOPNOTSUPP)?;
        for fd in [fd, dir.as_raw_fd() as u64] {
            refused("fsetxattr", libc::SYS_fsetxattr, [fd, name, value, size, 0, 0], libc::EOPNOTSUPP)?;
        }
    }
    Ok(())
}

/// The control: ordinary calls work.
fn usual_work(dir: &Path, own: &CStr) -> Verdict {
    let at = libc::AT_FDCWD as u64;
    let worked = |what: &str, number, arguments| {
        call(number, arguments).map(drop).map_err(|errno| format!("the control: {what}: errno {errno}"))
    };
    // Without O_CREAT, the mode's register holds an unrelated value.
    let arguments = [at, text(own), libc::O_RDONLY as u64, 0o6777, 0, 0];
    worked("openat with a stray mode", libc::SYS_openat, arguments)?;
    let nameless = [at, text(c"."), (libc::O_TMPFILE | libc::O_RDWR) as u64, 0o600, 0, 0];
    worked("a file without a name", libc::SYS_openat, nameless)?;
    let team = dir.join("team");
    fs::create_dir(team.join("below")).map_err(|error| error.to_string())?;
    let made: PathBuf = team.join("below/file");
    let made = OpenOptions::new().write(true).create_new(true).mode(0o777).open(made);
    made.map(drop).map_err(|error| error.to_string())
}
