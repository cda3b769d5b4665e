//! The way to a real cluster: through proxies, and with credentials that expire.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podbay_client::provider::{Provider, Query, Wanted};
use podbay_k8s::raw::{Config, Features, Raw};
use podbay_k8s::{Access, Cluster};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that knows CONNECT and nothing else. Whatever it is asked for, it connects to one server.
struct Proxy {
    address: SocketAddr,
    tunnels: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start(server: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, tunnels) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let counted = tunnels.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(tunnel(client, server.clone(), counted.clone()));
            }
        });
        Ok(Self { address, tunnels })
    }

    fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }
}

async fn tunnel(client: TcpStream, server: String, tunnels: Arc<AtomicUsize>) -> Result<()> {
    let mut client = BufReader::new(client);
    let mut request = String::new();
    client.read_line(&mut request).await?;
    ensure!(request.starts_with("CONNECT "), "{request}");
    while client.read_line(&mut request).await? > 2 {}
    let mut upstream = TcpStream::connect(server).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    tunnels.fetch_add(1, Ordering::Relaxed);
    tokio::io::copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}

/// A test's kubeconfig in a file, with its cluster's entry changed.
fn kubeconfig(namespace: &rig::Namespace, change: impl Fn(&mut Value)) -> Result<tempfile::NamedTempFile> {
    let mut config: Value = serde_json::from_str(&namespace.access().kubeconfig())?;
    change(&mut config["clusters"][0]["cluster"]);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

async fn listed(kubeconfig: &Path) -> Result<usize> {
    let access = Access { kubeconfig: Some(kubeconfig.into()), ..Access::default() };
    let raw = Raw::new(Cluster::connect(&access).await?, Config::default())?;
    Ok(raw.list(&Query::default()).await?.sandboxes.len())
}

fn rules() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    Features { network_rules: true, ..Features::default() }.needs().policy_rules()
}

/// `proxy-url` was ignored: behind a firewall nothing worked that works with kubectl.
#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_through_the_proxy_of_the_kubeconfig() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let namespace = cluster.namespace(rules()).await?;
    let proxy = Proxy::start(cluster.server().replace("https://", "")).await?;
    let file = kubeconfig(&namespace, |entry| entry["proxy-url"] = format!("http://{}", proxy.address).into())?;
    let access = Access { kubeconfig: Some(file.path().into()), ..Access::default() };
    let config = Config {
        image: rig::BUSYBOX.into(),
        image_pull_policy: "Never".into(),
        cpu_request: "10m".into(),
        memory_request: "16Mi".into(),
        ..Config::default()
    };
    let raw = Raw::new(Cluster::connect(&access).await?, config)?;
    let made = raw.get_or_create(&Wanted::default()).await?;
    let before = proxy.tunnels();
    ensure!(before > 0, "the proxy wasn't used");
    ensure!(made.sandbox.run("echo hello").await?.text() == "hello\n");
    ensure!(raw.delete(&made.id).await?);
    Ok(())
}

/// HTTPS_PROXY was ignored too. An environment is a process', so this one starts itself with another.
#[tokio::test(flavor = "multi_thread")]
async fn the_environments_proxy_is_used_unless_no_proxy_names_the_server() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    if let Some(file) = std::env::var_os("PODBAY_TEST_KUBECONFIG") {
        listed(Path::new(&file)).await?;
        return Ok(());
    }
    let namespace = cluster.namespace(rules()).await?;
    let proxy = Proxy::start(cluster.server().replace("https://", "")).await?;
    let file = kubeconfig(&namespace, |entry| {
        // Only the proxy knows where that is.
        entry["server"] = "https://api.podbay.test:6443".into();
        entry["tls-server-name"] = "localhost".into();
    })?;
    let listed_with = |no_proxy: &'static str| {
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "the_environments_proxy_is_used_unless_no_proxy_names_the_server", "--nocapture"])
            .env("PODBAY_TEST_KUBECONFIG", file.path())
            .env("HTTPS_PROXY", format!("http://{}", proxy.address))
            .env("NO_PROXY", no_proxy);
        async move { child.output().await }
    };
    let output = listed_with("other.test").await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let used = proxy.tunnels();
    ensure!(used > 0, "the proxy wasn't used");
    let output = listed_with(".podbay.test").await?;
    ensure!(!output.status.success() && proxy.tunnels() == used, "NO_PROXY was ignored");
    Ok(())
}

/// A client certificate from an exec plugin was used until long after its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_exec_plugin_is_renewed_before_it_expires() -> Result<()> {
    let Some(cluster) = rig::cluster().await? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let pki = cluster.kubeconfig().parent().context("no directory")?.to_owned();
    let (certificate, key) = client_certificate(&cluster, dir.path())?;
    let plugin = dir.path().join("plugin");
    let script = format!(
        "#!/bin/sh\necho run >> {dir}/runs\ncat <<END\n{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \
         \"ExecCredential\", \"status\": {{\"expirationTimestamp\": \"$(date -u -d '+5 seconds' +%Y-%m-%dT%H:%M:%SZ)\", \
         \"clientCertificateData\": {certificate:?}, \"clientKeyData\": {key:?}}}}}\nEND\n",
        dir = dir.path().display(),
    );
    std::fs::write(&plugin, script)?;
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755))?;
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
        "clusters": [{"name": "it", "cluster": {
            "server": cluster.server(),
            "certificate-authority": pki.join("ca.crt"),
        }}],
        "users": [{"name": "it", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": plugin,
            "interactiveMode": "Never",
        }}}],
    });
    let file = dir.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string())?;
    let access = Access { kubeconfig: Some(file), ..Access::default() };
    let raw = Raw::new(Cluster::connect(&access).await?, Config::default())?;
    let runs = || std::fs::read_to_string(dir.path().join("runs")).unwrap_or_default().lines().count();
    let (first, begun) = (runs(), Instant::now());
    while begun.elapsed() < Duration::from_secs(7) {
        raw.list(&Query::default()).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ensure!(runs() > first, "the plugin ran {first} times at first and never again");
    Ok(())
}

/// A certificate for an administrator, signed by the cluster's authority.
fn client_certificate(cluster: &rig::Cluster, dir: &Path) -> Result<(String, String)> {
    let pki = cluster.kubeconfig().parent().context("no directory")?.to_owned();
    let shell = "set -e
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out request -subj /O=system:masters/CN=plugin
        echo extendedKeyUsage=clientAuth > extensions
        openssl x509 -req -in request -extfile extensions -CA \"$0/ca.crt\" -CAkey \"$0/ca.key\" -days 1 -out certificate";
    let output = std::process::Command::new("sh").args(["-c", shell]).arg(&pki).current_dir(dir).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((std::fs::read_to_string(dir.join("certificate"))?, std::fs::read_to_string(dir.join("key"))?))
}
