//! A jail leaves nothing behind.

use std::fs;
use std::path::PathBuf;

use podbay_jail::{JailLimits, Mount, spawn};

use crate::harness::{Case, World};
use crate::processes::descendants;
use crate::raw;

pub(crate) const CASES: &[Case] = &[
    ("two_hundred_jails_leave_nothing", nothing),
    ("failed_starts_leave_nothing", failures),
    ("sweep_removes_orphans", orphans),
];

/// What a jail could leave behind: mounts, descriptors, children, control groups.
#[derive(Debug, PartialEq)]
struct Inventory {
    mounts: String,
    descriptors: usize,
    children: Vec<i32>,
    groups: Vec<PathBuf>,
}

fn inventory() -> Inventory {
    Inventory {
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap(),
        descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
        children: descendants(std::process::id() as i32),
        groups: groups(),
    }
}

/// Control groups of this process's jails, anywhere.
fn groups() -> Vec<PathBuf> {
    let mine = format!(".{}.", std::process::id());
    let mut found = Vec::new();
    let mut stack = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(&mine) {
                    found.push(entry.path());
                }
                stack.push(entry.path());
            }
        }
    }
    found
}

fn limited(world: &World, round: usize) -> podbay_jail::Jail {
    let mut jail = world.jail();
    jail.id = format!("{}-{round}", jail.id);
    jail.limits = JailLimits {
        memory: Some(64 << 20),
        cpu: Some(1.0),
        processes: Some(32),
        disk: Some(16 << 20),
        descriptors: None,
    };
    jail
}

fn nothing(world: &World) {
    let workspace = world.directory("work");
    let state = world.directory("state");
    let before = inventory();
    for round in 0..200 {
        let mut jail = limited(world, round);
        if round % 2 == 0 {
            jail.workspace = Some(workspace.clone());
            jail.state = Some(state.clone());
        }
        let mut jailed = spawn(&jail, &[], || {
            raw::fork();
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        })
        .unwrap();
        jailed.kill().unwrap();
        jailed.cleanup().unwrap();
    }
    assert_eq!(inventory(), before);
    assert_eq!(fs::read_dir(&workspace).unwrap().count(), 0);
}

fn failures(world: &World) {
    let given = world.directory("given");
    std::os::unix::fs::symlink("/etc", given.join("link")).unwrap();
    let before = inventory();
    for round in 0..20 {
        let mut jail = limited(world, round);
        jail.workspace = Some(given.clone());
        // The path on the host is fine, the one inside contains a link: this fails late, in the new process.
        jail.mounts.push(Mount { host: given.clone(), inside: "/workspace/link/x".into(), writable: false });
        let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
        assert!(error.contains("/workspace/link/x"), "{error}");
    }
    assert_eq!(inventory(), before);
    let mut jail = world.jail();
    for (id, hostname) in
        [("", "h"), ("../x", "h"), (".x", "h"), ("x/y", "h"), ("ok", ""), ("ok", "a b"), ("ok", "x\ny")]
    {
        (jail.id, jail.hostname) = (id.into(), hostname.into());
        assert!(spawn(&jail, &[], || 0).is_err(), "{id:?} {hostname:?}");
    }
}

fn orphans(world: &World) {
    // A process that is killed before it can remove its groups.
    let maker = raw::helper().unwrap_or_else(|| {
        let made = spawn(&limited(world, 0), &[], || {
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        });
        raw::exit(made.map_or(1, |jailed| i32::from(jailed.cgroup().is_some()) * 2))
    });
    let waited = rustix::process::waitpid(rustix::process::Pid::from_raw(maker), rustix::process::WaitOptions::empty());
    let code = waited.unwrap().unwrap().1.exit_status();
    assert_ne!(code, Some(1), "the jail could not be made");
    if code == Some(0) {
        crate::harness::skip("no cgroup can be made here");
    }
    let mine = |path: &PathBuf| path.to_string_lossy().contains(&format!(".{maker}."));
    let of_maker = || {
        let mut all = Vec::new();
        let mut stack = vec![PathBuf::from("/sys/fs/cgroup")];
        while let Some(directory) = stack.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    stack.push(entry.path());
                    all.push(entry.path());
                }
            }
        }
        all.into_iter().filter(mine).count()
    };
    assert!(of_maker() > 0, "the control: groups stayed");
    crate::processes::soon("the groups can be swept", || {
        podbay_jail::sweep().unwrap();
        of_maker() == 0
    });
}
