//! Nothing leaks, nothing is stuck, and what is in the way is named.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use podbay_client::provider::{Phase, Provider, Query, Wanted};
use podbay_k8s::raw::{CONTAINER, Config, Timing};
use rig::faults::{Answer, ApiProxy};
use serde_json::{Value, json};

use crate::faults::through;
use crate::live::ago;
use crate::pods::rules;
use crate::pool::pooled;
use crate::provider::{config, provider, wanted};

/// A Lease as a client leaves it, and a pod of it.
struct Left<'a> {
    cluster: &'a rig::TestCluster,
    namespace: &'a rig::Namespace,
}

impl Left<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.admin(), self.namespace.name())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.admin(), self.namespace.name())
    }

    /// The sandbox was begun and last used at a time. The pod's name is the sandbox's with `-0` behind it.
    async fn behind(&self, name: &str, finished: bool, since: MicroTime, spec: Value) -> Result<Pod> {
        let labels = json!({"app.kubernetes.io/managed-by": "podbay", "podbay.dev/sandbox": name});
        let pod = format!("{name}-0");
        let lease = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"holderIdentity": pod, "acquireTime": since, "renewTime": since, "leaseDurationSeconds": 60},
        });
        let lease = self.leases().create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        let owner = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": name, "uid": lease.metadata.uid,
        });
        let made = json!({"metadata": {"name": pod, "labels": labels, "ownerReferences": [owner]}, "spec": spec});
        let made = self.pods().create(&PostParams::default(), &serde_json::from_value(made)?).await?;
        if finished {
            let holder = format!("{pod}/{}", made.metadata.uid.as_deref().unwrap_or_default());
            let patch = json!({"spec": {"holderIdentity": holder}});
            self.leases().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(made)
    }

    /// A pod on a node that doesn't exist, whose status nobody corrects. The garbage collector removes the pods of such a
    /// node when it has missed the node for 40 s, so every test has a node of its own.
    fn ghostly(&self) -> Value {
        let mut spec = container(rig::BUSYBOX);
        spec["nodeName"] = format!("ghost-{}", self.namespace.name()).into();
        spec
    }

    /// A running sandbox on a node that doesn't exist.
    async fn on_a_ghost(&self, name: &str, since: MicroTime, ready: bool) -> Result<()> {
        let pod = self.behind(name, true, since, self.ghostly()).await?.metadata.name.context("no name")?;
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{
                "name": CONTAINER, "image": rig::BUSYBOX, "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        }});
        self.pods().patch_status(&pod, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }
}

fn container(image: &str) -> Value {
    json!({
        "containers": [{"name": CONTAINER, "image": image, "imagePullPolicy": "Never", "command": ["sleep", "3600"]}],
        "terminationGracePeriodSeconds": 0,
    })
}

async fn until_gone(pods: &Api<Pod>, name: &str) -> Result<()> {
    let start = Instant::now();
    while pods.get_opt(name).await?.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
        ensure!(start.elapsed() < Duration::from_secs(20), "the pod {name} stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A creator was killed and its pod couldn't start: the thread was blocked, and its pod stayed, forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_whose_killed_creator_left_a_pod_that_cannot_start_goes_on() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let mut nowhere = container(rig::BUSYBOX);
    nowhere["nodeSelector"] = json!({"no": "such"});
    for (name, spec) in [("pb-image", container("localhost/none:1")), ("pb-node", nowhere)] {
        left.behind(name, false, ago(300), spec.clone()).await?;
        left.behind(&format!("{name}-reaped"), false, ago(300), spec.clone()).await?;
        // This one's creator may be alive.
        left.behind(&format!("{name}-new"), false, ago(0), spec).await?;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    for name in ["pb-image", "pb-node"] {
        let start = Instant::now();
        let made = raw.get_or_create(&wanted(name)).await?;
        ensure!(made.created && made.sandbox.run("echo yes").await?.text() == "yes\n");
        ensure!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
        until_gone(&left.pods(), &format!("{name}-0")).await?;
    }
    let cleaned = raw.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-image-reaped", "pb-node-reaped"] && cleaned.kept == 4, "{cleaned:?}");
    // Whoever attaches to one that can't start is told why, at once, and removes what its creator would remove.
    for (name, word) in [("pb-image-new", "ErrImageNeverPull"), ("pb-node-new", "it can't be scheduled on any node")] {
        let error = raw.get_or_create(&wanted(name)).await.err().context("it started")?.to_string();
        ensure!(error.contains(word), "{error}");
        ensure!(left.leases().get_opt(name).await?.is_none(), "{name} stays");
    }
    Ok(())
}

/// The pod that a thread had before it was revived stayed forever: its Lease was still there.
#[tokio::test(flavor = "multi_thread")]
async fn the_pod_before_goes_when_a_thread_is_revived() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let before = left.behind("pb-again", true, ago(0), left.ghostly()).await?;
    // One of a client that was killed after it had revived the sandbox, and before it had deleted the old pod.
    let owner = before.metadata.owner_references.clone();
    let mut stray: Pod = serde_json::from_value(json!({"spec": container("localhost/none:1")}))?;
    stray.metadata.name = Some("pb-again-stray".into());
    stray.metadata.labels = before.metadata.labels.clone();
    stray.metadata.owner_references = owner;
    left.pods().create(&PostParams::default(), &stray).await?;
    let patch = json!({"status": {"phase": "Succeeded"}});
    left.pods().patch_status("pb-again-0", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let made = raw.get_or_create(&wanted("pb-again")).await?;
    ensure!(made.created);
    until_gone(&left.pods(), "pb-again-0").await?;
    let cleaned = raw.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-again-stray"] && cleaned.kept == 1, "{cleaned:?}");
    ensure!(made.sandbox.run("true").await?.success());
    Ok(())
}

/// With a quota below the pool's size nothing became warm, and a full one was told as «lost its pod 20 times».
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_filled_as_far_as_it_goes_and_named_when_it_is_full() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.admin(), namespace.name());
    let quota = json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    while quotas.get("two").await?.status.and_then(|status| status.hard).is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let raw = provider(&namespace, pooled(5))?;
    let error = raw.refill().await.err().context("five fit into two")?.to_string();
    ensure!(error.contains("quota") && error.contains("two"), "{error}");
    let status = raw.pool_status().await?;
    ensure!((status.available, status.target) == (2, 5), "{status:?}");
    let cold = provider(&namespace, config(rig::BUSYBOX))?;
    let start = Instant::now();
    let error = cold.get_or_create(&wanted("pb-full")).await.err().context("a third fits")?.to_string();
    println!("after {:?}: {error}", start.elapsed());
    ensure!(error.contains("exceeded quota: two") && error.contains("raise the quota"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    ensure!(leases.get_opt("pb-full").await?.is_none(), "a Lease stays");
    Ok(())
}

/// Attaching to a sandbox on a lost node took half a minute each time, and didn't say what was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_named_at_once() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    left.on_a_ghost("pb-lost", ago(0), false).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let wanted = wanted("pb-lost");
    for attach in [raw.get_or_create(&wanted), raw.reconnect("pb-lost")] {
        let start = Instant::now();
        let error = attach.await.err().context("it answered")?.to_string();
        ensure!(error.contains("node ghost") && error.contains("node_loss_tolerance"), "{error}");
        ensure!(start.elapsed() < Duration::from_secs(3), "after {:?}", start.elapsed());
    }
    Ok(())
}

/// Pools stayed, and their pods with them, when the last program that used them was gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_nobody_looks_after_is_reaped_and_its_sandboxes_stay() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let raw = provider(&namespace, pooled(1))?;
    raw.refill().await?;
    let used = raw.get_or_create(&wanted("pb-used")).await?;
    raw.refill().await?;
    drop(raw);
    let reaper = provider(&namespace, config(rig::BUSYBOX))?;
    let cleaned = reaper.cleanup(Some(Duration::from_secs(60))).await?;
    ensure!(cleaned.deleted.is_empty(), "a pool that was filled just now was reaped: {cleaned:?}");
    let patch = json!({"spec": {"renewTime": ago(2 * 86_400)}});
    left.leases().patch("pb-pool-default", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let cleaned = reaper.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-pool-default"] && cleaned.kept == 1, "{cleaned:?}");
    let start = Instant::now();
    while left.pods().list(&ListParams::default()).await?.items.len() > 1 {
        ensure!(start.elapsed() < Duration::from_secs(30), "the pool's pods stay");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ensure!(used.sandbox.run("true").await?.success());
    Ok(())
}

/// A list that took too long (410) ended the reaper's run, with all that it had found.
#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_goes_on_after_a_list_was_forgotten() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    left.behind("pb-over", false, ago(300), container("localhost/none:1")).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let reaper = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    for path in ["/leases?", "/pods?"] {
        proxy.answer(Answer::new(StatusCode::GONE).to(Method::GET).on(path).times(2));
    }
    let cleaned = reaper.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-over"] && cleaned.failed.is_empty(), "{cleaned:?}");
    Ok(())
}

/// Every sandbox that couldn't be reached cost the reaper fifteen seconds.
#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_that_cannot_be_reached_do_not_hold_the_reaper_up() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    for number in 0..40 {
        left.on_a_ghost(&format!("pb-{number:02}"), ago(7200), number % 2 == 0).await?;
    }
    left.behind("pb-over", false, ago(7200), container("localhost/none:1")).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let start = Instant::now();
    let cleaned = raw.cleanup(Some(Duration::from_secs(3600))).await?;
    println!("40 out of reach: {:?}", start.elapsed());
    ensure!(cleaned.deleted == ["pb-over"], "{cleaned:?}");
    ensure!(cleaned.failed.len() == 40 && cleaned.failed.iter().all(|(_, why)| why.contains("ghost")), "{cleaned:?}");
    ensure!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
    Ok(())
}

/// A mesh's sidecar keeps the pod of an ended sandbox running, so it counted as running forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_beside_a_sidecar_ends_and_is_revived() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let sidecar = json!({"spec": {"containers": [{
        "name": "proxy", "image": rig::BUSYBOX, "imagePullPolicy": "Never",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    }]}});
    let raw = provider(&namespace, Config { pod_template_overrides: sidecar, ..config(rig::BUSYBOX) })?;
    // On a busy machine a few seconds pass before the first answer.
    let idle_ttl = Some(Duration::from_secs(10));
    let made = raw.get_or_create(&Wanted { idle_ttl, ..wanted("pb-mesh") }).await?;
    ensure!(made.sandbox.run("true").await?.success());
    let over = Query { phase: Some(Phase::Terminated), ..Query::default() };
    let start = Instant::now();
    while raw.list(&over).await?.sandboxes.is_empty() {
        ensure!(start.elapsed() < Duration::from_secs(28), "it is never over");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let error = made.sandbox.run("true").await.err().context("it runs on")?.to_string();
    ensure!(error.contains("is gone"), "{error}");
    let again = raw.get_or_create(&Wanted { idle_ttl: Some(Duration::from_secs(600)), ..wanted("pb-mesh") }).await?;
    ensure!(again.created && again.sandbox.run("true").await?.success());
    Ok(())
}

/// A container that crashed twice is started again after ten seconds: attaching to it meanwhile was an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_in_a_crash_loop_is_waited_for() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let made = raw.get_or_create(&wanted("pb-crash")).await?;
    made.sandbox.run("echo kept > file").await?;
    let pod = left.pods().list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    let ours = async || {
        let statuses = left.pods().get(&pod).await?.status.and_then(|status| status.container_statuses);
        statuses.into_iter().flatten().next().context("no status")
    };
    // Whenever it runs again it crashes again. On a busy machine the kubelet may tell of the first pause only when it is over.
    let (mut crashed, start) = (None, Instant::now());
    loop {
        let status = ours().await?;
        let state = status.state.unwrap_or_default();
        if state.waiting.and_then(|waiting| waiting.reason).as_deref() == Some("CrashLoopBackOff") {
            break;
        }
        ensure!(start.elapsed() < Duration::from_secs(60), "no crash loop after {} restarts", status.restart_count);
        if state.running.is_some() && crashed.replace(status.restart_count) != Some(status.restart_count) {
            rig::faults::kill_container(&cluster, namespace.name(), &pod, CONTAINER)?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let found = raw.get_or_create(&wanted("pb-crash")).await?;
    ensure!(!found.created && found.sandbox.run("cat file").await?.text() == "kept\n");
    Ok(())
}

/// Renewing the pool's Lease could take thirty seconds, twice as long as others wait before they take it.
#[tokio::test(flavor = "multi_thread")]
async fn a_filler_that_cannot_renew_its_lease_stops_before_others_take_it() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    let slow = Config { setup_script: Some("sleep 60".into()), ..pooled(1) };
    let filler = through(&namespace, proxy.port(), slow).await?;
    let filling = tokio::spawn(async move { filler.refill().await });
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), namespace.name());
    let start = Instant::now();
    while leases.get_opt("pb-pool-default").await?.is_none() {
        ensure!(start.elapsed() < Duration::from_secs(20), "it doesn't begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (taken, mut held) = (Instant::now(), proxy.hold(Method::GET, "/leases/pb-pool-default"));
    held.arrived().await?;
    let error = filling.await?.err().context("it was filled")?.to_string();
    ensure!(error.contains("couldn't be renewed"), "{error}");
    ensure!(taken.elapsed() < Duration::from_secs(15), "it went on for {:?}", taken.elapsed());
    Ok(())
}

/// Deleting a pod of a pool by its name once went past a claim that was faster.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_pool_that_is_deleted_by_name_is_not_one_that_was_claimed() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let proxy = ApiProxy::start(&cluster).await?;
    let raw = provider(&namespace, pooled(1))?;
    raw.refill().await?;
    let name = left.pods().list(&ListParams::default()).await?.items.remove(0).metadata.name.context("no name")?;
    let deleter = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let path = format!("/pods/{name}");
    let (mut patched, mut deleted) = (proxy.hold(Method::PATCH, &path), proxy.hold(Method::DELETE, &path));
    let pod = name.clone();
    let deleting = tokio::spawn(async move { deleter.delete(&pod).await });
    tokio::select! {
        arrived = patched.arrived() => arrived?,
        arrived = deleted.arrived() => arrived?,
    }
    let claimed = raw.get_or_create(&wanted("pb-mine")).await?;
    drop((patched, deleted));
    ensure!(!deleting.await??, "it says that it deleted it");
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(claimed.sandbox.run("true").await?.success());
    // By then it is a sandbox's pod, and means the sandbox.
    ensure!(raw.delete(&name).await?);
    Ok(())
}

/// With an idle time that is shorter than a start, the reaper deleted sandboxes that were being created.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_being_created_is_not_idle() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let mut nowhere = container(rig::BUSYBOX);
    nowhere["nodeSelector"] = json!({"no": "such"});
    left.behind("pb-starting", false, ago(30), nowhere).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let cleaned = raw.cleanup(Some(Duration::from_secs(1))).await?;
    ensure!(cleaned.deleted.is_empty() && cleaned.kept == 1, "{cleaned:?}");
    Ok(())
}

/// A container that doesn't run can't answer, so that the reaper kept an idle sandbox in a crash loop forever.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_whose_container_does_not_run_is_reaped() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    for (name, since) in [("pb-crash", ago(7200)), ("pb-used", ago(0))] {
        left.on_a_ghost(name, since, true).await?;
        let status = json!({"status": {"containerStatuses": [{
            "name": CONTAINER, "image": rig::BUSYBOX, "imageID": "", "ready": false, "restartCount": 9,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }]}});
        left.pods().patch_status(&format!("{name}-0"), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let cleaned = raw.cleanup(Some(Duration::from_secs(3600))).await?;
    ensure!(cleaned.deleted == ["pb-crash"] && cleaned.kept == 1 && cleaned.failed.is_empty(), "{cleaned:?}");
    Ok(())
}

/// A wrong answer of one sandbox kept the reaper from asking all others on its node.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_answers_nonsense_does_not_protect_its_neighbours() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    drop(raw.get_or_create(&wanted("pb-idle")).await?);
    // Nothing can be written in these, so podbayd can't be started.
    for number in 0..20 {
        let mut spec = container(rig::BUSYBOX);
        spec["containers"][0]["securityContext"] = json!({"readOnlyRootFilesystem": true});
        left.behind(&format!("pb-broken-{number:02}"), true, ago(7200), spec).await?;
    }
    let patch = json!({"spec": {"renewTime": ago(7200)}});
    left.leases().patch("pb-idle", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let start = Instant::now();
    while left
        .pods()
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .any(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Running"))
    {
        ensure!(start.elapsed() < Duration::from_secs(60), "they don't start");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let cleaned = raw.cleanup(Some(Duration::from_secs(1))).await?;
    ensure!(cleaned.deleted == ["pb-idle"] && cleaned.failed.len() == 20, "{cleaned:?}");
    Ok(())
}

/// A run of the reaper was bounded only between sandboxes, and a late error lost everything that it had done.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_the_reaper_ends_in_time_and_the_next_goes_on() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let left = Left { cluster: &cluster, namespace: &namespace };
    left.behind("pb-over", false, ago(300), container("localhost/none:1")).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let timing = Timing { reaper_run: Duration::ZERO, ..Timing::default() };
    let cleaned = raw.clone().with_timing(timing).cleanup(None).await?;
    ensure!(cleaned.deleted.is_empty(), "{cleaned:?}");
    ensure!(cleaned.failed.iter().any(|(_, why)| why.contains("the next run continues")), "{cleaned:?}");
    // Whatever fails at the end is told beside what was done.
    let proxy = ApiProxy::start(&cluster).await?;
    let reaper = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    proxy.answer(Answer::new(StatusCode::FORBIDDEN).to(Method::GET).on("/networkpolicies?"));
    let cleaned = reaper.cleanup(None).await?;
    ensure!(cleaned.deleted == ["pb-over"], "{cleaned:?}");
    ensure!(cleaned.failed.iter().any(|(what, _)| what == "network policies"), "{cleaned:?}");
    Ok(())
}

/// A registry that couldn't be reached for a moment failed the sandbox at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_cannot_be_reached_is_waited_for_and_then_named() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let image = Config { image_pull_policy: "IfNotPresent".into(), ..config("127.0.0.1:1/podbay/none:1") };
    let pull_patience = Duration::from_secs(6);
    let raw = provider(&namespace, image)?.with_timing(Timing { pull_patience, ..Timing::default() });
    let start = Instant::now();
    let error = raw.get_or_create(&wanted("pb-registry")).await.err().context("it was pulled")?.to_string();
    println!("after {:?}: {error}", start.elapsed());
    ensure!(start.elapsed() >= pull_patience, "given up after {:?}", start.elapsed());
    ensure!(start.elapsed() < Duration::from_secs(30), "given up after {:?}", start.elapsed());
    ensure!(error.contains("can't start") && error.contains("ImagePull"), "{error}");
    Ok(())
}
