//! Many processes that use the same sandboxes at once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use podbay_client::provider::{Provider, Wanted};

use crate::harness::{Case, World, make, named, run};

pub(crate) const CASES: &[Case] = &[
    ("fifty processes that want one name get one sandbox", fifty_get_one),
    ("makers and deleters of one name don't hurt each other", makers_and_deleters),
];

/// The role of this program when a test starts it again.
pub(crate) fn other(world: &World, words: &[&str]) {
    run(async {
        let local = world.local();
        match words {
            ["acquire", id] => {
                let mut line = String::new();
                println!("ready");
                std::io::stdin().read_line(&mut line).unwrap();
                let made = make(&local, &named(id)).await;
                // All read what the first one wrote: they share one sandbox.
                let line = "mkdir one 2>/dev/null && echo $PPID$RANDOM-$(date +%N) > token; sleep 0.2; cat token";
                let output = made.sandbox.run(line).await.unwrap();
                let instance = made.sandbox.hello().await.unwrap().instance;
                println!("{} {} {}", made.created, instance, output.text().trim());
            }
            ["hold", id, leashed] => {
                let id = (!id.is_empty()).then(|| (*id).to_owned());
                let wanted = Wanted { id, leashed: *leashed == "leashed", ..Wanted::default() };
                let made = make(&local, &wanted).await;
                println!("{}", made.id);
                std::io::stdout().flush().unwrap();
                tokio::time::sleep(Duration::from_secs(600)).await;
            }
            ["churn", id] => {
                for _ in 0..10 {
                    let made = make(&local, &named(id)).await;
                    // Another process may have deleted it. That must be an error, neither a hang nor a wrong result.
                    if let Ok(output) = made.sandbox.run("echo alive").await {
                        assert_eq!(output.text(), "alive\n");
                    }
                    local.delete(id).await.unwrap();
                }
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Starts another process that holds a sandbox, and returns the sandbox's id.
pub(crate) fn hold(world: &World, id: &str, leashed: bool) -> (Child, String) {
    let mut command = world.again(&["hold", id, if leashed { "leashed" } else { "free" }]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "no sandbox");
    (child, line.trim().to_owned())
}

fn fifty_get_one(world: &World) {
    let id = world.id("race");
    let mut children: Vec<_> = (0..50)
        .map(|_| {
            let mut command = world.again(&["acquire", &id]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            (child, output)
        })
        .collect();
    for (child, _) in &mut children {
        // Closing standard input starts them all at once.
        drop(child.stdin.take());
    }
    let mut makers = 0;
    let mut seen = BTreeSet::new();
    for (mut child, mut output) in children {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(child.wait().unwrap().success(), "{line}");
        let (created, rest) = line.split_once(' ').unwrap();
        makers += usize::from(created == "true");
        seen.insert(rest.to_owned());
    }
    assert_eq!((makers, seen.len()), (1, 1), "{seen:?}");
    run(async { assert!(world.local().delete(&id).await.unwrap()) });
}

fn makers_and_deleters(world: &World) {
    let id = world.id("churn");
    let children: Vec<_> = (0..6).map(|_| world.again(&["churn", &id]).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    run(async { world.local().delete(&id).await }).unwrap();
}
