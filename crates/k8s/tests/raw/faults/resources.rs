//! A sandbox runs out of disk or memory.

use anyhow::{Context, Result, ensure};
use podbay_client::files::{Read, Write};
use podbay_client::provider::Provider;
use podbay_client::{ErrorCode, Sandbox};
use podbay_k8s::raw::{CONTAINER, Config};
use rig::faults::FullDisk;
use serde_json::json;

use super::{only_pod, wanted};
use crate::pods::rules;
use crate::provider::{config, provider};

/// A sandbox's directory is a small file system of its own.
fn small(directory: &str) -> Result<Config> {
    let volume = json!({"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}});
    Ok(Config {
        volumes: vec![serde_json::from_value(volume)?],
        volume_mounts: vec![serde_json::from_value(json!({"name": "small", "mountPath": directory}))?],
        ..config(rig::DEBIAN)
    })
}

async fn fill(cluster: &rig::TestCluster, namespace: &rig::Namespace, directory: &'static str) -> Result<FullDisk> {
    let pod = only_pod(cluster, namespace).await?;
    let (cluster, namespace) = (rig::Cluster::clone(cluster), namespace.name().to_owned());
    tokio::task::spawn_blocking(move || rig::faults::fill_disk(&cluster, &namespace, &pod, CONTAINER, directory))
        .await?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_workspace_is_said_and_spoils_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, small("/workspace")?)?;
    let made = raw.get_or_create(&wanted("pb-full")).await?;
    let sandbox: &Sandbox = &made.sandbox;
    sandbox.write(&Write::new("file"), "one two three\n").await?;
    let full = fill(&cluster, &namespace, "/workspace").await?;
    let large = vec![b'x'; 3 << 20];
    for (what, error) in [
        ("write", sandbox.write(&Write::new("new"), "text").await.err()),
        ("edit", sandbox.edit("file", "two", vec![b'x'; 100_000]).await.err()),
        ("upload", sandbox.write(&Write::new("large"), large).await.err()),
    ] {
        let error = error.with_context(|| format!("{what} worked on a full disk"))?;
        ensure!(error.code() == Some(ErrorCode::NoSpace), "{what}: {error}");
    }
    let (_, content) = sandbox.read(&Read::new("file")).await?;
    ensure!(&content[..] == b"one two three", "the file was spoilt: {content:?}");
    let output = sandbox.run("echo text > other || echo no; ls -A").await?;
    // What the shell itself says comes on standard error, at any time. The file is made before nothing fits in it.
    let said = String::from_utf8(output.stdout())?;
    ensure!(said.starts_with("no\n") && !said.contains("large"), "{said}");
    tokio::task::spawn_blocking(move || full.free()).await??;
    sandbox.write(&Write::new("new"), "text").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_podbayds_own_disk_full_commands_still_tell_how_they_ended() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, small("/run/podbay")?)?;
    let made = raw.get_or_create(&wanted("pb-state")).await?;
    ensure!(made.sandbox.hello().await?.state.as_bytes() == b"/run/podbay");
    let full = fill(&cluster, &namespace, "/run/podbay").await?;
    let output = made.sandbox.run("echo text > file; exit 3").await?;
    ensure!(output.code() == Some(3), "{output:?}");
    made.sandbox.write(&Write::new("new"), "text").await?;
    let (_, content) = made.sandbox.read(&Read::new("file")).await?;
    ensure!(&content[..] == b"text");
    // A new session needs no room either.
    let again = raw.reconnect("pb-state").await?;
    ensure!(again.sandbox.run("exit 4").await?.code() == Some(4));
    tokio::task::spawn_blocking(move || full.free()).await??;
    ensure!(made.sandbox.run("echo room again").await?.text() == "room again\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_eats_all_memory_dies_alone() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let raw = provider(&namespace, Config { memory_limit: "64Mi".into(), ..config(rig::DEBIAN) })?;
    let made = raw.get_or_create(&wanted("pb-memory")).await?;
    made.sandbox.write(&Write::new("kept"), "yes").await?;
    let before = made.sandbox.hello().await?.instance;
    let other = made.sandbox.start("sleep 1000").await?;
    for _ in 0..3 {
        let eats = "echo x >> ran; exec python3 -c 'a = [bytearray(1 << 20) for _ in range(400)]'";
        let output = made.sandbox.run(eats).await?;
        let exit = output.exit().with_context(|| format!("{output:?}"))?;
        ensure!(exit.signal.as_deref() == Some("SIGKILL") && exit.code == 137, "{exit:?}");
    }
    ensure!(made.sandbox.run("cat ran kept").await?.text() == "x\nx\nx\nyes");
    ensure!(made.sandbox.hello().await?.instance == before, "podbayd was killed with it");
    ensure!(made.sandbox.kill(&other.id).await? >= 1, "another command was killed with it");
    Ok(())
}
