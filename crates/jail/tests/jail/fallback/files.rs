//! Files and their metadata: what a jail without namespaces opens and changes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;

use podbay_jail::Mount;

use super::{attempt_as_command, jail};
use crate::harness::{World, unreadable};
use crate::raw::{call, refused, text};

pub(super) fn files(world: &World) {
    let mut jail = jail(world);
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    let given = world.directory("given");
    fs::write(given.join("file"), "given").unwrap();
    jail.mounts.push(Mount { host: given.clone(), inside: given.clone(), writable: false });
    let workspace = jail.workspace.clone().unwrap();
    attempt_as_command(&jail, || {
        assert_eq!(fs::read_to_string(given.join("file")).unwrap(), "given");
        fs::write(workspace.join("made"), "x").unwrap();
        assert_eq!(std::env::current_dir().unwrap(), workspace);
        unreadable(&secret)?;
        std::os::unix::fs::symlink(&secret, workspace.join("link")).unwrap();
        unreadable(workspace.join("link"))?;
        for place in ["/etc/shadow", "/etc/ssh", "/root", "/home", "/var/log", "/run", "/sys/kernel", "/tmp", "/"] {
            unreadable(place)?;
        }
        for path in
            [secret.clone(), given.join("file"), given.join("new"), "/tmp/podbay-new".into(), "/dev/shm/x".into()]
        {
            if OpenOptions::new().write(true).create(true).truncate(true).open(&path).is_ok() {
                return Err(format!("{} was written", path.display()));
            }
        }
        let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
        if call(libc::SYS_truncate, [text(&path), 0, 0, 0, 0, 0]).is_ok() || fs::remove_file(&secret).is_ok() {
            return Err("the secret was cut off or removed".into());
        }
        if fs::hard_link(&secret, workspace.join("hard")).is_ok()
            || fs::rename(&secret, workspace.join("moved")).is_ok()
        {
            return Err("the secret was linked or moved in".into());
        }
        Ok(())
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "host");
}

pub(super) fn metadata(world: &World) {
    let jail = jail(world);
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::metadata(&secret).unwrap();
    let workspace = jail.workspace.clone().unwrap();
    attempt_as_command(&jail, || {
        let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
        let (at, path) = (libc::AT_FDCWD as u64, text(&path));
        refused("fchmodat", libc::SYS_fchmodat, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchmodat2", 452, [at, path, 0o777, 0, 0, 0], libc::EPERM)?;
        refused("fchownat", libc::SYS_fchownat, [at, path, 0, 0, 0, 0], libc::EPERM)?;
        // The filter and the kernel refuse with different error numbers.
        let errno = if world.root { libc::EACCES } else { libc::EPERM };
        refused("utimensat", libc::SYS_utimensat, [at, path, 0, 0, 0, 0], errno)?;
        refused("setxattr", libc::SYS_setxattr, [path, text(c"user.x"), path, 1, 0, 0], libc::EOPNOTSUPP)?;
        let own = File::create(workspace.join("own")).unwrap();
        own.set_permissions(fs::Permissions::from_mode(0o755)).map_err(|e| format!("the control: fchmod: {e}"))?;
        let by_path = fs::set_permissions(workspace.join("own"), fs::Permissions::from_mode(0o700));
        if by_path.is_ok() != world.root {
            return Err(format!("chmod of one's own file: {by_path:?}"));
        }
        let set_id = fs::set_permissions(workspace.join("own"), fs::Permissions::from_mode(0o4755));
        if set_id.is_ok() || own.set_permissions(fs::Permissions::from_mode(0o4755)).is_ok() {
            return Err("a set-id bit was set".into());
        }
        refused("shmget", libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0], libc::EPERM)?;
        refused("setpriority", libc::SYS_setpriority, [2, 0, 19, 0, 0, 0], libc::EPERM)?;
        // A descriptor of a path can't be used to change the mode either.
        let held = rustix::fs::open(&secret, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        if held.is_ok_and(|held| rustix::fs::fchmod(&held, rustix::fs::Mode::from_raw_mode(0o777)).is_ok()) {
            return Err("fchmod of a path worked".into());
        }
        Ok(())
    });
    let after = fs::metadata(&secret).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}
