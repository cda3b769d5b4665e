//! What holding many sandboxes costs one client. A process of its own, in which nothing else has used memory before.

use std::path::Path;
use std::process::Command;

use futures_util::future::join_all;
use podbay_client::provider::{Provided, Provider};

use crate::measure::Table;
use crate::{Bench, config, made, raw};

pub const KUBECONFIG: &str = "PODBAY_BENCH_HOLD";
const IDS: &str = "PODBAY_BENCH_IDS";

/// How many sandboxes are held, and how many pods these are: a client holds as much for the second session to a pod as for
/// the first to another, and the rig is one small machine.
const HELD: usize = 200;
const PODS: usize = 20;

pub async fn measure(bench: &Bench) {
    let provider = bench.raw(config(rig::BUSYBOX)).await;
    let pods = join_all((0..PODS).map(|_| made(&provider))).await;
    let ids: Vec<&str> = pods.iter().map(|provided| provided.id.as_str()).collect();
    let kubeconfig = bench.dir.path().join("kubeconfig");
    let output = Command::new(std::env::current_exe().unwrap())
        .env(KUBECONFIG, &kubeconfig)
        .env(IDS, ids.join(","))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = Table::figures("Memory of one client with 200 sandboxes (10 sessions to each of 20 pods)");
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (what, value) = line.split_once('|').unwrap();
        table.figure(what, value);
    }
    for provided in &pods {
        provider.delete(&provided.id).await.unwrap();
    }
}

/// In the process of its own.
pub async fn hold(kubeconfig: &Path) {
    let ids = std::env::var(IDS).unwrap();
    let ids: Vec<&str> = ids.split(',').collect();
    let provider = raw(kubeconfig, config(rig::BUSYBOX)).await;
    let open = |number: usize| {
        let (provider, id) = (&provider, ids[number % ids.len()]);
        async move {
            let found = provider.reconnect(id).await.unwrap();
            assert!(found.sandbox.run("true").await.unwrap().success());
            found
        }
    };
    // What the first ones bring along for all: code, threads, certificates, a pool of connections.
    let mut held: Vec<Provided> = Vec::new();
    for number in 0..PODS {
        held.push(open(number).await);
    }
    let (few, few_held) = (resident(), held.len());
    while held.len() < few_held + HELD {
        held.push(open(held.len()).await);
    }
    let many = resident();
    println!("resident memory with {few_held}|{few} KiB");
    println!("resident memory with {}|{many} KiB", held.len());
    println!("**per sandbox**|{:.0} KiB", (many.saturating_sub(few)) as f64 / HELD as f64);
    // All of them still work, and at once.
    let results = join_all(held.iter().map(|provided| provided.sandbox.run("true"))).await;
    let working = results.into_iter().filter(|result| result.as_ref().is_ok_and(|output| output.success())).count();
    println!("sandboxes that ran a command, all concurrently|{working}");
}

/// In KiB, all of it: what a client holds isn't only its heap.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
