//! The jail of machines without user namespaces.

mod files;
mod network;
mod processes;

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use podbay_jail::{CommandConfinement, Domain, Isolation, Jail, Mount, own_id, spawn};

use crate::harness::{Case, Verdict, World, attempt};
use crate::raw::refused;

pub(crate) const CASES: &[Case] = &[
    ("fallback_opens_only_what_is_given", files::files),
    ("fallback_changes_nothing_outside", files::metadata),
    ("fallback_has_no_sockets", network::sockets),
    ("fallback_has_the_network_that_is_asked_for", network::network),
    ("fallback_reaches_no_process_outside", processes::processes),
    ("fallback_commands_dont_reach_podbayd", processes::podbayd),
    ("fallback_closes_the_kernels_doors", kernel),
    ("fallback_runs_programs", programs),
    ("fallback_ends_all_it_started", processes::all_end),
    ("fallback_has_the_limit_and_what_its_user_ran_before", processes::fork_bomb),
    ("fallback_dies_with_its_maker", processes::dies_with_maker),
    ("fallback_refuses_what_it_cannot_do", refusals),
    ("fallback_is_named_where_there_are_no_namespaces", no_namespaces),
];

/// A jail without namespaces. Root's runs as the owner of its workspace.
pub(crate) fn jail(world: &World) -> Jail {
    let mut jail = world.jail();
    jail.isolation = Isolation::Landlock;
    let workspace = world.directory("work");
    if world.root {
        let own = own_id(&jail.id).unwrap();
        chown(&workspace, Some(own), Some(own)).unwrap();
    }
    jail.workspace = Some(workspace);
    jail
}

/// Runs an attack as a command, in podbayd's confinement and its own.
pub(crate) fn attempt_as_command(jail: &Jail, inside: impl FnOnce() -> Verdict) {
    let confinement = CommandConfinement::of(jail).unwrap();
    attempt(jail, || {
        confine_command(&confinement)?;
        inside()
    });
}

fn confine_command(confinement: &CommandConfinement) -> Verdict {
    Domain::default().enter().signals?;
    let prepared = confinement.prepare().map_err(|error| error.to_string())?;
    prepared.enter(None).map_err(|error| error.to_string())
}

/// Attacks on the kernel, run as a command.
fn kernel(world: &World) {
    let jail = jail(world);
    attempt_as_command(&jail, || {
        let zero = [0_u64; 6];
        for (what, number) in [
            ("mount", libc::SYS_mount),
            ("unshare", libc::SYS_unshare),
            ("setns", libc::SYS_setns),
            ("chroot", libc::SYS_chroot),
            ("pivot_root", libc::SYS_pivot_root),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("keyctl", libc::SYS_keyctl),
            ("add_key", libc::SYS_add_key),
            ("bpf", libc::SYS_bpf),
            ("perf_event_open", libc::SYS_perf_event_open),
            ("userfaultfd", libc::SYS_userfaultfd),
            ("process_vm_readv", libc::SYS_process_vm_readv),
            ("pidfd_getfd", libc::SYS_pidfd_getfd),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ] {
            refused(what, number, zero, libc::EPERM)?;
        }
        let user = [(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0];
        refused("clone with a namespace", libc::SYS_clone, user, libc::EPERM)?;
        refused("clone3", libc::SYS_clone3, zero, libc::ENOSYS)?;
        // Set-id programs gain nothing.
        let output = Command::new("/bin/sh").args(["-c", "su -c id root </dev/null 2>&1; id -u"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.lines().last() {
            Some("0") | None => Err(said),
            Some(_) => Ok(()),
        }
    });
}

fn programs(world: &World) {
    let jail = jail(world);
    attempt_as_command(&jail, || {
        let script = "set -e; [ \"$HOME\" = \"$PWD\" ]; echo x > f; mkdir d; mv f d; cat d/f | grep -q x; ls /usr/bin \
                      > /dev/null";
        let output = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
        if !output.status.success() {
            return Err(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        if Path::new("/usr/bin/python3").exists() {
            let program = "import subprocess, threading, json, tempfile; tempfile.TemporaryFile(); \
                           subprocess.run(['true'], check=True)";
            let output = Command::new("/usr/bin/python3").args(["-c", program]).output().unwrap();
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        Ok(())
    });
}

fn refusals(world: &World) {
    let jail = jail(world);
    let refused = |change: &dyn Fn(&mut Jail), word: &str| {
        let mut jail = jail.clone();
        change(&mut jail);
        let error = spawn(&jail, &[], || 0).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(&|jail| jail.workspace = None, "workspace");
    if world.root {
        refused(&|jail| jail.workspace = Some(world.scratch.clone()), "belongs to root");
    }
    refused(
        &|jail| jail.mounts.push(Mount { host: "/usr".into(), inside: "/x".into(), writable: false }),
        "must be /usr",
    );
}

/// Imitates a machine on which nobody can make user namespaces.
fn no_namespaces(world: &World) {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    let bit = libc::CLONE_NEWUSER as u64;
    let user = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit).unwrap();
    let rules = [libc::SYS_clone, libc::SYS_unshare].map(|call| {
        let rule = SeccompRule::new(vec![user.clone()]).unwrap();
        (call, vec![rule])
    });
    let errno = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, errno, architecture).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();

    let report = podbay_jail::probe();
    assert_eq!(report.isolation, Some(Isolation::Landlock), "{report:#?}");
    let named = |text: &str| text.contains("isolation to \"landlock\"");
    let lacking = report.findings.iter().find(|finding| !finding.available).unwrap();
    assert!(lacking.fix.as_deref().is_some_and(named), "{lacking:?}");
    let error = spawn(&world.jail(), &[], || 0).unwrap_err().to_string();
    assert!(error.contains("namespaces") && named(&error), "{error}");
    attempt_as_command(&jail(world), || Ok(()));
}
