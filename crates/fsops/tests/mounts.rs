//! Full disks, mount points and read-only file systems, in a mount namespace of their own.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;

use podbay_proto::ErrorCode;
use podbay_proto::files::*;
use rustix::mount::MountFlags;
use support::Fixture;

#[test]
fn writes_behave_on_full_mounted_and_read_only_file_systems() {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    let can = command.arg("true").output().is_ok_and(|output| output.status.success());
    if !can {
        let required = std::env::var("PODBAY_REQUIRE").is_ok_and(|what| what == "all");
        assert!(!required, "a mount namespace was required and can't be had");
        return println!("skipped: no mount namespace can be had here");
    }
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "in_a_mount_namespace"])
        .status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "mounts file systems: the test above runs it, in a namespace of its own"]
fn in_a_mount_namespace() {
    let fixture = Fixture::new();
    let small = fixture.path("small");
    std::fs::create_dir(&small).unwrap();
    rustix::mount::mount("none", &small, "tmpfs", MountFlags::empty(), Some(c"size=256k")).unwrap();
    fixture.put("small/f", "old");
    let large = vec![b'x'; 1 << 20];
    for path in ["small/f", "small/new"] {
        let error = fixture.write(&Write::new(path), &large).unwrap_err();
        assert_eq!(error.code, ErrorCode::NoSpace, "{error}");
    }
    let (request, payload) = Edit::new("small/f", b"old", &large);
    assert_eq!(fixture.files.edit(&request, &payload).unwrap_err().code, ErrorCode::NoSpace);
    assert_eq!((fixture.get("small/f"), fixture.names("small")), (b"old".to_vec(), vec!["f".to_owned()]));
    // A file that is a mount point, as Kubernetes makes them, can't be replaced and is overwritten.
    fixture.put("d/f", "below");
    rustix::mount::mount_bind(fixture.path("small/f"), fixture.path("d/f")).unwrap();
    let output = fixture.write(&Write::new("d/f"), b"through the mount").unwrap();
    assert!(output.in_place);
    assert_eq!(fixture.get("small/f"), b"through the mount");
    assert!(fixture.edit("d/f", "mount", "mounted file").unwrap().in_place);
    assert_eq!(fixture.get("small/f"), b"through the mounted file");
    // One on the same file system is only found out by the rename.
    fixture.put("d/same", "below");
    fixture.put("d/source", "source");
    rustix::mount::mount_bind(fixture.path("d/source"), fixture.path("d/same")).unwrap();
    assert!(fixture.write(&Write::new("d/same"), b"new").unwrap().in_place);
    assert_eq!(fixture.get("d/source"), b"new");
    assert_eq!(fixture.names("d"), ["f", "same", "source"]);
    rustix::mount::mount_remount(&small, MountFlags::RDONLY, c"").unwrap();
    for path in ["small/f", "small/new"] {
        assert_eq!(fixture.write(&Write::new(path), b"x").unwrap_err().code, ErrorCode::ReadOnly, "{path}");
    }
    let cancel = podbay_fsops::Cancel::new();
    assert_eq!(fixture.files.delete(&Delete::new("small/f"), &cancel).unwrap_err().code, ErrorCode::ReadOnly);
    // A directory can't go to another file system, and stays.
    let error = fixture.files.mv(&Move { overwrite: true, ..Move::new("d", "small/d") }).unwrap_err();
    assert!(matches!(error.code, ErrorCode::ReadOnly | ErrorCode::Unsupported), "{error}");
    for path in ["d/same", "d/f", "small"] {
        rustix::mount::unmount(fixture.path(path), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
