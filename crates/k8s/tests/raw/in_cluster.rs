//! podbayd at the pod's own address. Pods have no address outside of the cluster, so each test runs itself again in the
//! node's network.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use podbay_client::files::{Download, Read, Write};
use podbay_client::provider::Provider;
use podbay_client::{ErrorCode, Sandbox, TcpChannel};
use podbay_k8s::channel::Connection;
use podbay_k8s::keys::{self, PrivateKey};
use podbay_k8s::raw::{Config, Raw};
use podbay_k8s::{Access, Cluster};
use podbay_proto::token::Claims;
use serde_json::json;

use crate::pods::{channel, rules};
use crate::provider::{config, provider, wanted};

const PORT: u16 = 7777;

/// Runs a test of this program again in the node's network. There it returns the namespace to work in, here nothing.
async fn inside(test: &str) -> Result<Option<String>> {
    if let Some(namespace) = rig::inside() {
        return Ok(Some(namespace));
    }
    let Some(cluster) = rig::cluster().await? else { return Ok(None) };
    cluster.namespace(rules()).await?.run_test_inside(test).await?;
    Ok(None)
}

async fn cluster_inside(namespace: &str) -> Result<Cluster> {
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    Ok(Cluster::connect(&Access { kubeconfig, namespace: Some(namespace.into()), ..Access::default() }).await?)
}

fn key_file(dir: &Path, name: &str, keys: &[&PrivateKey]) -> Result<String> {
    let path = dir.join(name);
    let text: Vec<String> = keys.iter().map(|key| key.secret_text()).collect();
    std::fs::write(&path, text.join("\n"))?;
    Ok(path.to_str().context("a path that isn't UTF-8")?.to_owned())
}

fn with(connection: Connection, key_file: Option<&str>) -> Config {
    Config { connection, private_key_file: key_file.map(str::to_owned), ..config(rig::DEBIAN) }
}

async fn pod(pods: &Api<Pod>, sandbox: &str) -> Result<Pod> {
    let list = pods.list(&ListParams::default().labels(&format!("podbay.dev/sandbox={sandbox}"))).await?;
    list.items.into_iter().next().context("no pod")
}

fn ip(pod: &Pod) -> Result<IpAddr> {
    Ok(pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).context("no address")?.parse()?)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(pod: &Pod, expires: u64) -> Claims {
    Claims {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        sandbox: String::new(),
        pod: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        container: "sandbox".into(),
        expires,
    }
}

async fn p50(sandbox: &Sandbox) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        sandbox.read(&Read::new("a")).await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_are_reached_at_their_own_address_by_their_own_token() -> Result<()> {
    let name = "in_cluster::sandboxes_are_reached_at_their_own_address_by_their_own_token";
    let Some(namespace) = inside(name).await? else { return Ok(()) };
    let cluster = cluster_inside(&namespace).await?;
    let dir = tempfile::tempdir()?;
    let (first, second) = (keys::generate(), keys::generate());
    let both = key_file(dir.path(), "both", &[&first, &second])?;
    let raw = Raw::new(cluster.clone(), with(Connection::InCluster, Some(&both)))?;
    let (a, b) = (raw.get_or_create(&wanted("pb-a")).await?, raw.get_or_create(&wanted("pb-b")).await?);
    ensure!(a.sandbox.run("echo here").await?.text() == "here\n");
    a.sandbox.write(&Write::new("a"), "kept\n").await?;
    a.sandbox.write(&Write::new("large"), vec![7; 20 << 20]).await?;
    ensure!(a.sandbox.download(&Download::new("large")).await?.len() == 20 << 20);
    ensure!(b.sandbox.run("ls").await?.text().is_empty());

    // Others find it, with the other key and through exec; both reach the same podbayd.
    let only_second = key_file(dir.path(), "second", &[&second])?;
    let rotated = Raw::new(cluster.clone(), with(Connection::InCluster, Some(&only_second)))?.reconnect("pb-a").await?;
    let by_exec = Raw::new(cluster.clone(), with(Connection::Exec, None))?.reconnect("pb-a").await?;
    let instance = a.sandbox.hello().await?.instance;
    ensure!(rotated.sandbox.hello().await?.instance == instance && by_exec.sandbox.hello().await?.instance == instance);
    println!("read p50: at the pod's address {:?}, by exec {:?}", p50(&a.sandbox).await?, p50(&by_exec.sandbox).await?);

    // A token of one opens no other; an old one nothing.
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_default().await?, &namespace);
    let (pod_a, pod_b) = (pod(&pods, "pb-a").await?, pod(&pods, "pb-b").await?);
    let at = |pod: &Pod, token: String| {
        Ok::<_, anyhow::Error>(Sandbox::new(TcpChannel::new(format!("{}:{PORT}", ip(pod)?), token)))
    };
    ensure!(at(&pod_a, first.sign(&claims(&pod_a, now() + 60)))?.run("true").await?.success());
    for (token, to) in [
        (first.sign(&claims(&pod_a, now() + 60)), &pod_b),
        (first.sign(&claims(&pod_a, now() - 1)), &pod_a),
        (keys::generate().sign(&claims(&pod_a, now() + 60)), &pod_a),
    ] {
        let error = at(to, token)?.run("true").await.unwrap_err();
        ensure!(error.code() == Some(ErrorCode::Unauthorized), "{error}");
    }

    // With a key that podbayd doesn't know there is no way but exec, and it says so where that isn't allowed.
    let other = key_file(dir.path(), "other", &[&keys::generate()])?;
    let refused = Raw::new(cluster.clone(), with(Connection::InCluster, Some(&other)))?.reconnect("pb-a").await?;
    let error = tokio::time::timeout(Duration::from_secs(5), refused.sandbox.run("true")).await?.unwrap_err();
    ensure!(error.to_string().contains("refuses this client"), "{error}");
    let auto = Raw::new(cluster.clone(), with(Connection::Auto, Some(&other)))?.reconnect("pb-a").await?;
    ensure!(auto.sandbox.hello().await?.instance == instance);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_address_does_not_work_exec_does() -> Result<()> {
    let name = "in_cluster::where_the_address_does_not_work_exec_does";
    let Some(namespace) = inside(name).await? else { return Ok(()) };
    let cluster = cluster_inside(&namespace).await?;
    let dir = tempfile::tempdir()?;
    let file = key_file(dir.path(), "key", &[&keys::generate()])?;
    // A sandbox that was made without a key doesn't listen.
    let plain = Raw::new(cluster.clone(), with(Connection::Auto, None))?;
    let made = plain.get_or_create(&wanted("pb-plain")).await?;
    ensure!(made.sandbox.run("true").await?.success());
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_default().await?, &namespace);
    let address = ip(&pod(&pods, "pb-plain").await?)?;
    let refused = tokio::net::TcpStream::connect((address, PORT)).await;
    ensure!(refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused), "it listens");
    let auto = Raw::new(cluster.clone(), with(Connection::Auto, Some(&file)))?;
    ensure!(auto.reconnect("pb-plain").await?.sandbox.run("echo by exec").await?.text() == "by exec\n");

    // Something in the sandbox answers in podbayd's place: nothing, nonsense, or forever.
    for (how, answer) in [
        ("says nothing", "time.sleep(60)"),
        ("says nonsense", "c.sendall(b'SSH-2.0-x\\r\\n\\r\\n'); time.sleep(60)"),
        ("never ends", "[c.sendall(b'x' * 65536) for _ in range(100000)]"),
        (
            "claims to be podbayd",
            "c.recv(4096); c.sendall(b'HTTP/1.1 101 S\\r\\n\\r\\nnot http2 at all'); time.sleep(60)",
        ),
    ] {
        let script = format!(
            "import socket, threading, time\ns = socket.create_server(('', {PORT}))\ndef serve(c):\n  {answer}\nwhile True:\n  c, _ = \
             s.accept(); threading.Thread(target=serve, args=(c,), daemon=True).start()"
        );
        let hostile = made.sandbox.start(podbay_client::Command::argv(["python3", "-c", &script])).await?;
        let begun = Instant::now();
        while tokio::net::TcpStream::connect((address, PORT)).await.is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "the proxy doesn't listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let begun = Instant::now();
        let found = auto.reconnect("pb-plain").await?;
        ensure!(found.sandbox.run("echo still").await?.text() == "still\n", "{how}");
        println!("a server that {how}: {:?}", begun.elapsed());
        ensure!(begun.elapsed() < Duration::from_secs(10), "{how}: {:?}", begun.elapsed());
        made.sandbox.signal(&hostile.id, 9).await?;
        while tokio::net::TcpStream::connect((address, PORT)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Traffic from the node is never filtered, so this one asks from pods.
#[tokio::test(flavor = "multi_thread")]
async fn only_pods_with_the_clients_label_reach_podbayd() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let dir = tempfile::tempdir()?;
    let file = key_file(dir.path(), "key", &[&keys::generate()])?;
    // This process is outside of the pods' network, so it also shows that it continues through exec.
    let raw = provider(&namespace, with(Connection::Auto, Some(&file)))?;
    let begun = Instant::now();
    let made = raw.get_or_create(&wanted("pb-open")).await?;
    ensure!(made.sandbox.run("echo by exec").await?.text() == "by exec\n");
    println!("create to first result without a way to the pod's address: {:?}", begun.elapsed());
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), namespace.name());
    let address = ip(&pod(&pods, "pb-open").await?)?.to_string();
    let client = channel(&namespace, "client", json!({"image": rig::DEBIAN})).await?;
    let sandbox = Sandbox::new(client);
    let script = format!(
        "import socket\ns = socket.create_connection(('{address}', {PORT}), 2)\ns.sendall(b'GET /podbay/v1 HTTP/1.1\\r\\n\\r\\n')\n\
         print(s.recv(12).decode())"
    );
    let ask = || async {
        let command = podbay_client::Command::argv(["python3", "-c", &script]);
        Ok::<_, anyhow::Error>(sandbox.run(command).await?.text() == "HTTP/1.1 401\n")
    };
    let label = |value: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"podbay.dev/client": value}}}));
        let pods = pods.clone();
        async move { pods.patch("client", &PatchParams::default(), &patch).await.map(drop) }
    };
    ensure!(!ask().await?, "a pod without the label reached podbayd");
    label(Some("true")).await?;
    let begun = Instant::now();
    while !ask().await? {
        ensure!(begun.elapsed() < Duration::from_secs(20), "a client's pod doesn't reach podbayd");
    }
    label(None).await?;
    let begun = Instant::now();
    while ask().await? {
        ensure!(begun.elapsed() < Duration::from_secs(20), "a pod without the label still reaches podbayd");
    }
    Ok(())
}
