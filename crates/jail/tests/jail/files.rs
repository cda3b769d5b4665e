//! Attacks on the host's files and mounts.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};

use podbay_jail::Mount;

use crate::harness::{Case, Verdict, World, attempt, skip, unreadable};
use crate::raw::{call, refused, text};

pub(crate) const CASES: &[Case] = &[
    ("the_hosts_files_are_not_there", hosts_files),
    ("the_system_is_read_only", system_is_read_only),
    ("every_mount_is_as_closed_as_it_can_be", mount_flags),
    ("mounts_cannot_be_changed", mounts),
    ("read_only_mounts_stay_so", read_only_mounts),
    ("chroot_is_no_way_out", chroot),
    ("device_nodes_cannot_be_made", devices),
    ("file_handles_are_no_way_out", handles),
    ("setuid_files_give_nothing", setuid_files),
    ("files_belong_to_the_directorys_owner", ownership),
    ("artefact_places_are_writable", artefacts),
];

fn hosts_files(world: &World) {
    let secret = world.scratch.join("secret");
    fs::write(&secret, "host").unwrap();
    assert!(File::open(&secret).is_ok(), "the control: outside it can be read");
    attempt(&world.jail(), || {
        for place in
            ["/etc/shadow", "/etc/gshadow", "/etc/ssh", "/root", "/home", "/opt", "/var", "/sys", "/srv", "/mnt"]
        {
            if Path::new(place).exists() {
                return Err(format!("{place} is there"));
            }
        }
        unreadable(&secret)?;
        for way in ["/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../..", "/proc/1/cwd/.."] {
            unreadable(format!("{way}{}", secret.display()))?;
        }
        let run: Vec<_> = fs::read_dir("/run").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        if run != ["podbay"] {
            return Err(format!("/run has {run:?}"));
        }
        Ok(())
    });
}

fn system_is_read_only(world: &World) {
    attempt(&world.jail(), || {
        for place in ["/x", "/usr/x", "/bin/x", "/lib/x", "/etc/x", "/dev/x", "/run/x", "/etc/ssl/x", "/proc/x"] {
            if File::create(place).is_ok() {
                return Err(format!("{place} was made"));
            }
        }
        for place in ["/etc/passwd", "/etc/hosts", "/usr/bin/env", "/etc/ld.so.cache"] {
            if Path::new(place).exists() && OpenOptions::new().append(true).open(place).is_ok() {
                return Err(format!("{place} can be written"));
            }
            if fs::set_permissions(place, fs::Permissions::from_mode(0o777)).is_ok() {
                return Err(format!("{place} changed its mode"));
            }
        }
        Ok(())
    });
}

/// Reads the mount flags: a missing one would go unnoticed in an attack, because ids and Landlock stop it too.
fn mount_flags(world: &World) {
    let (given, shared) = (world.directory("given"), world.directory("shared"));
    let mut jail = world.jail();
    jail.workspace = Some(world.directory("work"));
    jail.mounts.push(Mount { host: given, inside: "/given".into(), writable: false });
    jail.mounts.push(Mount { host: shared, inside: "/shared".into(), writable: true });
    attempt(&jail, || {
        let writable = ["/proc", "/tmp", "/dev/shm", "/dev/pts", "/workspace", "/run/podbay", "/shared"];
        let mut seen = 0;
        for line in fs::read_to_string("/proc/self/mountinfo").unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (place, flags, kind) = (words[4], words[5], line.split(" - ").nth(1).unwrap());
            let has = |flag: &str| flags.split(',').any(|known| known == flag);
            let device = kind.starts_with("devtmpfs") || kind.starts_with("devpts");
            let open = writable.contains(&place) || podbay_jail::ARTEFACTS.contains(&place) || device;
            if !has("nosuid") || !(has("nodev") || device) || !(has("ro") || open) || line.contains("shared:") {
                return Err(format!("too open: {line}"));
            }
            if has("ro") && writable.contains(&place) {
                return Err(format!("the control: it can be written: {line}"));
            }
            seen += 1;
        }
        if seen > 20 { Ok(()) } else { Err(format!("the control: only {seen} mounts")) }
    });
}

fn mounts(world: &World) {
    attempt(&world.jail(), || {
        let (usr, none, kind) = (c"/usr", c"none", c"tmpfs");
        let remount = libc::MS_REMOUNT | libc::MS_BIND;
        let [usr, none, kind, tmp] = [text(usr), text(none), text(kind), text(c"/tmp")];
        let at = libc::AT_FDCWD as u64;
        let tries = [
            ("remount /usr rw", libc::SYS_mount, [none, usr, 0, remount, 0, 0]),
            ("mount a tmpfs", libc::SYS_mount, [none, tmp, kind, 0, 0, 0]),
            ("bind", libc::SYS_mount, [usr, tmp, 0, libc::MS_BIND, 0, 0]),
            ("move", libc::SYS_mount, [usr, tmp, 0, libc::MS_MOVE, 0, 0]),
            ("umount /usr", libc::SYS_umount2, [usr, libc::MNT_DETACH as u64, 0, 0, 0, 0]),
            ("umount /proc/sys", libc::SYS_umount2, [text(c"/proc/sys"), libc::MNT_DETACH as u64, 0, 0, 0, 0]),
            ("fsopen", libc::SYS_fsopen, [kind, 0, 0, 0, 0, 0]),
            ("open_tree", libc::SYS_open_tree, [at, usr, 1, 0, 0, 0]),
            ("move_mount", libc::SYS_move_mount, [at, usr, at, tmp, 0, 0]),
            ("mount_setattr", libc::SYS_mount_setattr, [at, usr, 0, 0, 0, 0]),
            ("fspick", libc::SYS_fspick, [at, usr, 0, 0, 0, 0]),
            ("pivot_root", libc::SYS_pivot_root, [tmp, tmp, 0, 0, 0, 0]),
            ("mount a cgroup for its release agent", libc::SYS_mount, [none, tmp, text(c"cgroup"), 0, 0, 0]),
        ];
        tries.into_iter().try_for_each(|(what, number, arguments)| refused(what, number, arguments, libc::EPERM))
    });
}

fn read_only_mounts(world: &World) {
    let given = world.directory("given");
    fs::write(given.join("file"), "host").unwrap();
    let shared = world.directory("shared");
    let mut jail = world.jail();
    jail.mounts.push(Mount { host: given.clone(), inside: "/given".into(), writable: false });
    jail.mounts.push(Mount { host: given.join("file"), inside: "/one/file".into(), writable: false });
    jail.mounts.push(Mount { host: shared.clone(), inside: "/workspace/shared".into(), writable: true });
    attempt(&jail, || {
        assert_eq!(fs::read_to_string("/given/file").unwrap(), "host");
        assert_eq!(fs::read_to_string("/one/file").unwrap(), "host");
        fs::write("/workspace/shared/made", "inside").unwrap();
        for path in ["/given/new", "/given/file", "/one/file"] {
            if OpenOptions::new().write(true).create(true).truncate(false).open(path).is_ok() {
                return Err(format!("{path} can be written"));
            }
        }
        if fs::remove_file("/given/file").is_ok() || fs::rename("/given/file", "/given/other").is_ok() {
            return Err("/given/file went away".into());
        }
        Ok(())
    });
    assert_eq!(fs::read_to_string(given.join("file")).unwrap(), "host");
    assert_eq!(fs::read_to_string(shared.join("made")).unwrap(), "inside");
}

fn chroot(world: &World) {
    attempt(&world.jail(), || {
        fs::create_dir("/workspace/d").unwrap();
        refused("chroot", libc::SYS_chroot, [text(c"/workspace/d"), 0, 0, 0, 0, 0], libc::EPERM)?;
        // The classic escape from chroot: upwards from a directory that is held open.
        let root = File::open("/").unwrap();
        rustix::process::fchdir(&root).unwrap();
        for _ in 0..64 {
            std::env::set_current_dir("..").unwrap();
        }
        match fs::metadata(".").unwrap().ino() == fs::metadata("/").unwrap().ino() && !Path::new("root").exists() {
            true => Ok(()),
            false => Err("'..' leads above the root".into()),
        }
    });
}

fn devices(world: &World) {
    attempt(&world.jail(), || {
        let memory = libc::makedev(1, 1);
        let mode = u64::from(libc::S_IFCHR | 0o666);
        for place in [c"/workspace/mem", c"/tmp/mem", c"/dev/shm/mem"] {
            let arguments = [libc::AT_FDCWD as u64, text(place), mode, memory, 0, 0];
            refused("mknod of /dev/mem", libc::SYS_mknodat, arguments, libc::EPERM)?;
        }
        let disk =
            [libc::AT_FDCWD as u64, text(c"/tmp/disk"), u64::from(libc::S_IFBLK | 0o666), libc::makedev(8, 0), 0, 0];
        refused("mknod of a disk", libc::SYS_mknodat, disk, libc::EPERM)?;
        let mut names: Vec<_> = fs::read_dir("/dev").unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        let usual = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
        match names.join(std::ffi::OsStr::new(" ")) == usual {
            true => Ok(()),
            false => Err(format!("/dev has {names:?}")),
        }
    });
}

fn handles(world: &World) {
    attempt(&world.jail(), || {
        let at = libc::AT_FDCWD as u64;
        refused("name_to_handle_at", libc::SYS_name_to_handle_at, [at, text(c"/usr"), 8, 8, 0, 0], libc::EPERM)?;
        refused("open_by_handle_at", libc::SYS_open_by_handle_at, [at, 8, 0, 0, 0, 0], libc::EPERM)
    });
}

/// Run as a setuid program: whether it runs as another user or has a capability.
pub(crate) fn who_am_i() -> ExitCode {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let same = line("Uid:").split_ascii_whitespace().skip(1).all(|uid| uid == "1000");
    let none = ["CapPrm:", "CapEff:", "CapAmb:"].iter().all(|set| line(set).ends_with("\t0000000000000000"));
    ExitCode::from(if same && none { 0 } else { 5 })
}

fn setuid_files(world: &World) {
    let given = world.directory("given");
    let copy = given.join("copy");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    if world.root {
        // The id map covers the directory's owner, but the file belongs to root.
        std::os::unix::fs::chown(&given, Some(4242), Some(4242)).unwrap();
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o6755)).unwrap();
    let mut jail = world.jail();
    jail.mounts.push(Mount { host: given, inside: "/given".into(), writable: true });
    attempt(&jail, || {
        assert!(fs::metadata("/given/copy").unwrap().mode() & 0o4000 != 0, "the control: the bit is there");
        match Command::new("/given/copy").arg("--who-am-i").status().unwrap().code() {
            Some(0) => Ok(()),
            code => Err(format!("the setuid program was somebody else or had capabilities: {code:?}")),
        }
    });
}

fn ownership(world: &World) {
    let workspace = world.directory("work");
    if world.root {
        std::os::unix::fs::chown(&workspace, Some(4242), Some(4343)).unwrap();
    }
    let owner = fs::metadata(&workspace).unwrap();
    let mut jail = world.jail();
    jail.workspace = Some(workspace.clone());
    attempt(&jail, || {
        fs::create_dir("/workspace/d").unwrap();
        fs::write("/workspace/d/f", "x").unwrap();
        let inside = fs::metadata("/workspace/d/f").unwrap();
        assert_eq!((inside.uid(), inside.gid()), (podbay_jail::INSIDE_UID, podbay_jail::INSIDE_GID));
        let away = CString::new("/workspace/d/f").unwrap();
        match call(libc::SYS_fchownat, [libc::AT_FDCWD as u64, text(&away), 0, 0, 0, 0]) {
            Err(_) => Ok(()),
            Ok(_) => Err("a file was given to root".into()),
        }
    });
    for made in ["d", "d/f"] {
        let meta = fs::metadata(workspace.join(made)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (owner.uid(), owner.gid()), "{made}");
    }
    if !world.root {
        // An ordinary user's jail can't reach files that the user can't.
        let Ok(shadow) = fs::metadata("/etc/shadow") else { skip("no /etc/shadow to compare with") };
        assert!(shadow.uid() == 0 && File::open("/etc/shadow").is_err());
    }
}

fn artefacts(world: &World) {
    attempt(&world.jail(), || -> Verdict {
        let own = ["/tmp", "/dev/shm", "/workspace", "/run/podbay"];
        for place in podbay_jail::ARTEFACTS.iter().chain(&own) {
            fs::write(format!("{place}/file"), "x").map_err(|error| format!("{place}: {error}"))?;
        }
        assert_eq!(std::env::current_dir().unwrap(), Path::new("/workspace"));
        Ok(())
    });
}
