//! The connection to the API server breaks, hangs, or speaks an older protocol.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::files::{Delete, Download, Mkdir, Read, Write};
use podbay_client::provider::Provider;
use podbay_client::{Error, Event, Sandbox};
use rig::faults::{ApiProxy, Direction, TcpProxy};
use serde_json::json;

use super::{bridges_end, through, wanted};
use crate::pods::{channel, rules};
use crate::provider::config;

/// For how long, and how often at least, connections are cut.
fn cutting() -> (Duration, u64) {
    if std::env::var_os("PODBAY_SOAK").is_some() {
        (Duration::from_secs(60), 60)
    } else {
        (Duration::from_secs(10), 10)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_at_any_byte_lose_nothing_and_repeat_nothing() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = TcpProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::DEBIAN)).await?;
    let made = raw.get_or_create(&wanted("pb-cut")).await?;
    let (sandbox, is_over) = (&made.sandbox, &AtomicBool::new(false));
    let (duration, at_least) = cutting();
    let begun = Instant::now();
    let cutting = async {
        // On a busy machine fewer bytes go through in the same time, and fewer cuts happen.
        while begun.elapsed() < duration || proxy.cuts() < at_least {
            ensure!(begun.elapsed() < 12 * duration, "only {} connections were cut", proxy.cuts());
            let direction = if rand::random() { Direction::ToServer } else { Direction::ToClient };
            // Also within a frame, and within the answer that a connection is opened with.
            proxy.cut_after(direction, rand::random_range(0..150_000));
            tokio::time::sleep(Duration::from_millis(rand::random_range(10..150))).await;
            proxy.mend();
            tokio::time::sleep(Duration::from_millis(rand::random_range(100..400))).await;
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let ((), commands, changes, streams, transfers) = tokio::try_join!(
        cutting,
        async { commands(sandbox, is_over).await.context("commands") },
        async { changes(sandbox, is_over).await.context("changes") },
        async { streams(sandbox, is_over).await.context("streams") },
        async { transfers(sandbox, is_over).await.context("transfers") },
    )?;
    println!(
        "{} cuts; {commands} commands, {changes} rounds of changes, {streams} streams, {transfers} transfers",
        proxy.cuts()
    );
    let ran = sandbox.download(&Download::new("ran")).await?;
    let expected: String = (0..commands).map(|number| format!("{number}\n")).collect();
    ensure!(ran == expected.as_bytes(), "commands ran twice or not at all: {ran:?}");
    // One for operations, one for transfers; those that were cut are gone.
    bridges_end(sandbox, 2).await
}

async fn commands(sandbox: &Sandbox, is_over: &AtomicBool) -> Result<usize> {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let output = sandbox.run(format!("echo {count} >> ran; seq 1 5000; seq 1 50 >&2").as_str()).await?;
        ensure!(output.success() && (output.stdout().len(), output.stderr().len()) == (23_893, 141));
        count += 1;
    }
    Ok(count)
}

/// Each of these would fail if it were done twice.
async fn changes(sandbox: &Sandbox, is_over: &AtomicBool) -> Result<usize> {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (file, dir) = (format!("file-{count}"), format!("dir-{count}"));
        let created = Write { create_only: true, ..Write::new(file.as_str()) };
        ensure!(sandbox.write(&created, "some apples\n").await?.created);
        ensure!(sandbox.edit(file.as_str(), "apples", "pears and apples").await?.occurrences == 1);
        sandbox.mkdir(&Mkdir { exist_ok: false, ..Mkdir::new(dir.as_str()) }).await?;
        let moved = format!("{dir}/moved");
        sandbox.mv((file.as_str(), moved.as_str())).await?;
        let (_, content) = sandbox.read(&Read::new(moved.as_str())).await?;
        ensure!(&content[..] == b"some pears and apples", "{content:?}");
        sandbox.delete(&Delete::new(dir.as_str())).await?;
        count += 1;
    }
    Ok(count)
}

async fn streams(sandbox: &Sandbox, is_over: &AtomicBool) -> Result<usize> {
    let expected: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut exec = sandbox.spawn("for i in 1 2 3; do seq $((i*20000-19999)) $((i*20000)); sleep 0.1; done").await?;
        let mut streamed = Vec::new();
        while let Some(event) = exec.next().await? {
            match event {
                Event::Output(_, data) => streamed.extend_from_slice(&data),
                Event::Lost(bytes) => anyhow::bail!("{bytes} bytes were lost"),
                Event::End(_) => {}
            }
        }
        ensure!(streamed == expected.as_bytes(), "{} bytes of {}", streamed.len(), expected.len());
        count += 1;
    }
    Ok(count)
}

async fn transfers(sandbox: &Sandbox, is_over: &AtomicBool) -> Result<usize> {
    let content: Vec<u8> = (0..500_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        sandbox.write(&Write::new("big"), content.clone()).await?;
        ensure!(sandbox.download(&Download::new("big")).await? == content, "it came back changed");
        count += 1;
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs_is_given_up() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = TcpProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    let made = raw.get_or_create(&wanted("pb-hangs")).await?;

    // What is under way goes on where it stopped.
    let mut exec = made.sandbox.spawn("echo begun; sleep 1; seq 1 100000").await?;
    exec.next().await?;
    proxy.freeze_after(Direction::ToClient, 20_000);
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.mend();
    let mut bytes = 0;
    while let Some(event) = exec.next().await? {
        if let Event::Output(_, data) = event {
            bytes += data.len();
        }
    }
    ensure!(bytes == 588_895, "{bytes} bytes");

    // What is opened while nothing moves ends with an error that says so; the API server's own answers too.
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.freeze_after(direction, 0);
        let start = Instant::now();
        let fresh = through(&namespace, proxy.port(), config(rig::BUSYBOX))
            .await?
            .reconnect("pb-hangs")
            .await
            .err()
            .context("a frozen connection answered")?;
        ensure!(start.elapsed() < Duration::from_secs(45), "after {:?}", start.elapsed());
        ensure!(fresh.to_string().contains("can't be reached"), "{fresh}");
    }
    proxy.mend();
    ensure!(made.sandbox.run("echo again").await?.text() == "again\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_while_nothing_moves_ends_within_a_minute() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = TcpProxy::start(&cluster).await?;
    let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
    raw.get_or_create(&wanted("pb-slow")).await?;
    let found = raw.reconnect("pb-slow").await?;
    proxy.freeze_after(Direction::ToClient, 0);
    let start = Instant::now();
    let error = found.sandbox.hello().await.err().context("a frozen connection answered")?;
    println!("given up after {:?}: {error}", start.elapsed());
    ensure!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains("no answer in 20 s"), "{error}");
    ensure!(start.elapsed() < Duration::from_secs(60), "after {:?}", start.elapsed());
    proxy.mend();
    found.sandbox.hello().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_knows_only_version_4_will_do() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = ApiProxy::start(&cluster).await?;
    for (subprotocol, name) in [("v4.channel.k8s.io", "V4"), ("v5.channel.k8s.io", "V5")] {
        proxy.insist_on(subprotocol);
        let raw = through(&namespace, proxy.port(), config(rig::BUSYBOX)).await?;
        let made = raw.get_or_create(&wanted(&format!("pb-{}", name.to_lowercase()))).await?;
        ensure!(made.sandbox.run("echo $((6*7))").await?.text() == "42\n");
        let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
        made.sandbox.write(&Write::new("big"), content.clone()).await?;
        ensure!(made.sandbox.download(&Download::new("big")).await? == content);
    }
    // The version that was agreed on is really the one that is spoken.
    let pod = channel(&namespace, "version", json!({"image": rig::BUSYBOX})).await?;
    for subprotocol in ["v4.channel.k8s.io", "v5.channel.k8s.io"] {
        proxy.insist_on(subprotocol);
        let stream =
            pod.clone().with_client(namespace.access().through(proxy.port()).client().await?).start(&["true"]).await?;
        let spoken = format!("{stream:?}").to_lowercase();
        ensure!(spoken.contains(&subprotocol[..2]), "{spoken}");
    }
    proxy.insist_on("v1.channel.k8s.io");
    let old = pod.with_client(namespace.access().through(proxy.port()).client().await?);
    let error = old.start(&["true"]).await.err().context("an old protocol was spoken")?.to_string();
    ensure!(error.contains("403") && error.contains("v4.channel.k8s.io"), "{error}");
    Ok(())
}

/// Ten clients once sent podbayd ten times.
#[tokio::test(flavor = "multi_thread")]
async fn of_ten_that_open_a_new_pod_one_sends_podbayd() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let size = podbay_embed::daemon(std::env::consts::ARCH).context("no podbayd")?.len() as u64;
    for (name, image) in [("ten-busybox", rig::BUSYBOX), ("ten-debian", rig::DEBIAN)] {
        let pod = channel(&namespace, name, json!({"image": image})).await?;
        let proxy = TcpProxy::start(&cluster).await?;
        let mut clients = Vec::new();
        for _ in 0..10 {
            let client = namespace.access().through(proxy.port()).client().await?;
            clients.push(Sandbox::new(pod.clone().with_client(client)));
        }
        let welcomes = futures_util::future::try_join_all(clients.iter().map(Sandbox::hello)).await?;
        ensure!(welcomes.iter().all(|welcome| welcome.instance == welcomes[0].instance), "more than one podbayd");
        let sent = proxy.carried(Direction::ToServer);
        println!("{name}: {sent} bytes were sent for a podbayd of {size}");
        ensure!(sent > size && sent < size + size / 2, "{sent} bytes were sent for a podbayd of {size}");
        // Nor does anyone send it later.
        Sandbox::new(pod.with_client(namespace.access().through(proxy.port()).client().await?)).hello().await?;
        ensure!(proxy.carried(Direction::ToServer) - sent < 100_000, "it was sent again");
    }
    Ok(())
}
