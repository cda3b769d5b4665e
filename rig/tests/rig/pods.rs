//! Pods: running them, executing in them, forwarding ports to them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, PostParams, WatchEvent, WatchParams};
use rig::{File, Image, Layer, Namespace, TestCluster};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::timing::part;

/// The pods of a namespace, as its account sees them.
pub(crate) struct Pods {
    api: Api<Pod>,
}

/// A pod's spec that just waits.
pub(crate) fn waiting(image: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": image, "imagePullPolicy": "Never"}],
    })
}

/// A pod's spec that serves HTTP on port 8000.
pub(crate) fn server() -> Value {
    let mut spec = waiting(rig::DEBIAN);
    spec["containers"][0]["command"] = json!(["python3", "-m", "http.server", "8000"]);
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 8000}, "periodSeconds": 1});
    spec
}

impl Pods {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        Self { api: Api::default_namespaced(namespace.client()) }
    }

    /// Makes a pod and waits until it is ready.
    pub(crate) async fn run(&self, name: &str, spec: Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        let made = self.api.create(&PostParams::default(), &pod).await?;
        let version = made.metadata.resource_version.context("no resourceVersion")?;
        let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
        let mut events = Box::pin(self.api.watch(&only, &version).await?);
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) if is_ready(&pod) => return Ok(()),
                WatchEvent::Deleted(_) => bail!("pod {name} was deleted"),
                WatchEvent::Error(error) => bail!("watching pod {name}: {error:?}"),
                _ => {}
            }
        }
        let status = self.api.get(name).await?.status;
        bail!("pod {name} wasn't ready after 60 s: {status:?}")
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Pod> {
        Ok(self.api.get(name).await?)
    }

    /// Runs a command with this on its standard input; gives standard output and whether it succeeded.
    pub(crate) async fn exec(&self, pod: &str, command: &[&str], input: Option<&[u8]>) -> Result<(String, bool)> {
        let parameters = AttachParams::default().stdin(input.is_some()).stderr(false);
        let mut process = self.api.exec(pod, command.to_vec(), &parameters).await?;
        if let Some(input) = input {
            let mut stdin = process.stdin().context("no standard input")?;
            stdin.write_all(input).await?;
            stdin.shutdown().await?;
        }
        let mut output = String::new();
        process.stdout().context("no standard output")?.read_to_string(&mut output).await?;
        let status = process.take_status().context("no status")?.await.context("the connection ended early")?;
        process.join().await?;
        Ok((output, status.status.as_deref() == Some("Success")))
    }

    /// `cat` ends only at the end of its input, and only version 5 of the protocol can say that there is one.
    pub(crate) async fn exec_needs_v5(&self, pod: &str) -> Result<()> {
        let echo = self.exec(pod, &["cat"], Some(b"one\ntwo\n"));
        let (output, success) =
            tokio::time::timeout(Duration::from_secs(10), echo).await.context("no end of input: not version 5?")??;
        ensure!(success && output == "one\ntwo\n", "cat gave {output:?}");
        let (_, success) = self.exec(pod, &["sh", "-c", "exit 3"], None).await?;
        ensure!(!success, "exit 3 was a success");
        let start = Instant::now();
        for _ in 0..10 {
            self.exec(pod, &["true"], None).await?;
        }
        part("10 execs of `true`, one after the other", start);
        Ok(())
    }

    pub(crate) async fn get_through_port_forward(&self, pod: &str, port: u16) -> Result<()> {
        let start = Instant::now();
        let mut forward = self.api.portforward(pod, &[port]).await?;
        part("port-forward: open", start);
        let answer = http_get(forward.take_stream(port).context("no stream")?).await?;
        ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        // Not `join`: kube answers a closed connection's Close by an error of its own.
        forward.abort();
        Ok(())
    }
}

/// GET / over any byte stream; the whole answer, by its length, since the end of a forwarded stream comes a second late.
async fn http_get(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: rig\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    while !is_whole(&String::from_utf8_lossy(&answer)) && stream.read_buf(&mut answer).await? > 0 {}
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// An image made by a test, for a test.
pub(crate) async fn own_image(cluster: &TestCluster, pods: &Pods) -> Result<()> {
    let name = "localhost/own:1";
    let file = File::new("/etc/own.conf", "colour = blue\n").owner(1000).mode(0o600);
    let image = Image::new(name).layer(Layer::debian()).layer(Layer::files("own", [file])).user("1000");
    let image = image.command(["sleep", "1000"]);
    let cluster = rig::Cluster::clone(cluster);
    tokio::task::spawn_blocking(move || cluster.add_images(&[image])).await??;
    pods.run("own", waiting(name)).await?;
    let (output, _) = pods.exec("own", &["sh", "-c", "cat /etc/own.conf; stat -c '%u %a' /etc/own.conf"], None).await?;
    ensure!(output == "colour = blue\n1000 600\n", "{output:?}");
    // Compiled modules must be valid as they are: Python would write (or try to write) new ones otherwise.
    let look = "import sys, importlib.util as u; s = u.find_spec('json'); print(s.cached)";
    let (cached, _) = pods.exec("own", &["python3", "-c", look], None).await?;
    let check = format!("import struct; print(struct.unpack('<I', open({:?}, 'rb').read()[4:8])[0])", cached.trim());
    let (flags, _) = pods.exec("own", &["python3", "-c", &check], None).await?;
    // Bit 0: by hash, not by time. Bit 1: check the source. PEP 552.
    ensure!(flags.trim() == "1", "{}: flags {flags:?}", cached.trim());
    Ok(())
}

pub(crate) async fn read_only_root(pods: &Pods) -> Result<()> {
    let mut spec = waiting(rig::NONROOT);
    spec["containers"][0]["securityContext"] = json!({
        "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 1000, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    pods.run("nonroot", spec).await?;
    let (output, _) = pods.exec("nonroot", &["sh", "-c", "id -un; touch /workspace/x || echo refused"], None).await?;
    ensure!(output == "agent\nrefused\n", "{output:?}");
    pods.run("busybox", waiting(rig::BUSYBOX)).await?;
    let none = "for p in python3 bash perl; do command -v $p; done; readlink /bin/ls";
    let (output, _) = pods.exec("busybox", &["sh", "-c", none], None).await?;
    ensure!(output == "busybox\n", "{output:?}");
    Ok(())
}

pub(crate) async fn runtimes(pods: &Pods) -> Result<()> {
    for (class, proof) in [("gvisor", "Starting gVisor"), ("crun", "")] {
        let start = Instant::now();
        let mut spec = waiting(rig::BUSYBOX);
        spec["runtimeClassName"] = class.into();
        pods.run(class, spec).await?;
        part(&format!("{class}: create to Ready"), start);
        let (output, success) = pods.exec(class, &["sh", "-c", "dmesg 2>&1; echo end"], None).await?;
        ensure!(success && output.contains(proof), "{class}: {output:?}");
    }
    Ok(())
}
