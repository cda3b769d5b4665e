//! How long sandboxes live.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use podbay_client::Command;
use podbay_client::provider::{Phase, Provider, Query, Wanted};
use podbay_k8s::raw::{CONTAINER, Timing};
use serde_json::json;

use crate::pods::rules;
use crate::pool::pooled;
use crate::provider::{config, provider, wanted};

/// Waits until a sandbox's pod has ended by itself, and how.
async fn until_ended(pods: &Api<Pod>, sandbox: &str, most: Duration) -> Result<(String, Duration)> {
    let start = Instant::now();
    let only = ListParams::default().labels(&format!("podbay.dev/sandbox={sandbox}"));
    loop {
        let pod = pods.list(&only).await?.items.into_iter().next().context("no pod")?;
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        if phase == "Succeeded" || phase == "Failed" {
            return Ok((phase, start.elapsed()));
        }
        ensure!(start.elapsed() < most, "{sandbox} is {phase} after {most:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_ends_itself_when_it_is_idle_and_not_while_a_command_runs() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    // From the pool and without: podbayd learns of its limits by different ways.
    let pool = provider(&namespace, pooled(1))?;
    pool.refill().await?;
    let cold = provider(&namespace, config(rig::BUSYBOX))?;
    for (name, raw) in [("pb-cold", &cold), ("pb-warm", &pool)] {
        let idle_ttl = Some(Duration::from_secs(2));
        let made = raw.get_or_create(&Wanted { idle_ttl, ..wanted(name) }).await?;
        // Nobody is attached to it, and it prints nothing.
        made.sandbox.start(Command::shell("sleep 6")).await?;
        tokio::time::sleep(Duration::from_millis(4500)).await;
        ensure!(made.sandbox.run("true").await?.success(), "{name} ended while a command ran");
        let (phase, after) = until_ended(&pods, name, Duration::from_secs(20)).await?;
        println!("{name}: idle for two seconds, {phase} after {after:?}");
        ensure!(phase == "Succeeded", "{name} {phase}");
        let error = made.sandbox.run("true").await.err().context("it runs on")?.to_string();
        ensure!(error.contains("is gone"), "{error}");
        // It is wanted again: a new one, whose time begins anew.
        let again = raw.get_or_create(&Wanted { idle_ttl, ..wanted(name) }).await?;
        ensure!(again.created && again.sandbox.run("true").await?.success());
        ensure!(raw.delete(name).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxs_time_is_up_whatever_it_does_and_whatever_was_restarted() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    // Both must still live when their containers are killed and have started again. How long that takes is the machine's
    // business: where it was too slow, nothing was tested, and they get more time.
    for (ttl, idle_ttl) in [(12, 5), (40, 20), (160, 80)] {
        if time_is_up(&cluster, Duration::from_secs(ttl), Duration::from_secs(idle_ttl)).await? {
            return Ok(());
        }
        println!("{ttl} s weren't enough");
    }
    anyhow::bail!("a container takes minutes to start")
}

/// Says whether the sandboxes were there for long enough.
async fn time_is_up(cluster: &rig::TestCluster, ttl: Duration, idle_ttl: Duration) -> Result<bool> {
    let namespace = cluster.namespace(rules()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let begun = Instant::now();
    let mut idle_begun = None;
    let mut idle_killed = None;
    let prepared = async {
        let made = raw.get_or_create(&Wanted { ttl: Some(ttl), ..wanted("pb-ttl") }).await?;
        raw.get_or_create(&Wanted { idle_ttl: Some(idle_ttl), ..wanted("pb-idle") }).await?;
        idle_begun = Some(Instant::now());
        made.sandbox.run("echo kept > file").await?;
        // What an OOM kill of the container does. Nobody comes afterwards: podbayd is started by the container itself.
        for name in ["pb-idle", "pb-ttl"] {
            let only = ListParams::default().labels(&format!("podbay.dev/sandbox={name}"));
            let pod = pods.list(&only).await?.items.pop().and_then(|pod| pod.metadata.name).context("no pod")?;
            rig::faults::kill_container(cluster, namespace.name(), &pod, CONTAINER)?;
            idle_killed.get_or_insert_with(Instant::now);
        }
        ensure!(!made.sandbox.take_restarted(), "it was restarted before its container was killed");
        // A command that the old podbayd got before it died isn't run again.
        let read = loop {
            match made.sandbox.run("cat file").await {
                Err(podbay_client::Error::SandboxRestarted { .. }) => {}
                read => break read?,
            }
        };
        ensure!(read.text() == "kept\n", "the workspace is gone");
        ensure!(made.sandbox.take_restarted() && !made.sandbox.take_restarted(), "nobody said that it was restarted");
        anyhow::Ok(made)
    };
    let made = prepared.await;
    // podbayd's clock began a little earlier than this one. Whatever went wrong after their time was up is no failure.
    let second = Duration::from_secs(1);
    let idle_time = idle_begun.map(|begun: Instant| idle_killed.unwrap_or_else(Instant::now).duration_since(begun));
    if begun.elapsed() + second > ttl || idle_time.is_some_and(|time| time + second > idle_ttl) {
        println!("after {:?} and {idle_time:?}: {:?}", begun.elapsed(), made.err());
        return Ok(false);
    }
    let made = made?;
    let (phase, after) = until_ended(&pods, "pb-idle", idle_ttl + Duration::from_secs(60)).await?;
    println!("restarted and idle for {idle_ttl:?}: {phase} after {after:?}");
    ensure!(phase == "Succeeded", "{phase}");
    let command = made.sandbox.start(Command::shell("sleep 600")).await;
    let (phase, after) = until_ended(&pods, "pb-ttl", ttl + Duration::from_secs(60)).await?;
    println!("restarted, {ttl:?} to live, busy ({}): {phase} after {after:?}", command.is_ok());
    let listed = raw.list(&Query { phase: Some(Phase::Terminated), ..Query::default() }).await?;
    ensure!(listed.sandboxes.len() == 2, "{listed:?}");
    let cleaned = raw.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-idle", "pb-ttl"], "{cleaned:?}");
    Ok(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn clean_up_asks_podbayd_before_it_takes_a_sandbox_for_idle() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let busy = raw.get_or_create(&wanted("pb-busy")).await?;
    busy.sandbox.start(Command::shell("sleep 600")).await?;
    raw.get_or_create(&wanted("pb-idle")).await?;
    // As if the last client had gone an hour ago, which is all that a Lease knows.
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let hour = k8s_openapi::jiff::Timestamp::now() - Duration::from_secs(3600);
    let patch = json!({"spec": {"renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(hour)}});
    for name in ["pb-busy", "pb-idle"] {
        leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let cleaned = raw.cleanup(Some(Duration::from_secs(1))).await?;
    ensure!(cleaned.deleted == ["pb-idle"] && cleaned.kept == 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    let stats = raw.stats(Duration::from_secs(600)).await?;
    ensure!((stats.total, stats.idle) == (1, 0), "{stats:?}: its Lease wasn't renewed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_says_nothing_does_not_look_idle() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let heartbeat = Duration::from_secs(2);
    let raw = provider(&namespace, config(rig::BUSYBOX))?.with_timing(Timing { heartbeat, ..Timing::default() });
    let busy = raw.get_or_create(&wanted("pb-busy")).await?;
    let idle = raw.get_or_create(&wanted("pb-idle")).await?;
    idle.sandbox.run("true").await?;
    let sleep = tokio::spawn(async move { busy.sandbox.run("sleep 100").await });
    // The last heartbeat that sees the idle one's command.
    tokio::time::sleep(heartbeat * 5 / 2).await;
    let active = |page: podbay_client::provider::Page| -> Result<Vec<u64>> {
        page.sandboxes.iter().map(|one| one.active_ms.context("never")).collect()
    };
    let before = active(raw.list(&Query::default()).await?)?;
    tokio::time::sleep(heartbeat * 5 / 2).await;
    let after = active(raw.list(&Query::default()).await?)?;
    sleep.abort();
    ensure!(after[0] >= before[0] + 1_500, "busy: no heartbeat between {} and {}", before[0], after[0]);
    ensure!(after[1] == before[1], "idle: renewed from {} to {}", before[1], after[1]);
    drop(idle);
    Ok(())
}

/// A podbayd that hung in a container that ran kept its sandbox forever: every run of the reaper asked it, and got no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_podbayd_is_stuck_is_reaped_in_the_end() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let silence = Duration::from_secs(4);
    let timing = Timing { reaper_silence: silence, ..Timing::default() };
    let raw = provider(&namespace, config(rig::BUSYBOX))?.with_timing(timing);
    let busy = raw.get_or_create(&wanted("pb-busy")).await?;
    busy.sandbox.start(Command::shell("sleep 600")).await?;
    drop(raw.get_or_create(&wanted("pb-stuck")).await?);
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let only = ListParams::default().labels("podbay.dev/sandbox=pb-stuck");
    let pod = pods.list(&only).await?.items.remove(0).metadata.name.context("no name")?;
    // From outside: no command can do that.
    let stop = "n=0; for p in /proc/[0-9]*; do if tr '\\0' ' ' < $p/cmdline | grep -q ' [s]erve '; then \
                kill -STOP ${p#/proc/} && n=1; fi; done; test $n = 1";
    let mut exec = cluster.kubectl();
    exec.args(["--namespace", namespace.name(), "exec", &pod, "-c", CONTAINER, "--", "sh", "-c", stop]);
    ensure!(exec.status()?.success(), "podbayd can't be stopped");

    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let idle = json!({"spec": {"renewTime": crate::live::ago(3600)}});
    for name in ["pb-busy", "pb-stuck"] {
        leases.patch(name, &PatchParams::default(), &Patch::Merge(&idle)).await?;
    }
    let most = Some(Duration::from_secs(1));
    let noted = async || -> Result<Option<String>> {
        let annotations = leases.get("pb-stuck").await?.metadata.annotations.unwrap_or_default();
        Ok(annotations.get("podbay.dev/silent-since").cloned())
    };
    let cleaned = raw.cleanup(most).await?;
    ensure!(cleaned.deleted.is_empty() && cleaned.failed.len() == 1, "deleted at its first silence: {cleaned:?}");
    let first = noted().await?.context("its silence wasn't noted")?;
    // Somebody wanted it meanwhile: what was noted before no longer counts.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let used = json!({"spec": {"renewTime": crate::live::ago(0)}});
    leases.patch("pb-stuck", &PatchParams::default(), &Patch::Merge(&used)).await?;
    tokio::time::sleep(silence).await;
    let cleaned = raw.cleanup(most).await?;
    ensure!(cleaned.deleted.is_empty() && cleaned.failed.len() == 1, "deleted for an old silence: {cleaned:?}");
    ensure!(noted().await?.is_some_and(|second| second != first), "the new silence wasn't noted");
    tokio::time::sleep(silence + Duration::from_secs(1)).await;
    let cleaned = raw.cleanup(most).await?;
    ensure!(cleaned.deleted == ["pb-stuck"], "{cleaned:?}");
    ensure!(busy.sandbox.run("true").await?.success(), "the busy one is gone");
    Ok(())
}
