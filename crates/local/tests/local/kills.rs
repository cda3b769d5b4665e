//! `kill -9` of the creator, the supervisor or podbayd: either nothing is left, or the sandbox is found again.

use std::time::Duration;

use podbay_client::provider::{Phase, Provider, Query};
use podbay_local::{JailLimits, Options};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Case, World, left_behind, make, named, run, until};
use crate::races::hold;

pub(crate) const CASES: &[Case] = &[
    ("a sandbox outlives its creator", creator),
    ("a leashed sandbox ends with its creator", leashed_creator),
    ("what a killed supervisor leaves is cleaned up", supervisor_then_cleanup),
    ("what a killed supervisor leaves is gone after a list", supervisor_then_list),
    ("what a killed supervisor leaves is gone after the next creation", supervisor_then_create_other),
    ("a name whose supervisor was killed can be had again", supervisor_then_create),
    ("a killed supervisor's sandbox can be deleted", supervisor_then_delete),
    ("when podbayd is killed, nothing is left", podbayd),
];

const PATIENCE: Duration = Duration::from_secs(10);

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

fn creator(world: &World) {
    let id = world.id("free");
    let (mut child, _) = hold(world, &id, false);
    child.kill().unwrap();
    child.wait().unwrap();
    run(async {
        let found = world.local().reconnect(&id).await.unwrap();
        assert_eq!(found.sandbox.run("echo found").await.unwrap().text(), "found\n");
        assert!(world.local().delete(&id).await.unwrap());
    });
}

fn leashed_creator(world: &World) {
    let (mut child, id) = hold(world, "", true);
    run(async {
        // Other users of the sandbox don't keep it alive.
        let found = world.local().reconnect(&id).await.unwrap();
        found.sandbox.start("sleep 1000").await.unwrap();
    });
    child.kill().unwrap();
    child.wait().unwrap();
    run(until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()));
}

async fn with_dead_supervisor(world: &World) -> (podbay_local::Local, String) {
    let limits = JailLimits { memory: Some(256 << 20), ..JailLimits::default() };
    let local = world.local_with(Options { limits, ..Options::default() });
    let id = world.id("orphan");
    let made = make(&local, &named(&id)).await;
    made.sandbox.start("sleep 1000").await.unwrap();
    kill(local.describe(&id).await.unwrap().supervisor.unwrap());
    (local, id)
}

/// Waits until the kernel has ended it. (Listing would remove it.)
async fn seen_dead(local: &podbay_local::Local, id: &str) {
    until("it is seen to be dead", PATIENCE, async || {
        local.describe(id).await.unwrap().listed.phase == Phase::Terminated
    })
    .await;
}

fn supervisor_then_cleanup(world: &World) {
    run(async {
        let (local, id) = with_dead_supervisor(world).await;
        seen_dead(&local, &id).await;
        let cleaned = local.cleanup(None).await.unwrap();
        assert_eq!((cleaned.deleted, cleaned.kept), (vec![id], 0));
        assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
    });
}

fn supervisor_then_list(world: &World) {
    run(async {
        let living = make(&world.local(), &named(&world.id("living"))).await;
        let (local, id) = with_dead_supervisor(world).await;
        seen_dead(&local, &id).await;
        let listed = local.list(&Query::default()).await.unwrap().sandboxes;
        assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&living.id]);
        assert!(local.delete(&living.id).await.unwrap());
        assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
    });
}

fn supervisor_then_create_other(world: &World) {
    run(async {
        let (local, id) = with_dead_supervisor(world).await;
        seen_dead(&local, &id).await;
        let other = make(&local, &named(&world.id("other"))).await;
        let gone = local.describe(&id).await.unwrap_err();
        assert!(matches!(gone, podbay_local::Error::SandboxNotFound(_)), "{gone}");
        assert_eq!(other.sandbox.run("echo well").await.unwrap().text(), "well\n");
        assert!(local.delete(&other.id).await.unwrap());
        assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
    });
}

fn supervisor_then_create(world: &World) {
    run(async {
        let (local, id) = with_dead_supervisor(world).await;
        // The kernel takes a moment to end it. Until then it is found.
        seen_dead(&local, &id).await;
        let again = make(&local, &named(&id)).await;
        assert!(again.created);
        assert_eq!(again.sandbox.run("echo new").await.unwrap().text(), "new\n");
        assert!(local.delete(&id).await.unwrap());
    });
}

fn supervisor_then_delete(world: &World) {
    run(async {
        let (local, id) = with_dead_supervisor(world).await;
        assert!(local.delete(&id).await.unwrap());
        assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
    });
}

fn podbayd(world: &World) {
    run(async {
        let local = world.local();
        let id = world.id("headless");
        let made = make(&local, &named(&id)).await;
        made.sandbox.start("sleep 1000").await.unwrap();
        kill(local.describe(&id).await.unwrap().first.unwrap());
        until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()).await;
        let again = make(&local, &named(&id)).await;
        assert!(again.created);
        local.delete(&id).await.unwrap();
    });
}
