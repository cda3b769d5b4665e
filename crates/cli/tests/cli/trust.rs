//! Root with another user's runtime directory, as after `su` and `sudo -E`.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::home::text;

/// Nobody's number on most machines.
const OTHER: u32 = 54_321;

/// How often root comes by. The attack took 12 times.
const TIMES: usize = 25;

/// Somebody's runtime directory: what root makes in it changes places with a directory of theirs, all the time.
struct Attacker {
    dir: tempfile::TempDir,
    child: Child,
}

impl Attacker {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("pb").tempdir_in("/tmp").unwrap();
        std::fs::create_dir(dir.path().join("evil")).unwrap();
        let owned = |path: &Path| {
            chown(path, Some(OTHER), Some(OTHER)).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        };
        ["evil", ""].iter().for_each(|name| owned(&dir.path().join(name)));
        let exchange = "
import ctypes, os
libc = ctypes.CDLL(None)
while True:
    # renameat2 with RENAME_EXCHANGE
    libc.renameat2(-100, b'podbay', -100, b'evil', 2)
";
        let mut command = Command::new("python3");
        command.args(["-c", exchange]).current_dir(dir.path()).uid(OTHER).gid(OTHER).stdin(Stdio::null());
        Self { child: command.spawn().unwrap(), dir }
    }

    fn root(&self, home: Option<&Path>) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podbay"));
        command.args(["run", "--", "echo", "works"]).current_dir("/").stdin(Stdio::null()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", self.dir.path());
        command.envs(home.map(|home| ("PODBAY_HOME", home)));
        command.output().unwrap()
    }

    /// Everything that root made there.
    fn of_root(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.dir.path().to_owned()];
        while let Some(dir) = left.pop() {
            // It may just be changing its place.
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                if meta.uid() == 0 {
                    found.push(entry.path());
                }
                if meta.is_dir() {
                    left.push(entry.path());
                }
            }
        }
        found
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An ordinary user became root: root used their `XDG_RUNTIME_DIR`, and they exchanged the directory from which podbayd is run
/// between the check and the use.
#[test]
fn root_leaves_another_users_runtime_directory_alone() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let attacker = Attacker::new();
    for _ in 0..TIMES {
        let output = attacker.root(None);
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("works\n".into(), String::new()));
    }
    assert_eq!(attacker.of_root(), Vec::<PathBuf>::new());
}

#[test]
fn root_refuses_another_users_directory_as_home() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let attacker = Attacker::new();
    for name in ["evil", "podbay"] {
        let output = attacker.root(Some(&attacker.dir.path().join(name)));
        let said = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(said.contains("belongs to user 54321") && said.contains("PODBAY_HOME"), "{said}");
    }
    assert_eq!(attacker.of_root(), Vec::<PathBuf>::new());
}
