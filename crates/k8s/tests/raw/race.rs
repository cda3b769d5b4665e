//! Real processes that want the same thing at once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Provider, Wanted};
use podbay_k8s::raw::Raw;
use podbay_k8s::{Access, Cluster};

use crate::pods::rules;
use crate::pool::{pooled, until_available};
use crate::provider::{provider, wanted};

const PROCESSES: usize = 20;
const POOL: usize = 5;

/// One of the processes of the test below.
async fn race(kubeconfig: String) -> Result<()> {
    let access = Access { kubeconfig: Some(kubeconfig.into()), ..Access::default() };
    let raw = Raw::new(Cluster::connect(&access).await?, pooled(POOL as u32))?;
    let own = raw.get_or_create(&Wanted::default()).await?;
    let owner = own.sandbox.run("echo $HOSTNAME $$ >> owners; cat owners; hostname").await?;
    let thread = raw.get_or_create(&wanted("pb-thread")).await?;
    let instance = thread.sandbox.hello().await?.instance;
    let lines = owner.text().lines().count();
    println!(
        "got {} {lines} {} {instance} {}",
        own.id,
        thread.created,
        owner.text().lines().last().unwrap_or_default()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_processes_race_for_five_pods_and_for_one_thread() -> Result<()> {
    // The test starts itself twenty times.
    if let Ok(kubeconfig) = std::env::var("RACE_KUBECONFIG") {
        return race(kubeconfig).await;
    }
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, pooled(POOL as u32))?;
    raw.refill().await?;
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("config");
    std::fs::write(&kubeconfig, namespace.access().kubeconfig())?;
    let start = Instant::now();
    let children = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe()?);
            let test = "race::twenty_processes_race_for_five_pods_and_for_one_thread";
            command.args([test, "--exact", "--nocapture"]).env("RACE_KUBECONFIG", &kubeconfig);
            Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
        })
        .collect::<Result<Vec<_>>>()?;
    let outputs = tokio::task::spawn_blocking(move || {
        children.into_iter().map(|child| Ok(child.wait_with_output()?)).collect::<Result<Vec<_>>>()
    })
    .await??;
    println!("{PROCESSES} processes in {:?}", start.elapsed());
    let mut got = Vec::new();
    for output in outputs {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let line = text.lines().find_map(|line| line.split_once("got ")).context("a child said nothing")?.1.to_owned();
        got.push(line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    }
    let column = |index: usize| got.iter().map(|words| words[index].clone()).collect::<BTreeSet<_>>();
    ensure!(column(0).len() == PROCESSES, "a sandbox was given out twice: {got:?}");
    ensure!(column(1).len() == 1 && column(4).len() == PROCESSES, "a pod has two owners: {got:?}");
    ensure!(got.iter().filter(|words| words[2] == "true").count() == 1, "not one made the thread's: {got:?}");
    ensure!(column(3).len() == 1, "the thread has several sandboxes: {got:?}");

    // Each sandbox has one pod and each pod one sandbox; the pool fills up again and no further.
    until_available(&raw, POOL).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let mut owned: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut waiting = 0;
    for pod in pods.list(&ListParams::default()).await?.items {
        let labels = pod.metadata.labels.unwrap_or_default();
        let name = pod.metadata.name.unwrap_or_default();
        match labels.get("podbay.dev/sandbox") {
            Some(sandbox) => owned.entry(sandbox.clone()).or_default().push(name),
            None => waiting += 1,
        }
    }
    ensure!(owned.len() == PROCESSES + 1 && owned.values().all(|pods| pods.len() == 1), "{owned:?}");
    ensure!(waiting == POOL, "{waiting} pods wait");
    for lease in leases.list(&ListParams::default()).await?.items {
        let name = lease.metadata.name.unwrap_or_default();
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let pod = owned.get(&name).map(|pods| pods[0].as_str());
        ensure!(name == "pb-pool-default" || holder.split('/').next() == pod, "{name} has {holder}, not {pod:?}");
    }
    let claimed = owned.values().flatten().filter(|pod| pod.starts_with("pb-warm-")).count();
    println!("{claimed} of {} came from the pool", owned.len());
    ensure!(claimed >= POOL, "the pool wasn't used");

    // And all of it goes.
    let cleaned = raw.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.deleted.len() == PROCESSES + 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    Ok(())
}
