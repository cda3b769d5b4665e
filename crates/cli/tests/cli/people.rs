//! Network, limits and times from the command line, for root and for an ordinary user.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::home::text;

/// Nobody's number on most machines.
const ORDINARY: u32 = 54_321;

/// Someone with a copy of `podbay` and a home for sandboxes.
struct Person {
    id: Option<u32>,
    dir: tempfile::TempDir,
    podbay: PathBuf,
}

impl Person {
    /// Whoever runs this test; and, where that is root, somebody else too.
    fn all() -> Vec<Self> {
        let mut people = vec![Self::new(None)];
        if rustix::process::geteuid().is_root() {
            people.push(Self::new(Some(ORDINARY)));
        }
        people
    }

    fn new(id: Option<u32>) -> Self {
        let dir = tempfile::Builder::new().prefix("pb").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // An ordinary user may not be able to reach the directory that it was built in.
        let podbay = dir.path().join("podbay");
        if std::fs::hard_link(env!("CARGO_BIN_EXE_podbay"), &podbay).is_err() {
            std::fs::copy(env!("CARGO_BIN_EXE_podbay"), &podbay).unwrap();
        }
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, id, id).unwrap();
        Self { id, dir, podbay }
    }

    fn output(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.podbay);
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("PODBAY_HOME", self.dir.path().join("home"));
        if let Some(id) = self.id {
            command.uid(id).gid(id);
        }
        command.output().unwrap()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let deleted = self.output(&["delete", "--all"]);
        if !deleted.status.success() && !std::thread::panicking() {
            panic!("{}", text(&deleted.stderr));
        }
    }
}

#[test]
fn the_hosts_network_is_there_only_when_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo through", listener.local_addr().unwrap().port());
    for person in Person::all() {
        let closed = person.output(&["run", "--", "bash", "-c", &connect]);
        assert!(!closed.status.success() && closed.stdout.is_empty(), "{:?}: {closed:?}", person.id);
        let open = person.output(&["run", "--network", "host", "--", "bash", "-c", &connect]);
        assert_eq!(text(&open.stdout), "through\n", "{:?}: {}", person.id, text(&open.stderr));
    }
}

#[test]
fn without_namespaces_files_are_closed_all_the_same() {
    for person in Person::all() {
        let script = "cat /etc/shadow /etc/hostname 2>/dev/null; echo made > file; cat file";
        let output = person.output(&["run", "--isolation", "landlock", "--", "sh", "-c", script]);
        assert_eq!(text(&output.stdout), "made\n", "{:?}: {}", person.id, text(&output.stderr));
        let doctor = person.output(&["doctor", "--set", "local.isolation=landlock"]);
        assert!(doctor.status.success() && text(&doctor.stdout).contains("isolated by Landlock"), "{doctor:?}");
    }
}

#[test]
fn limits_hold() {
    for person in Person::all() {
        let many = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 2 & done; wait";
        let forks = person.output(&["run", "--processes", "12", "--", "sh", "-c", many]);
        assert!(text(&forks.stderr).to_lowercase().contains("fork"), "{:?}: {forks:?}", person.id);
        let large = person.output(&["run", "--disk", "1M", "--", "head", "-c", "4000000", "/dev/zero"]);
        assert!(large.status.success(), "{:?}: what is printed isn't on disk: {large:?}", person.id);
        let full =
            person.output(&["run", "--disk", "1M", "--", "sh", "-c", "head -c 4000000 /dev/zero > /workspace/x"]);
        assert!(!full.status.success(), "{:?}: {full:?}", person.id);
        let bad = person.output(&["run", "--memory", "7", "--", "true"]);
        assert!(text(&bad.stderr).contains("memory"), "{:?}: {bad:?}", person.id);
    }
}

#[test]
fn a_sandbox_that_nobody_uses_ends() {
    for person in Person::all() {
        let made = person.output(&["create", "--name", "idle", "--idle-ttl", "1s"]);
        assert!(made.status.success(), "{:?}: {made:?}", person.id);
        let begun = Instant::now();
        while text(&person.output(&["--json", "list"]).stdout) != "[]\n" {
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", person.id);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
