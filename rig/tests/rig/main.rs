//! The rig itself: what other tests rely on, on a real cluster, and then nothing left of it. The add-ons that most other tests use
//! aren't tried here: it would take longer, and show no more.
//!
//! `PODBAY_RIG=1 cargo test -p rig --test rig -- --nocapture` runs it and shows how long each step took.

mod faults;
mod network;
mod pods;
mod timing;
mod traces;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use rig::{AddOn, Cluster, Namespace, TestCluster, rule};
use serde_json::json;
use timing::{first_step, step};
use traces::Traces;

/// Clusters of this test alone, so that one that a developer has up is left alone.
const FIRST: &str = "rig-test-1";
const SECOND: &str = "rig-test-2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_real_can_be_broken_and_leaves_nothing() -> Result<()> {
    let before = Traces::of_host()?;
    let result = everything().await;
    if matches!(result, Ok(Ran::No)) {
        return Ok(());
    }
    // Whatever failed, no cluster stays.
    for name in [FIRST, SECOND] {
        Cluster::down(name)?;
    }
    result?;
    before.compare(&Traces::of_host()?)
}

/// Whether a cluster could run here.
enum Ran {
    Yes,
    No,
}

async fn everything() -> Result<Ran> {
    let Some(first) = first_step("up, then gVisor", rig::cluster_named(FIRST, &[AddOn::Gvisor])).await? else {
        return Ok(Ran::No);
    };
    let namespace = step("namespace and account", account(&first)).await?;
    step("the account may do no more than its rules", least_privilege(&namespace)).await?;

    step("the same by command, for other languages", account_by_command(&first)).await?;

    let pods = pods::Pods::of(&namespace);
    step("pod: create to Ready", pods.run("server", pods::server())).await?;
    step("exec over WebSocket v5", pods.exec_needs_v5("server")).await?;
    step("port-forward: one GET", pods.get_through_port_forward("server", 8000)).await?;
    step("an image of a test's own", pods::own_image(&first, &pods)).await?;
    step("non-root, read-only root", pods::read_only_root(&pods)).await?;
    step("gVisor and crun: create to Ready, exec", pods::runtimes(&pods)).await?;

    step("pod: create to Ready", pods.run("client", pods::waiting(rig::DEBIAN))).await?;
    step("NetworkPolicy closes and opens", network::deny_all(&first, &namespace, &pods)).await?;

    step("API server: stop, start, works again", faults::api_server(&first, &namespace, &pods)).await?;
    step("kill a container, fill a disk", faults::pod(&first, &namespace, &pods)).await?;
    step("cut and freeze connections", faults::tcp_proxy(&first, &namespace)).await?;
    step("answer 429, 409, 410, 500", faults::api_proxy(&first, &namespace)).await?;

    let second = step("a second cluster beside it: up, asked for twice", asked_for_twice()).await?;
    step("the two know nothing of each other", side_by_side(&first, &second, &namespace)).await?;
    step("kill -9 of the second, up again", killed_and_up_again(&second)).await?;
    let ports = [first.port(), second.port()];
    step("namespace: delete to gone", namespace.delete()).await?;
    for (name, port) in [FIRST, SECOND].into_iter().zip(ports) {
        let was_there = step("down", async { Cluster::down(name) }).await?;
        ensure!(was_there, "{name} wasn't there");
        traces::nothing_of(name, port)?;
    }
    Ok(Ran::Yes)
}

/// A namespace with what a user of pods and claims needs.
async fn account(cluster: &TestCluster) -> Result<Namespace> {
    let all = ["create", "get", "list", "watch", "delete"];
    cluster
        .namespace(vec![rule("", ["pods"], all), rule("", ["pods/exec", "pods/portforward"], ["create", "get"])])
        .await
}

/// What tests in Python and TypeScript get: a kubeconfig, made by `cargo xtask cluster account`.
async fn account_by_command(cluster: &TestCluster) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let role = |kind: &str, resource: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{resource}-reader")},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}],
        })
    };
    std::fs::write(&file, format!("{}\n---\n{}", role("Role", "pods"), role("ClusterRole", "services")))?;
    let kubeconfig = tempfile::NamedTempFile::new()?;
    std::fs::write(&kubeconfig, cluster.account(file.path())?)?;
    let kubectl = |arguments: &[&str]| {
        let mut kubectl = std::process::Command::new(cluster.programs().join("kubectl"));
        kubectl.arg("--kubeconfig").arg(kubeconfig.path()).args(arguments).output()
    };
    ensure!(kubectl(&["get", "pods"])?.status.success(), "the account can't list pods");
    ensure!(kubectl(&["get", "services", "-A"])?.status.success(), "the account can't list all services");
    ensure!(!kubectl(&["get", "pods", "-A"])?.status.success(), "the account can list all pods");
    let refused = kubectl(&["get", "secrets"])?;
    ensure!(String::from_utf8_lossy(&refused.stderr).contains("Forbidden"), "{refused:?}");
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).to_string())?;
    let error = cluster.account(file.path()).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("configmap/x, which isn't a Role"), "{error:?}");
    Ok(())
}

async fn least_privilege(namespace: &Namespace) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(namespace.client());
    pods.list(&ListParams::default()).await?;
    let elsewhere: Api<Pod> = Api::namespaced(namespace.client(), "default");
    let secrets: Api<Secret> = Api::default_namespaced(namespace.client());
    for refused in [
        elsewhere.list(&ListParams::default()).await.map(drop),
        secrets.list(&ListParams::default()).await.map(drop),
        Api::<Pod>::all(namespace.client()).list(&ListParams::default()).await.map(drop),
    ] {
        ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "not refused: {refused:?}");
    }
    Ok(())
}

/// Two that want the same cluster at once get the same one.
async fn asked_for_twice() -> Result<TestCluster> {
    let (one, two) = tokio::try_join!(rig::cluster_named(SECOND, &[]), rig::cluster_named(SECOND, &[]))?;
    let (Some(one), Some(two)) = (one, two) else { anyhow::bail!("the second cluster was left out, the first wasn't") };
    ensure!(one.first_process() == two.first_process(), "it was started twice");
    Ok(one)
}

async fn side_by_side(first: &TestCluster, second: &TestCluster, namespace: &Namespace) -> Result<()> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(second.admin());
    ensure!(namespaces.get_opt(namespace.name()).await?.is_none(), "the second cluster has the first's namespace");
    let theirs = account(second).await?;
    pods::Pods::of(&theirs).run("server", pods::server()).await?;
    // A token of one is nothing to the other.
    let stranger = theirs.access().through(first.port()).client().await;
    let refused = match stranger {
        Ok(client) => Api::<Pod>::namespaced(client, theirs.name()).list(&ListParams::default()).await.is_err(),
        Err(_) => true,
    };
    ensure!(refused, "the first cluster took the second's token");
    Ok(())
}

/// All processes die at once, cgroups and files stay: the next `up` removes them and starts afresh.
async fn killed_and_up_again(cluster: &TestCluster) -> Result<()> {
    let pid = cluster.first_process().map(|pid| pid.to_string()).unwrap_or_default();
    ensure!(std::process::Command::new("kill").args(["-KILL", &pid]).status()?.success(), "cannot kill {pid}");
    while Cluster::find(SECOND)?.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let leftovers: Vec<_> = cluster.cgroups().iter().filter(|cgroup| cgroup.exists()).collect();
    ensure!(!leftovers.is_empty(), "there was nothing to clean up, so this shows nothing");
    let again = rig::cluster_named(SECOND, &[]).await?;
    ensure!(again.is_some_and(|again| again.first_process() != cluster.first_process()), "it didn't start afresh");
    Ok(())
}
