//! What stays after the end: nothing.

use podbay_client::provider::{Provider, Wanted};
use podbay_local::{JailLimits, Options};

use crate::harness::{Case, World, left_behind, make, named, run};

pub(crate) const CASES: &[Case] = &[
    ("made and deleted again and again, nothing is left", again_and_again),
    ("deleting twice is no error", deleting_twice),
    ("what can't be made leaves nothing", failed_ones),
];

fn again_and_again(world: &World) {
    let times = if std::env::var_os("PODBAY_SOAK").is_some() { 1_000 } else { 200 };
    // With limits, so that there are cgroups where there can be.
    let limits = JailLimits { memory: Some(256 << 20), processes: Some(100), ..JailLimits::default() };
    let local = world.local_with(Options { limits, ..Options::default() });
    run(async {
        for number in 0..times {
            let id = world.id(&format!("n{number}"));
            let made = make(&local, &named(&id)).await;
            assert!(made.created);
            if number % 10 == 0 {
                let output = made.sandbox.run("sleep 100 & echo here").await.unwrap();
                assert_eq!(output.text(), "here\n");
            }
            assert!(local.delete(&id).await.unwrap());
            if number == 0 {
                assert_eq!(left_behind(&world.scratch), Vec::<String>::new(), "right after delete has returned");
            }
        }
    });
    assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
}

fn deleting_twice(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        assert!(local.delete(&made.id).await.unwrap());
        assert!(!local.delete(&made.id).await.unwrap());
        assert!(!local.delete("../../etc").await.unwrap(), "what can't be an id has no sandbox");
        let gone = local.reconnect(&made.id).await.unwrap_err();
        assert!(matches!(gone, podbay_client::Error::SandboxNotFound(_)), "{gone}");
        assert!(made.sandbox.run("true").await.is_err());
    });
}

fn failed_ones(world: &World) {
    let missing = podbay_local::parse_mount("/nonexistent/here:/there").unwrap();
    let local = world.local_with(Options { mounts: vec![missing], ..Options::default() });
    run(async {
        for _ in 0..3 {
            let error = local.get_or_create(&named(&world.id("never"))).await.unwrap_err();
            assert!(error.to_string().contains("/nonexistent/here"), "{error}");
        }
    });
    assert_eq!(left_behind(&world.scratch), Vec::<String>::new());
}
