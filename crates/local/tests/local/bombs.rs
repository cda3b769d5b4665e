//! A sandbox that uses up a resource affects only itself.

use std::time::{Duration, Instant};

use podbay_client::Command;
use podbay_client::files::Write;
use podbay_client::provider::{Provider, Wanted};
use podbay_local::{JailLimits, Options, can_limit_memory, default_limits};

use crate::harness::{Case, World, make, run};

pub(crate) const CASES: &[Case] = &[
    ("there are limits unless they are lifted", defaults),
    ("a fork bomb ends in its sandbox", forks),
    ("a descriptor bomb ends in its process", descriptors),
];

/// Without explicit limits nothing was limited, and a fork bomb took down the machine.
fn defaults(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let told = local.describe(&made.id).await.unwrap();
        let limits = told.jail.unwrap().limits;
        assert_eq!(limits, default_limits());
        let by = |name: &str| told.limits.iter().find(|entry| entry.limit == name).unwrap();
        assert!(by("processes").by.is_some() && by("descriptors").by.is_some(), "{:?}", told.limits);
        // Only a control group limits memory; address space is never limited.
        let enforced = can_limit_memory();
        assert_eq!(
            by("memory").by.as_deref().is_some_and(|by| by.starts_with("cgroup")),
            enforced,
            "{:?}",
            told.limits
        );
        assert_eq!(by("memory").note.is_some(), !enforced, "a limit that isn't enforced says why");
        // A limit that nothing enforces isn't shown as one.
        let common = Provider::describe(&local, &made.id).await.unwrap();
        let memory = common.limits.iter().find(|limit| limit.limit == "memory").unwrap();
        let most = default_limits().memory.filter(|_| enforced).map(|most| most.to_string());
        assert_eq!(memory.most, most, "{memory:?}");
        assert_eq!(made.sandbox.run("ulimit -v").await.unwrap().text(), "unlimited\n");
        assert!(local.delete(&made.id).await.unwrap());

        let lifted = world.local_with(Options { limits: JailLimits::default(), ..Options::default() });
        let made = make(&lifted, &Wanted::default()).await;
        assert_eq!(lifted.describe(&made.id).await.unwrap().limits, []);
        assert!(lifted.delete(&made.id).await.unwrap());
    });
}

fn forks(world: &World) {
    const MOST: u64 = 80;
    let limits = JailLimits { processes: Some(MOST), ..default_limits() };
    let local = world.local_with(Options { limits, ..Options::default() });
    run(async {
        let made = make(&local, &Wanted::default()).await;
        let first = local.describe(&made.id).await.unwrap().first.unwrap();
        // bash keeps trying where other shells give up.
        let bomb =
            Command { timeout_ms: 8_000, ..Command::shell("bash -c 'while :; do sleep 600 & done' 2>/dev/null") };
        let mut exec = made.sandbox.spawn(bomb).await.unwrap();
        let end = Instant::now() + Duration::from_secs(6);
        let mut largest = 0;
        while Instant::now() < end {
            largest = largest.max(family(first));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(largest > MOST / 2, "the control: the bomb had {largest} processes");
        // Without a control group, podbayd's own threads and those that are ending count too.
        assert!(largest <= MOST + 20, "{largest} processes");
        // File operations need no process, so they still work.
        made.sandbox.write(&Write::new("note"), "still here").await.unwrap();
        exec.wait().await.unwrap();
        assert_eq!(made.sandbox.run("cat note").await.unwrap().text(), "still here");
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// The number of descendants of a process, itself included.
fn family(first: u32) -> u64 {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let parents: std::collections::HashMap<u32, u32> = pids
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let belongs =
        |pid: &u32| std::iter::successors(Some(*pid), |pid| parents.get(pid).copied()).any(|pid| pid == first);
    parents.keys().filter(|pid| belongs(pid)).count() as u64
}

fn descriptors(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let bomb = "bash -c 'i=0; while exec {fd}</dev/null; do i=$((i+1)); done 2>/dev/null; echo $i; sleep 1'";
        let others = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            made.sandbox.run("exec 9</dev/null; echo fine").await.unwrap().text().into_owned()
        };
        let (bomb, others) = tokio::join!(made.sandbox.run(bomb), others);
        let opened: u64 = bomb.unwrap().text().trim().parse().unwrap();
        let most = default_limits().descriptors.unwrap();
        assert!((100..=most).contains(&opened), "{opened} descriptors");
        assert_eq!(others, "fine\n");
        assert!(local.delete(&made.id).await.unwrap());
    });
}
