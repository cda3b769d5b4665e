//! Links that one jail leaves in a shared directory for the next.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use podbay_jail::{Mount, spawn};

use crate::harness::{Case, World, attempt, start};
use crate::raw;

pub(crate) const CASES: &[Case] = &[
    ("a_link_in_the_workspace_leads_no_mount_astray", between_runs),
    ("swapping_links_during_the_start_gains_nothing", during_start),
    ("a_workspace_that_is_a_link_is_refused", workspace_link),
];

fn between_runs(world: &World) {
    let secret = world.directory("secret");
    fs::write(secret.join("file"), "host").unwrap();
    let workspace = world.directory("work");
    let mut jail = world.jail();
    jail.workspace = Some(workspace.clone());
    let target = secret.clone();
    attempt(&jail, move || {
        symlink(&target, "/workspace/data").unwrap();
        symlink("/etc", "/workspace/etc").unwrap();
        Ok(())
    });
    let refused = |mount: Mount| {
        let mut jail = jail.clone();
        jail.mounts.push(mount);
        let error = spawn(&jail, &[], || 0).expect_err("a link was followed").to_string();
        assert!(error.contains("symbolic link"), "{error}");
    };
    refused(Mount { host: workspace.join("data"), inside: "/data".into(), writable: true });
    refused(Mount { host: workspace.join("data/file"), inside: "/data".into(), writable: false });
    refused(Mount { host: secret.clone(), inside: "/workspace/data".into(), writable: false });
    refused(Mount { host: secret.clone(), inside: "/workspace/etc/ssl".into(), writable: false });
}

fn during_start(world: &World) {
    let secret = world.directory("secret");
    fs::write(secret.join("which"), "secret").unwrap();
    let workspace = world.directory("work");
    let data = workspace.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("which"), "mine").unwrap();
    symlink(&secret, workspace.join("other")).unwrap();

    let swapper = raw::helper().unwrap_or_else(|| {
        let other = workspace.join("other");
        loop {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let _ = rustix::fs::renameat_with(rustix::fs::CWD, &data, rustix::fs::CWD, &other, flags);
        }
    });
    let (mut started, mut refused) = (0, 0);
    for round in 0..150 {
        let mut jail = world.jail();
        jail.id = format!("{}-{round}", jail.id);
        jail.workspace = Some(workspace.clone());
        jail.mounts.push(Mount { host: data.clone(), inside: "/data".into(), writable: false });
        if round % 2 == 1 {
            jail.mounts[0] = Mount { host: secret.clone(), inside: "/workspace/data".into(), writable: false };
        }
        let mine = round % 2 == 0;
        let made = spawn(&jail, &[], || {
            let which = fs::read_to_string("/data/which").unwrap_or_default();
            i32::from(mine && which != "mine")
        });
        match made {
            Ok(mut jailed) => {
                started += 1;
                let exit = jailed.wait().unwrap();
                jailed.cleanup().unwrap();
                assert_eq!(exit, podbay_jail::JailExit::Code(0), "a swapped link was mounted");
            }
            Err(_) => refused += 1,
        }
    }
    let swapper = rustix::process::Pid::from_raw(swapper).unwrap();
    rustix::process::kill_process(swapper, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(swapper), rustix::process::WaitOptions::empty()).unwrap();
    assert!(started > 0 && refused > 0, "the race was not run: {started} started, {refused} refused");
}

fn workspace_link(world: &World) {
    let link = world.scratch.join("link");
    symlink("/etc", &link).unwrap();
    let mut jail = world.jail();
    jail.workspace = Some(link);
    let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
    assert!(error.contains("use the real path"), "{error}");
    jail.workspace = Some(world.scratch.join("missing"));
    let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("create it first"), "{error}");
    // Nothing is left behind: the next start works.
    jail.workspace = None;
    let (mut jailed, _) = start(&jail, &[], || match Path::new("/workspace").is_dir() {
        true => Ok(()),
        false => Err("no workspace".into()),
    });
    jailed.cleanup().unwrap();
}
