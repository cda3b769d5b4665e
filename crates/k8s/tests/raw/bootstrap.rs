//! Images in which podbayd has a hard time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::Sandbox;
use serde_json::{Value, json};

use crate::pods::{channel, rules};

/// A container that has only what is linked into one directory.
fn with_only(prepare: &str) -> Value {
    let wait = "trap 'exit 0' TERM; while :; do sleep 9 & wait $!; done";
    json!({
        "image": rig::DEBIAN,
        "command": ["/bin/sh", "-c", format!("PATH=/usr/bin; mkdir -p /only; cd /only; {prepare}; touch .all; {wait}")],
        // A container runs before its links are there.
        "startupProbe": {"exec": {"command": ["/usr/bin/test", "-e", "/only/.all"]}, "periodSeconds": 1},
        "env": [{"name": "PATH", "value": "/only"}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn five_programs_are_enough() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let few = with_only("ln -s /bin/dash sh; for p in head chmod mkdir mv; do ln -s /bin/$p $p; done");
    let pod = channel(&namespace, "few", few).await?;
    // Several at once, because waiting for another's upload is harder without `sleep` and `rm`.
    let clients: Vec<Sandbox> = (0..4).map(|_| Sandbox::new(pod.clone())).collect();
    let welcomes = futures_util::future::try_join_all(clients.iter().map(Sandbox::hello)).await?;
    ensure!(welcomes.iter().all(|welcome| welcome.instance == welcomes[0].instance), "more than one podbayd");
    ensure!(clients[0].run("echo works").await?.text() == "works\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_architecture_without_a_podbayd_is_named_at_once() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let links = "for p in sh head chmod mkdir mv rm wc id; do ln -s /bin/$p $p; done";
    let other = with_only(&format!("{links}; printf '#!/bin/sh\\necho s390x\\n' > uname; chmod 755 uname"));
    let pod = channel(&namespace, "other", other).await?;
    let start = Instant::now();
    let error = Sandbox::new(pod.clone()).hello().await.err().context("it runs")?.to_string();
    ensure!(error.contains("no podbayd for s390x"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(10), "it was tried again: {:?}", start.elapsed());
    // Whoever gives up lets the next one try, and not wait for it.
    let again = Sandbox::new(pod).hello().await.err().context("it runs")?.to_string();
    ensure!(again == error && start.elapsed() < Duration::from_secs(15), "{again} after {:?}", start.elapsed());
    Ok(())
}

/// An image may have podbayd already. Here it is called so and is no podbayd: that is noticed, not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_podbayd_of_the_image_is_used_and_a_false_one_is_an_error() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let links = "for p in sh head chmod mkdir mv rm wc id; do ln -s /bin/$p $p; done";
    let fake =
        with_only(&format!("{links}; printf '#!/bin/sh\\necho no such >&2; exit 3\\n' > podbayd; chmod 755 podbayd"));
    let pod = channel(&namespace, "fake", fake).await?;
    let start = Instant::now();
    let error = Sandbox::new(pod).hello().await.err().context("it runs")?.to_string();
    ensure!(error.contains("before podbayd started") && error.contains("no such"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(45), "after {:?}", start.elapsed());

    let bytes = podbay_embed::daemon(std::env::consts::ARCH).context("no podbayd")?;
    let image = rig::Image::new("localhost/with-podbayd:1")
        .layer(rig::Layer::debian())
        .layer(rig::Layer::files("podbayd", [rig::File::new("/usr/local/bin/podbayd", bytes).mode(0o755)]))
        .command(["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]);
    let held = rig::Cluster::clone(&cluster);
    tokio::task::spawn_blocking(move || held.add_images(&[image])).await??;
    let pod = channel(&namespace, "with", json!({"image": "localhost/with-podbayd:1"})).await?;
    let proxy = rig::faults::TcpProxy::start(&cluster).await?;
    let sandbox = Sandbox::new(pod.with_client(namespace.access().through(proxy.port()).client().await?));
    ensure!(sandbox.run("echo works").await?.text() == "works\n");
    let sent = proxy.carried(rig::faults::Direction::ToServer);
    ensure!(sent < 100_000, "{sent} bytes were sent: podbayd too");
    Ok(())
}
