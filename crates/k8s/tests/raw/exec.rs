//! The exec channel and the bootstrap, without a provider.

use std::time::Instant;

use anyhow::{Result, ensure};
use podbay_client::files::{Read, Write};
use podbay_client::{Channel, Sandbox};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::pods::{channel, rules};

#[tokio::test(flavor = "multi_thread")]
async fn a_process_in_a_container_is_a_byte_stream() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let pod = channel(&namespace, "stream", json!({"image": rig::BUSYBOX})).await?;

    let mut cat = pod.start(&["cat"]).await?;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // Both directions at once: `cat` stops reading when nobody takes what it prints.
    let (mut output, mut input) = tokio::io::split(&mut cat);
    let mut got = Vec::new();
    let (up, down) = tokio::join!(
        async {
            input.write_all(&sent).await?;
            input.shutdown().await
        },
        output.read_to_end(&mut got)
    );
    up?;
    down?;
    ensure!(got == sent, "{} bytes of {} came back", got.len(), sent.len());
    ensure!(cat.ended().is_some_and(|ended| ended.success()), "{:?}", cat.ended());

    let mut failing = pod.start(&["sh", "-c", "echo out; echo why >&2; exit 3"]).await?;
    let mut text = String::new();
    failing.read_to_string(&mut text).await?;
    ensure!(text == "out\n" && failing.stderr() == "why", "{text:?} {:?}", failing.stderr());
    ensure!(failing.ended().is_some_and(|ended| !ended.success() && ended.message.contains("exit code 3")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn podbayd_is_sent_once_and_serves_several_clients() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    for (name, image) in [("busybox", rig::BUSYBOX), ("debian", rig::DEBIAN)] {
        let pod = channel(&namespace, name, json!({"image": image})).await?;
        let start = Instant::now();
        // Ten at once: one sends, nine wait for it.
        let clients: Vec<Sandbox> = (0..10).map(|_| Sandbox::new(pod.clone())).collect();
        let welcomes = futures_util::future::try_join_all(clients.iter().map(Sandbox::hello)).await?;
        println!("{name}: ten clients at once, with the upload: {:?}", start.elapsed());
        ensure!(welcomes.iter().all(|welcome| welcome.instance == welcomes[0].instance), "more than one podbayd");
        let output = clients[3].run("echo $((6*7)); cd; pwd").await?;
        ensure!(output.text().starts_with("42\n"), "{:?}", output.text());
        // The bootstrap's own mask of 077 once reached commands: their files were nobody else's to read.
        let mask = clients[3].run("umask").await?;
        ensure!(mask.text().trim() == "0022", "{:?}", mask.text());
        // Whatever the losers of the race left behind would be here.
        let state = String::from_utf8_lossy(welcomes[0].state.as_bytes()).into_owned();
        let left = clients[0].run(format!("ls -A {state} | grep -E '^[.]'").as_str()).await?;
        ensure!(left.text().is_empty(), "left behind: {}", left.text());
        measure(name, &pod).await?;
    }
    Ok(())
}

async fn measure(name: &str, pod: &impl Reachable) -> Result<()> {
    let mut opening = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        pod.sandbox().hello().await?;
        opening.push(start.elapsed());
    }
    let sandbox = pod.sandbox();
    sandbox.write(&Write::new("/tmp/small"), "hello\n").await?;
    let (mut reads, mut execs) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let start = Instant::now();
        sandbox.read(&Read::new("/tmp/small")).await?;
        reads.push(start.elapsed());
        let start = Instant::now();
        ensure!(sandbox.run("true").await?.success());
        execs.push(start.elapsed());
    }
    for (what, mut times) in [("open a session", opening), ("read", reads), ("exec true", execs)] {
        times.sort();
        println!(
            "{name}: {what}: min {:?} p50 {:?} p95 {:?} n {}",
            times[0],
            times[times.len() / 2],
            times[times.len() * 95 / 100],
            times.len()
        );
    }
    Ok(())
}

/// A channel from which any number of clients can be made.
trait Reachable {
    fn sandbox(&self) -> Sandbox;
}

impl<C: Channel + Clone + 'static> Reachable for C {
    fn sandbox(&self) -> Sandbox {
        Sandbox::new(self.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_image_lacks_is_named() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    // Nowhere to run: a read-only root, and no other place.
    let read_only = json!({"image": rig::BUSYBOX, "securityContext": {"readOnlyRootFilesystem": true}});
    let pod = channel(&namespace, "nowhere", read_only).await?;
    let start = Instant::now();
    let error = Sandbox::new(pod).hello().await.unwrap_err().to_string();
    ensure!(error.contains("emptyDir at /run/podbay"), "{error}");
    ensure!(start.elapsed().as_secs() < 10, "it was tried again: {:?}", start.elapsed());
    // With our own volume it works.
    let mounted = json!({
        "image": rig::NONROOT,
        "securityContext": {"readOnlyRootFilesystem": true, "runAsUser": 1000},
        "volumeMounts": [{"name": "run", "mountPath": "/run/podbay"}],
    });
    let pod = channel(&namespace, "mounted", mounted).await?;
    let welcome = Sandbox::new(pod).hello().await?;
    ensure!(welcome.state.as_bytes() == b"/run/podbay", "{:?}", welcome.state);
    // No shell on the path, and no tools but the shell. (BusyBox's shell brings its tools along.)
    for (name, path, lacking) in [("shell", "/nothing", "no sh:"), ("tools", "/shell", "no head chmod mkdir mv:")] {
        let prepare = "mkdir -p /shell && ln -s /bin/dash /shell/sh";
        let wait = "trap 'exit 0' TERM; while :; do sleep 9 & wait $!; done";
        let container = json!({
            "image": rig::DEBIAN,
            "command": ["/bin/sh", "-c", format!("PATH=/bin; {prepare}; {wait}")],
            "env": [{"name": "PATH", "value": path}],
        });
        let pod = channel(&namespace, name, container).await?;
        let error = Sandbox::new(pod).hello().await.unwrap_err().to_string();
        ensure!(error.contains(lacking), "{name}: {error}");
    }
    Ok(())
}
