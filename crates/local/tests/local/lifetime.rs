//! Sandboxes end by themselves.

use std::time::{Duration, Instant};

use podbay_client::Command;
use podbay_client::provider::{Provider, Query, Wanted};

use crate::harness::{Case, World, left_behind, make, named, run, until};

pub(crate) const CASES: &[Case] = &[
    ("a sandbox ends when its time is up", ttl),
    ("a sandbox ends when nobody uses it", idle),
    ("a running command is use", running_is_use),
    ("looking at a sandbox is not use", looking_is_not_use),
    ("idle ones are cleaned up, busy ones stay", cleanup_idle),
];

const PATIENCE: Duration = Duration::from_secs(15);

fn ttl(world: &World) {
    run(async {
        let wanted = Wanted { ttl: Some(Duration::from_millis(1500)), ..named(&world.id("ttl")) };
        let begun = Instant::now();
        let made = make(&world.local(), &wanted).await;
        let listed = world.local().list(&Query::default()).await.unwrap().sandboxes.remove(0);
        assert_eq!(listed.expires_ms, Some(listed.created_ms + 1500));
        // Using it doesn't prolong its life.
        while made.sandbox.run("sleep 0.1").await.is_ok() {
            assert!(begun.elapsed() < PATIENCE, "it should have ended");
        }
        assert!(begun.elapsed() >= Duration::from_millis(1400), "{:?}", begun.elapsed());
        until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()).await;
    });
}

fn idle(world: &World) {
    run(async {
        let wanted = Wanted { idle_ttl: Some(Duration::from_secs(1)), ..named(&world.id("idle")) };
        let begun = Instant::now();
        let made = make(&world.local(), &wanted).await;
        for _ in 0..8 {
            made.sandbox.run("true").await.expect("it is in use");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let last = Instant::now();
        assert!(begun.elapsed() > Duration::from_millis(1900));
        until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()).await;
        assert!(last.elapsed() > Duration::from_millis(500), "{:?}", last.elapsed());
    });
}

fn running_is_use(world: &World) {
    run(async {
        let wanted = Wanted { idle_ttl: Some(Duration::from_secs(1)), ..named(&world.id("busy")) };
        let made = make(&world.local(), &wanted).await;
        made.sandbox.start(Command { timeout_ms: 0, ..Command::from("sleep 3; echo > done") }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let told = world.local().describe(&world.id("busy")).await.unwrap();
        assert_eq!(told.running, Some(1));
        until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()).await;
    });
}

fn looking_is_not_use(world: &World) {
    run(async {
        let wanted = Wanted { idle_ttl: Some(Duration::from_secs(1)), ..named(&world.id("seen")) };
        make(&world.local(), &wanted).await;
        let begun = Instant::now();
        while !world.local().list(&Query::default()).await.unwrap().sandboxes.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "listing keeps it alive");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until("nothing is left", PATIENCE, async || left_behind(&world.scratch).is_empty()).await;
    });
}

fn cleanup_idle(world: &World) {
    run(async {
        let local = world.local();
        let (idle, busy) = (world.id("idle"), world.id("busy"));
        make(&local, &named(&idle)).await.sandbox.run("true").await.unwrap();
        make(&local, &named(&busy)).await.sandbox.start("sleep 100").await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        let stats = local.stats(Duration::from_millis(500)).await.unwrap();
        assert_eq!((stats.total, stats.running, stats.idle), (2, 2, 1));
        let cleaned = local.cleanup(Some(Duration::from_secs(60))).await.unwrap();
        assert_eq!((cleaned.deleted.len(), cleaned.kept), (0, 2));
        let cleaned = local.cleanup(Some(Duration::from_millis(500))).await.unwrap();
        assert_eq!((cleaned.deleted, cleaned.kept, cleaned.failed), (vec![idle], 1, vec![]));
        local.delete(&busy).await.unwrap();
    });
}
