//! The container or its pod goes away while a command runs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use podbay_client::files::{Read, Write};
use podbay_client::provider::Provider;
use podbay_client::{Error, Event, State};
use podbay_k8s::raw::CONTAINER;

use super::{nothing_is_left, only_pod, wanted};
use crate::pods::rules;
use crate::provider::{config, provider};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_container_that_is_killed_is_lost_and_the_workspace_stays() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let made = raw.get_or_create(&wanted("pb-lost")).await?;
    made.sandbox.write(&Write::new("kept"), "yes").await?;
    let command = "echo x >> ran; echo printed; sleep 60; echo y >> ran";
    let mut exec = made.sandbox.spawn(command).await?;
    ensure!(matches!(exec.next().await?, Some(Event::Output(_, data)) if data == "printed\n"));
    let second = made.sandbox.clone();
    let waiting = tokio::spawn(async move { second.run("echo z >> ran; sleep 60").await });
    while made.sandbox.run("cat ran").await?.text().lines().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let start = Instant::now();
    rig::faults::kill_container(&cluster, namespace.name(), &only_pod(&cluster, &namespace).await?, CONTAINER)?;
    // Both waits end, and say what is known: what was printed, and nothing about the end.
    let info = exec.wait().await?;
    ensure!(info.state == State::Lost, "{info:?}");
    let output = waiting.await??;
    ensure!(output.info.state == State::Lost && output.code().is_none(), "{output:?}");
    println!("killed to both results: {:?}", start.elapsed());
    ensure!(start.elapsed() < Duration::from_secs(40), "after {:?}", start.elapsed());

    // Nothing ran again, the workspace is there, what was printed too.
    let (_, content) = made.sandbox.read(&Read::new("kept")).await?;
    ensure!(&content[..] == b"yes");
    ensure!(made.sandbox.run("cat ran").await?.text() == "x\nz\n");
    let mut again = made.sandbox.attach(&info.id, 0).await?;
    ensure!(matches!(again.next().await?, Some(Event::Output(_, data)) if data == "printed\n"));
    ensure!(raw.delete("pb-lost").await?);
    nothing_is_left(&cluster, &namespace).await
}

/// A change that was under way may or may not have happened: it isn't done again, and the caller is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_under_way_when_the_container_is_killed_is_not_repeated() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::BUSYBOX))?;
    let made = raw.get_or_create(&wanted("pb-change")).await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("large");
    std::fs::File::create(&file)?.set_len(400 << 20)?;
    let sandbox = made.sandbox.clone();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let upload = tokio::spawn(async move {
        let begun = std::sync::Mutex::new(Some(begun));
        let tell = |progress: podbay_client::Progress| {
            if progress.bytes > 20 << 20
                && let Some(begun) = begun.lock().unwrap().take()
            {
                let _ = begun.send(());
            }
        };
        sandbox.upload_file(&file, &Write::new("large"), &podbay_client::Meter::new(&tell)).await
    });
    begins.await?;
    rig::faults::kill_container(&cluster, namespace.name(), &only_pod(&cluster, &namespace).await?, CONTAINER)?;
    let error = upload.await?.err().context("it went on at another podbayd")?;
    ensure!(matches!(error, Error::SandboxRestarted { .. }), "{error}");
    let left = made.sandbox.run("ls -A").await?.text().into_owned();
    ensure!(!left.contains("large"), "half a file is there: {left}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_pod_is_deleted_every_wait_ends_and_says_so() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, config(rig::DEBIAN))?;
    let made = raw.get_or_create(&wanted("pb-deleted")).await?;
    let mut exec = made.sandbox.spawn("echo begun; sleep 60").await?;
    exec.next().await?;
    let second = made.sandbox.clone();
    let running = tokio::spawn(async move { second.run("sleep 60").await.map(drop) });
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let start = Instant::now();
    pods.delete(&only_pod(&cluster, &namespace).await?, &DeleteParams::default()).await?;
    let streamed = exec.wait().await.map(drop);
    let later = made.sandbox.read(&Read::new("x")).await.map(drop);
    for result in [streamed, running.await?, later] {
        let error = result.err().context("a pod that is gone answered")?;
        ensure!(matches!(error, Error::Provider(_)) && error.to_string().contains("is gone"), "{error}");
    }
    println!("deleted to all errors: {:?}", start.elapsed());
    ensure!(start.elapsed() < Duration::from_secs(15), "after {:?}", start.elapsed());
    ensure!(raw.delete("pb-deleted").await?);
    nothing_is_left(&cluster, &namespace).await
}
