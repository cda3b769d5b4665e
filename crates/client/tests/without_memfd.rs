//! Where the kernel runs no program from memory, podbayd runs from its file: commands work, and podbayd says what is open.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeMap;

use podbay_proto::session::{Protection, ProtectionKind};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use support::Daemon;

/// Starts a podbayd whose kernel refuses files in memory with this error number.
fn daemon_without_memfd(errno: i32) -> Daemon {
    let start = move || {
        let refused = BTreeMap::from([(libc::SYS_memfd_create, Vec::new())]);
        let refuse = SeccompAction::Errno(errno as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(refused, SeccompAction::Allow, refuse, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        // It holds for this thread and what it starts.
        seccompiler::apply_filter(&program).unwrap();
        Daemon::start()
    };
    std::thread::spawn(start).join().unwrap()
}

async fn protection_of_its_program(daemon: &Daemon) -> Protection {
    let report = daemon.sandbox().protection().await.unwrap();
    report.protections.into_iter().find(|one| one.what == ProtectionKind::Program).unwrap()
}

fn zygote(daemon: &Daemon) -> String {
    let pid = daemon.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().to_owned()
}

/// `vm.memfd_noexec=2` answers EACCES, a container's seccomp profile EPERM, and an old one ENOSYS.
#[tokio::test]
async fn podbayd_runs_from_its_file_where_memory_isnt_run() {
    for errno in [libc::EACCES, libc::EPERM, libc::ENOSYS] {
        let daemon = daemon_without_memfd(errno);
        let protection = protection_of_its_program(&daemon).await;
        assert!(!protection.in_force && protection.detail.contains("vm.memfd_noexec"), "errno {errno}: {protection:?}");
        let sandbox = daemon.sandbox();
        assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n", "errno {errno}");
        // A zygote that was killed is started again, from the file too.
        let first = zygote(&daemon);
        assert!(std::process::Command::new("kill").args(["-9", &first]).status().unwrap().success());
        assert_eq!(sandbox.run("echo again").await.unwrap().text(), "again\n", "errno {errno}");
        assert_ne!(zygote(&daemon), first);
    }
}

#[tokio::test]
async fn podbayd_runs_from_memory_elsewhere() {
    let daemon = Daemon::start();
    let protection = protection_of_its_program(&daemon).await;
    if std::fs::read_to_string("/proc/sys/vm/memfd_noexec").is_ok_and(|value| value.trim() == "2") {
        println!("this machine runs no program from memory");
        return;
    }
    assert!(protection.in_force && protection.detail.contains("sealed copy"), "{protection:?}");
}
