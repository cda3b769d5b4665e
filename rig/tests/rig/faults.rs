//! Each fault does what it says, and everything works again after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, ListParams};
use rig::faults::{self, Answer, ApiProxy, Direction, TcpProxy};
use rig::{Cluster, Namespace, TestCluster};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::pods::{Pods, waiting};
use crate::timing::part;

pub(crate) async fn api_server(cluster: &TestCluster, namespace: &Namespace, pods: &Pods) -> Result<()> {
    let before = pods.get("client").await?.metadata.uid;
    let held = Cluster::clone(cluster);
    spawn_blocking(move || faults::stop_api_server(&held)).await??;
    let list = Api::<Pod>::default_namespaced(namespace.client());
    ensure!(list.list(&ListParams::default()).await.is_err(), "a stopped API server answers");
    let start = Instant::now();
    let held = Cluster::clone(cluster);
    spawn_blocking(move || faults::start_api_server(&held)).await??;
    part("start to ready", start);
    ensure!(pods.get("client").await?.metadata.uid == before, "the pod is another one");
    let (output, _) = pods.exec("client", &["echo", "back"], None).await?;
    ensure!(output == "back\n", "{output:?}");
    pods.run("after-restart", waiting(rig::BUSYBOX)).await
}

pub(crate) async fn pod(cluster: &TestCluster, namespace: &Namespace, pods: &Pods) -> Result<()> {
    let mut spec = waiting(rig::DEBIAN);
    spec["volumes"] = json!([{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "small", "mountPath": "/small"}]);
    pods.run("victim", spec).await?;

    let (held, name) = (Cluster::clone(cluster), namespace.name().to_owned());
    let full = spawn_blocking(move || faults::fill_disk(&held, &name, "victim", "main", "/small")).await??;
    let write = ["sh", "-c", "echo text > /small/file && cat /small/file"];
    let (_, success) = pods.exec("victim", &write, None).await?;
    ensure!(!success, "a full disk took a file");
    spawn_blocking(move || full.free()).await??;
    let (output, _) = pods.exec("victim", &write, None).await?;
    ensure!(output == "text\n", "a freed disk doesn't take a file: {output:?}");
    let (held, name) = (Cluster::clone(cluster), namespace.name().to_owned());
    let refused = spawn_blocking(move || faults::fill_disk(&held, &name, "victim", "main", "/tmp")).await?;
    ensure!(refused.is_err_and(|error| error.to_string().contains("MiB free")), "the machine's own memory was filled");

    for pod in ["victim", "gvisor"] {
        let (held, name) = (Cluster::clone(cluster), namespace.name().to_owned());
        spawn_blocking(move || faults::kill_container(&held, &name, pod, "main")).await??;
        started_again(pods, pod).await?;
    }
    Ok(())
}

async fn started_again(pods: &Pods, name: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let statuses = pods.get(name).await?.status.and_then(|status| status.container_statuses).unwrap_or_default();
        if statuses.first().is_some_and(|status| status.restart_count == 1 && status.ready) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the container of {name} wasn't started again: {statuses:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn tcp_proxy(cluster: &TestCluster, namespace: &Namespace) -> Result<()> {
    const SIZE: usize = 2_000_000;
    let proxy = TcpProxy::start(cluster).await?;
    let pods: Api<Pod> = Api::default_namespaced(namespace.access().through(proxy.port()).client().await?);
    let read = || async {
        let command = format!("head -c {SIZE} /dev/zero");
        let parameters = AttachParams::default().stderr(false);
        let mut process = pods.exec("client", ["sh", "-c", &command], &parameters).await?;
        let mut stdout = process.stdout().context("no standard output")?;
        let status = process.take_status().context("no status")?;
        // Not `read_to_end`: kube's stream has no end when the connection breaks. What ends then is `join`.
        let (mut count, mut buffer) = (0, vec![0; 64 * 1024]);
        let mut join = std::pin::pin!(process.join());
        loop {
            tokio::select! {
                biased;
                read = stdout.read(&mut buffer) => match read? { 0 => break, bytes => count += bytes },
                _ = &mut join => break,
            }
        }
        let success = status.await.is_some_and(|status| status.status.as_deref() == Some("Success"));
        Ok::<_, anyhow::Error>((count, success))
    };
    ensure!(read().await? == (SIZE, true), "the proxy doesn't carry everything");

    proxy.cut_after(Direction::ToClient, 500_000);
    let (count, success) = read().await?;
    ensure!(!success && count < 500_000 && count > 400_000, "cut after 500,000 bytes, but {count} came");
    proxy.mend();

    proxy.freeze_after(Direction::ToClient, 500_000);
    let mut frozen = Box::pin(read());
    ensure!(timeout(Duration::from_millis(700), &mut frozen).await.is_err(), "a frozen connection went on");
    proxy.mend();
    ensure!(timeout(Duration::from_secs(10), frozen).await?? == (SIZE, true), "a thawed connection lost bytes");

    proxy.cut_after(Direction::ToServer, 0);
    ensure!(pods.list(&ListParams::default()).await.is_err(), "a cut connection carried a request");
    proxy.mend();
    pods.list(&ListParams::default()).await?;
    Ok(())
}

pub(crate) async fn api_proxy(cluster: &TestCluster, namespace: &Namespace) -> Result<()> {
    let proxy = ApiProxy::start(cluster).await?;
    let pods: Api<Pod> = Api::default_namespaced(namespace.access().through(proxy.port()).client().await?);
    let list = || async {
        match pods.list(&ListParams::default()).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error),
        }
    };
    ensure!(list().await? == 200, "the proxy doesn't pass requests on");
    for code in [429, 409, 410, 500] {
        proxy.answer(Answer::new(StatusCode::from_u16(code)?).on("/pods").times(2).retry_after(1));
        let codes = [list().await?, list().await?, list().await?];
        ensure!(codes == [code, code, 200], "{codes:?}");
    }
    proxy.answer(Answer::new(StatusCode::INTERNAL_SERVER_ERROR).to(http::Method::POST));
    ensure!(list().await? == 200, "an answer to POST was given to GET");
    proxy.step_aside();
    let mut process = pods.exec("client", ["echo", "through"], &AttachParams::default().stderr(false)).await?;
    let mut output = String::new();
    process.stdout().context("no standard output")?.read_to_string(&mut output).await?;
    ensure!(output == "through\n", "exec through the proxy: {output:?}");
    Ok(())
}
