//! Live work is never deleted: not by a reaper, a filler of a pool or a failed creator that saw something old, nor because
//! somebody's clock is wrong. Requests are held back at the moment that matters, so nothing here is left to luck.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use podbay_client::Sandbox;
use podbay_client::provider::{Cleaned, Provider, Wanted};
use podbay_k8s::raw::{Config, Raw, Timing};
use rig::faults::{Answer, ApiProxy, Held};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::faults::through;
use crate::pods::rules;
use crate::pool::{pooled, until_available};
use crate::provider::{config, provider, wanted};

const HOUR: i64 = 3600;

pub(crate) fn ago(seconds: i64) -> MicroTime {
    MicroTime(Timestamp::now() - Duration::from_secs(seconds.unsigned_abs()))
}

/// Writes what is to be seen again if the sandbox lives.
async fn work(sandbox: &Sandbox) -> Result<()> {
    ensure!(sandbox.run("echo live > work").await?.success());
    Ok(())
}

/// Whether the work is still there, a while after whatever might have deleted it.
async fn is_live(sandbox: &Sandbox) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let text = sandbox.run("cat work").await.context("the sandbox is gone")?.text().into_owned();
    ensure!(text == "live\n", "the work is gone: {text:?}");
    Ok(())
}

/// The reaper deleted by UID, which a revived thread's Lease keeps: whoever came after the listing lost a new sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_revived_after_the_reaper_listed_it_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let reaper = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let ttl = Some(Duration::from_secs(1800));
    raw.get_or_create(&Wanted { ttl, ..wanted("pb-revived") }).await?;
    let pod = pods.list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
    // Its time was up half an hour ago.
    let patch = json!({"spec": {"acquireTime": ago(HOUR)}});
    leases.patch("pb-revived", &PatchParams::default(), &Patch::Merge(&patch)).await?;

    let mut held = proxy.hold(Method::DELETE, "/leases/pb-revived");
    let reaping = tokio::spawn(async move { reaper.cleanup(None).await });
    held.arrived().await?;
    let revived = raw.get_or_create(&Wanted { ttl, ..wanted("pb-revived") }).await?;
    ensure!(revived.created);
    work(&revived.sandbox).await?;
    drop(held);
    let cleaned = reaping.await??;
    ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    is_live(&revived.sandbox).await
}

/// Attaching wrote to the Lease once a minute only, so that a reaper that had found it idle before deleted it after.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_attached_to_after_it_was_found_idle_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let reaper = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let made = raw.get_or_create(&wanted("pb-idle")).await?;
    work(&made.sandbox).await?;
    drop(made);
    for reconnect in [true, false] {
        let mut held = proxy.hold(Method::DELETE, "/leases/pb-idle");
        let reaping = until_found_idle(&reaper, &mut held).await?;
        let found = match reconnect {
            true => raw.reconnect("pb-idle").await?,
            false => raw.get_or_create(&wanted("pb-idle")).await?,
        };
        ensure!(!found.created);
        // The reaper looks again, and on a slow machine a second has passed by then. It mustn't be idle once more.
        let work = found.sandbox.start("sleep 600").await?.id;
        drop(held);
        let cleaned = reaping.await??;
        ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1, "{cleaned:?}");
        is_live(&found.sandbox).await?;
        found.sandbox.kill(&work).await?;
        drop(found);
    }
    Ok(())
}

/// Lets a reaper run until it wants to delete a sandbox. Before that the sandbox may have been used too recently, or be too slow to
/// say that it is idle.
async fn until_found_idle(reaper: &Raw, held: &mut Held) -> Result<JoinHandle<podbay_client::Result<Cleaned>>> {
    let arrived = held.arrived();
    tokio::pin!(arrived);
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let reaper = reaper.clone();
        let mut reaping = tokio::spawn(async move { reaper.cleanup(Some(Duration::from_secs(1))).await });
        tokio::select! {
            arrived = &mut arrived => {
                arrived?;
                return Ok(reaping);
            }
            cleaned = &mut reaping => {
                let cleaned = cleaned??;
                ensure!(cleaned.deleted.is_empty(), "not held: {cleaned:?}");
                ensure!(Instant::now() < end, "never found idle: {cleaned:?}");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// A filler deleted pods that it had seen warming by UID; one of them had been added and claimed since.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_claimed_while_the_pool_is_weeded_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let first = provider(&namespace, pooled(1))?;
    first.refill().await?;
    drop(first);
    let name = pods.list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    let state = async |state: &str| {
        let patch = json!({"metadata": {"labels": {"podbay.dev/state": state}}});
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
    };
    state("warming").await?;
    // A release with another configuration finds a pod that is out of date.
    let newer = Config { env: [("NEW".into(), "1".into())].into(), ..pooled(1) };
    let filler = through(&namespace, proxy.port(), newer).await?;
    let path = format!("/pods/{name}");
    let mut patched = proxy.hold(Method::PATCH, &path);
    let mut deleted = proxy.hold(Method::DELETE, &path);
    let filling = tokio::spawn(async move { filler.refill().await });
    tokio::select! {
        arrived = patched.arrived() => arrived?,
        arrived = deleted.arrived() => arrived?,
    }
    state("warm").await?;
    let claimed = provider(&namespace, pooled(1))?.get_or_create(&wanted("pb-claimed")).await?;
    ensure!(pods.get(&name).await?.metadata.labels.unwrap_or_default()["podbay.dev/state"] == "claimed");
    work(&claimed.sandbox).await?;
    drop((patched, deleted));
    filling.await??;
    is_live(&claimed.sandbox).await
}

/// Of two replicas on one thread, the one that couldn't reach the pod deleted what the other was using.
#[tokio::test(flavor = "multi_thread")]
async fn a_creator_that_fails_leaves_what_another_uses() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let refuse = || Answer::new(StatusCode::UNPROCESSABLE_ENTITY);

    // Both wait for a new pod.
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let fails = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let mut held = proxy.hold(Method::GET, "/exec");
    let creating = tokio::spawn(async move { fails.get_or_create(&wanted("pb-new")).await.map(drop) });
    held.arrived().await?;
    let other = raw.get_or_create(&wanted("pb-new")).await?;
    work(&other.sandbox).await?;
    proxy.answer(refuse().on("/exec"));
    drop(held);
    ensure!(creating.await?.is_err(), "the first replica got through");
    is_live(&other.sandbox).await?;
    proxy.step_aside();

    // Both name the same pod of a pool.
    let raw = provider(&namespace, pooled(1))?;
    raw.refill().await?;
    until_available(&raw, 1).await?;
    let fails = through(&namespace, proxy.port(), pooled(1)).await?;
    let mut held = proxy.hold(Method::PATCH, "/pods/");
    let creating = tokio::spawn(async move { fails.get_or_create(&wanted("pb-pooled")).await.map(drop) });
    held.arrived().await?;
    let other = raw.get_or_create(&wanted("pb-pooled")).await?;
    work(&other.sandbox).await?;
    proxy.answer(Answer::new(StatusCode::FORBIDDEN).to(Method::PATCH).on("/pods/"));
    drop(held);
    ensure!(creating.await?.is_err(), "the first replica got through");
    is_live(&other.sandbox).await
}

/// Nobody uses what nobody has finished: a creator that fails removes it, also when others wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_creator_that_fails_removes_what_others_only_wait_for() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let slow = Config { setup_script: Some("sleep 3; exit 7".into()), ..config(rig::BUSYBOX) };
    let replicas = [provider(&namespace, slow.clone())?, provider(&namespace, slow)?];
    let wanted = wanted("pb-vain");
    let (one, other) = tokio::join!(replicas[0].get_or_create(&wanted), replicas[1].get_or_create(&wanted));
    for failed in [one.map(drop), other.map(drop)] {
        let error = failed.err().context("it started")?.to_string();
        ensure!(error.contains("exit code 7"), "{error}");
    }
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    ensure!(leases.get_opt("pb-vain").await?.is_none(), "the Lease stays");
    Ok(())
}

/// A claim never wrote to the Lease again, so one that took longer than the reaper's patience gave out a pod whose Lease was
/// gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_lease_was_reaped_meanwhile_begins_again() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    provider(&namespace, pooled(1))?.refill().await?;
    let timing = Timing { claiming: Duration::from_secs(1), ..Timing::default() };
    let raw = through(&namespace, proxy.port(), pooled(1)).await?.with_timing(timing);
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let mut held = proxy.hold(Method::PATCH, "/pods/");
    let claiming = tokio::spawn(async move { (raw.get_or_create(&wanted("pb-slow")).await, raw) });
    held.arrived().await?;
    tokio::time::sleep(timing.claiming).await;
    leases.delete("pb-slow", &DeleteParams::default()).await?;
    drop(held);
    let (made, _raw) = claiming.await?;
    let made = made?;
    work(&made.sandbox).await?;
    is_live(&made.sandbox).await?;
    ensure!(leases.get_opt("pb-slow").await?.is_some(), "a sandbox without a Lease was given out");
    Ok(())
}

/// The reaper looked at a pod before it knew whether anybody was claiming it: where listing took longer than a claim may, it
/// deleted a sandbox that had just been claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_claimed_while_the_reaper_lists_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let raw = provider(&namespace, pooled(1))?;
    raw.refill().await?;
    until_available(&raw, 1).await?;
    let reaper = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    // The reaper has listed the pods, and not yet the Leases, when somebody claims one.
    let mut held = proxy.hold(Method::GET, "/leases?");
    let reaping = tokio::spawn(async move { reaper.cleanup(None).await });
    held.arrived().await?;
    let claimed = raw.get_or_create(&wanted("pb-claimed")).await?;
    work(&claimed.sandbox).await?;
    // As if the list had taken so long.
    let patch = json!({"spec": {"acquireTime": ago(60), "renewTime": ago(60)}});
    leases.patch("pb-claimed", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    drop(held);
    let cleaned = reaping.await??;
    ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    is_live(&claimed.sandbox).await
}

/// Of two replicas on one thread, one claims the pod of the pool, and the other uses it. The first one's podbayd call failed,
/// and it deleted the pod: the second had written to the Lease only before the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_turns_out_useless_leaves_what_another_uses() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxies = [ApiProxy::start(&cluster).await?, ApiProxy::start(&cluster).await?];
    let filler = provider(&namespace, pooled(1))?;
    filler.refill().await?;
    drop(filler);
    // A ttl has to be told to podbayd, which takes an exec.
    let pool = Config { ttl: Some(1800), ..pooled(1) };
    let [first, second] = [0, 1].map(|index: usize| through(&namespace, proxies[index].port(), pool.clone()));
    let (first, second) = (first.await?, second.await?);
    // The second creates the Lease, and is about to claim.
    let mut claiming = proxies[1].hold(Method::PATCH, "/pods/");
    let other = tokio::spawn(async move { (second.get_or_create(&wanted("pb-both")).await, second) });
    claiming.arrived().await?;
    // The first attaches and claims; its exec hangs.
    let mut exec = proxies[0].hold(Method::GET, "/exec");
    let useless = tokio::spawn(async move { first.get_or_create(&wanted("pb-both")).await });
    exec.arrived().await?;
    drop(claiming);
    let (other, _second) = other.await?;
    let other = other?;
    work(&other.sandbox).await?;
    proxies[0].answer(Answer::new(StatusCode::UNPROCESSABLE_ENTITY).on("/exec"));
    drop(exec);
    drop(useless.await?);
    is_live(&other.sandbox).await
}

/// A creator that was slower than others wait for handed out its pod all the same, although its Lease named another.
#[tokio::test(flavor = "multi_thread")]
async fn a_creator_that_was_taken_for_dead_gets_the_pod_of_whoever_came_later() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let slow = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let mut held = proxy.hold(Method::GET, "/exec");
    let creating = tokio::spawn(async move { (slow.get_or_create(&wanted("pb-slow")).await, slow) });
    held.arrived().await?;
    // By its Lease it should have been done long ago, and its pod is gone.
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let pod = pods.list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    let patch = json!({"spec": {"acquireTime": ago(HOUR), "holderIdentity": format!("{pod}x")}});
    leases.patch("pb-slow", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let later = provider(&namespace, config(rig::BUSYBOX))?.get_or_create(&wanted("pb-slow")).await?;
    work(&later.sandbox).await?;
    drop(held);
    let (created, _slow) = creating.await?;
    let text = created?.sandbox.run("cat work").await?.text().into_owned();
    ensure!(text == "live\n", "the two have different pods: {text:?}");
    is_live(&later.sandbox).await
}

/// Ages were measured by this machine's clock. Here it is an hour ahead of the API server's.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_ahead_ends_nothing_early() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    proxy.set_clock(-HOUR);
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let direct = provider(&namespace, pooled(1))?;
    direct.refill().await?;
    let ahead = through(&namespace, proxy.port(), pooled(1)).await?;

    // Somebody is about to claim a pod: by the API server's clock the Lease is new.
    let pod = pods.list(&ListParams::default()).await?.items.remove(0).metadata;
    let lease = json!({
        "metadata": {
            "name": "pb-claiming",
            "labels": {"app.kubernetes.io/managed-by": "podbay", "podbay.dev/sandbox": "pb-claiming"},
        },
        "spec": {
            "holderIdentity": format!("{}/{}", pod.name.context("no name")?, pod.uid.context("no UID")?),
            "acquireTime": ago(HOUR),
            "renewTime": ago(HOUR),
        },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let cleaned = ahead.cleanup(Some(Duration::ZERO)).await?;
    ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1, "a claim in progress was reaped: {cleaned:?}");
    leases.delete("pb-claiming", &DeleteParams::default()).await?;

    // A sandbox with half an hour to live, which by the API server's clock has begun just now.
    let ttl = Some(Duration::from_secs(1800));
    let made = direct.get_or_create(&Wanted { ttl, ..wanted("pb-ttl") }).await?;
    work(&made.sandbox).await?;
    let patch = json!({"spec": {"acquireTime": ago(HOUR), "renewTime": ago(HOUR)}});
    leases.patch("pb-ttl", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let found = ahead.get_or_create(&wanted("pb-ttl")).await?;
    ensure!(!found.created);
    tokio::time::sleep(Duration::from_secs(2)).await;
    is_live(&found.sandbox).await.context("attaching shortened its life")?;
    let cleaned = ahead.cleanup(None).await?;
    ensure!(cleaned.deleted.is_empty(), "{cleaned:?}");
    // What is written is the API server's time as well.
    let renewed = leases.get("pb-ttl").await?.spec.and_then(|spec| spec.renew_time).context("no time")?.0;
    let skew = Timestamp::now().as_second() - renewed.as_second();
    ensure!((HOUR - 60..HOUR + 60).contains(&skew), "written {skew} s ago");
    Ok(())
}

/// What operations cost the API server: docs/raw.md has these numbers, without the two that only the first sandbox takes.
#[tokio::test(flavor = "multi_thread")]
async fn operations_take_few_requests() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let cost = |what: &str, most: usize| {
        let requests = proxy.requests();
        println!("{what}: {} requests\n  {}", requests.len(), requests.join("\n  "));
        ensure!(requests.len() <= most, "{what} takes {} requests", requests.len());
        Ok(())
    };
    let made = raw.get_or_create(&wanted("pb-cost")).await?;
    ensure!(made.sandbox.run("true").await?.success());
    cost("cold create", 12)?;
    let found = raw.get_or_create(&wanted("pb-cost")).await?;
    ensure!(found.sandbox.run("true").await?.success());
    cost("attach", 5)?;
    let found = raw.reconnect("pb-cost").await?;
    ensure!(found.sandbox.run("true").await?.success());
    cost("reconnect", 4)?;
    ensure!(raw.delete("pb-cost").await?);
    cost("delete", 4)
}
