//! Sandboxes for clients without any right on the cluster: a router's URL, a Sandbox's name and a key are all that they have. And what
//! such a client's tokens must not open.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod suite;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use podbay::Podbay;
use podbay::k8s::Cluster;
use podbay::k8s::agent_sandbox::{AgentSandbox, Config, Features};
use podbay::k8s::channel::Connection;
use podbay::k8s::doctor::{CheckState, Depth, Doctor, DoctorReport, Trial};
use podbay::k8s::install::{Install, Template};
use podbay::k8s::keys::PrivateKey;
use podbay::k8s::raw;
use podbay::provider::{Provider, Query, Wanted};
use podbay_proto::token::Claims;
use rig::AddOn;

/// The same for whoever installs the template and whoever uses its sandboxes.
fn key() -> PrivateKey {
    PrivateKey::from_seed([9; 32])
}

/// A template for the router's clients, with podbayd in the image.
fn template(name: &str) -> Template {
    let pod = raw::Config {
        image: rig::PODBAY_RUNTIME.into(),
        image_pull_policy: "Never".into(),
        memory_request: "16Mi".into(),
        ..raw::Config::default()
    };
    Template {
        name: name.into(),
        replicas: 1,
        pod,
        allow_env: false,
        public_keys: vec![key().public()],
        admit_router: true,
        router_namespace: "agent-sandbox-system".into(),
        podbayd_in_image: true,
        runtime_api: false,
    }
}

/// Two sandboxes that others created, one from a warm pool, and one whose podbayd wasn't told its Sandbox's name.
struct Fixture {
    cluster: rig::TestCluster,
    namespace: rig::Namespace,
    router: String,
    /// The claim and the Sandbox of each.
    sandboxes: Vec<(String, String)>,
    owner: AgentSandbox,
    _key: tempfile::TempDir,
}

impl Fixture {
    /// The account of the namespace has no rights at all.
    async fn new() -> Option<Self> {
        let cluster = rig::cluster_with(&[AddOn::AgentSandbox]).await.unwrap()?;
        let arch = std::env::consts::ARCH;
        let daemon = (podbay_embed::daemon(arch).unwrap(), podbay_embed::digest(arch).unwrap());
        cluster.add_images(&[rig::Runtime::Debian.image(daemon.0, daemon.1).unwrap()]).unwrap();
        let namespace = cluster.namespace(Vec::new()).await.unwrap();
        for name in ["podbay", "unaware"] {
            let install = Install {
                namespace: namespace.name().into(),
                account: "owner".into(),
                template: Some(template(name)),
                ..Install::new(Features { templates: true, ..Features::default() }.needs())
            };
            let manifests = install.manifests().unwrap();
            assert!(manifests.contains("PODBAYD_SANDBOX_OBJECT"), "{manifests}");
            let told = if name == "podbay" { "PODBAYD_SANDBOX_OBJECT" } else { "SOMETHING_ELSE" };
            cluster.apply(&manifests.replace("PODBAYD_SANDBOX_OBJECT", told)).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, key().secret_text()).unwrap();
        let owner = |template: &str| {
            let config = Config {
                template_name: Some(template.into()),
                connection: Connection::Tunnel,
                private_key_file: file.to_str().map(str::to_owned),
                ..Config::default()
            };
            AgentSandbox::new(&Cluster::with_client(cluster.admin(), namespace.name()), config).unwrap()
        };
        let mut sandboxes = Vec::new();
        for template in ["podbay", "podbay", "unaware"] {
            let made = owner(template).get_or_create(&Wanted::default()).await.unwrap();
            made.sandbox.run(format!("echo {} > who", made.id).as_str()).await.unwrap();
            let jsonpath = "-o=jsonpath={.status.sandbox.name}";
            let mut kubectl = cluster.kubectl();
            kubectl.args(["get", "sandboxclaim", &made.id, "--namespace", namespace.name(), jsonpath]);
            let name = String::from_utf8(kubectl.output().unwrap().stdout).unwrap();
            assert!(!name.is_empty());
            sandboxes.push((made.id, name));
        }
        let services: Api<Service> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
        let router = services.get("sandbox-router-svc").await.unwrap().spec.unwrap().cluster_ip.unwrap();
        Some(Self { owner: owner("podbay"), cluster, namespace, router, sandboxes, _key: dir })
    }

    /// Runs a test again where the router has an address.
    async fn run_inside(&self, test: &str, more: &[(&str, &str)]) {
        let names: Vec<String> = self.sandboxes.iter().map(|(claim, name)| format!("{claim}={name}")).collect();
        let names = names.join(",");
        let environment = [&[("PODBAY_TEST_ROUTER", self.router.as_str()), ("PODBAY_TEST_SANDBOXES", &names)], more];
        self.namespace.run_test_inside_with(test, &environment.concat()).await.unwrap();
    }
}

/// What the process in the cluster's network is told.
struct Inside {
    namespace: String,
    router: String,
    sandboxes: Vec<(String, String)>,
    key_file: String,
    _dir: tempfile::TempDir,
}

impl Inside {
    fn new(namespace: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, key().secret_text()).unwrap();
        let names = std::env::var("PODBAY_TEST_SANDBOXES").unwrap();
        let pair = |pair: &str| pair.split_once('=').map(|(claim, name)| (claim.to_owned(), name.to_owned())).unwrap();
        Self {
            namespace,
            router: std::env::var("PODBAY_TEST_ROUTER").unwrap(),
            sandboxes: names.split(',').map(pair).collect(),
            key_file: file.to_str().unwrap().to_owned(),
            _dir: dir,
        }
    }

    /// The settings of a client that has a URL and a key. What it would use for the API isn't there.
    fn settings(&self) -> podbay::config::Config {
        let mut config = podbay::config::Config::default();
        for (key, value) in [
            ("mode", "agent-sandbox"),
            ("cluster.connection", "direct"),
            ("cluster.namespace", &self.namespace),
            ("cluster.private_key_file", &self.key_file),
            ("cluster.kubeconfig", "/nowhere/kubeconfig"),
            ("agent_sandbox.router_url", &format!("http://{}:8080", self.router)),
            ("agent_sandbox.router_only", "true"),
        ] {
            config.set(key, value).unwrap();
        }
        config
    }

    /// Asks the router for a podbayd, with a token, and returns the status and the answer's body.
    fn knock(&self, sandbox: &str, token: &str) -> (u16, String) {
        let mut stream = TcpStream::connect((self.router.as_str(), 8080)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!(
            "GET /podbay/v1 HTTP/1.1\r\nHost: router\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: \
             13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX-Sandbox-ID: {sandbox}\r\nX-Sandbox-Namespace: \
             {}\r\nX-Sandbox-Port: 7777\r\nX-Podbay-Token: {token}\r\n\r\n",
            self.namespace
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        // An upgraded connection stays open, and a refusal comes with its body.
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            answer.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&answer);
            if text.starts_with("HTTP/1.1 101") || text.contains('}') {
                break;
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text:?}"));
        (status, text)
    }

    fn token(&self, namespace: &str, sandbox: &str) -> String {
        key().sign(&Claims::without_pod(namespace, sandbox, None, now() + 600))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn state(report: &DoctorReport, check: &str) -> Option<CheckState> {
    report.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.state).max()
}

/// A router's URL, a name and a key are enough for everything that is done in a sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_rights_uses_sandboxes_that_exist() {
    if let Some(namespace) = rig::inside() {
        return match std::env::var_os("PODBAY_TEST_READS_CLAIMS") {
            Some(_) => reads_claims(&Inside::new(namespace)).await,
            None => without_rights(&Inside::new(namespace)).await,
        };
    }
    let Some(fixture) = Fixture::new().await else { return };
    let test = "a_client_without_rights_uses_sandboxes_that_exist";
    fixture.run_inside(test, &[]).await;
    // An account that may read claims needn't be told the Sandboxes' names.
    let install = Install {
        namespace: fixture.namespace.name().into(),
        account: "test".into(),
        ..Install::new(Features { only_claims_names: true, ..Features::default() }.needs())
    };
    fixture.cluster.apply(&install.manifests().unwrap()).unwrap();
    fixture.run_inside(test, &[("PODBAY_TEST_READS_CLAIMS", "1")]).await;
    for (claim, _) in &fixture.sandboxes {
        assert!(fixture.owner.delete(claim).await.unwrap());
    }
}

async fn without_rights(inside: &Inside) {
    let (claim, name) = &inside.sandboxes[0];
    let podbay = Podbay::new(inside.settings()).unwrap();
    let sandbox = podbay.reconnect(name).await.unwrap();
    assert_eq!(sandbox.run("cat who").await.unwrap().text(), format!("{claim}\n"));
    suite::all(&sandbox).await;
    // The second one is another, also under its claim's name.
    let mut settings = inside.settings();
    let (other, other_name) = &inside.sandboxes[1];
    settings.set("agent_sandbox.sandbox_names", &format!("{other}={other_name}")).unwrap();
    let named = Podbay::new(settings).unwrap().reconnect(other).await.unwrap();
    assert_eq!(named.run("cat who").await.unwrap().text(), format!("{other}\n"));
    assert_eq!(named.id(), other);

    what_needs_rights_says_so(&podbay, name).await;
    wrong_names_are_explained(&podbay, inside).await;

    // Whoever has credentials and no rights gets there too, if it needn't be a sandbox of Podbay's: whose it is can't be seen.
    let mut settings = inside.settings();
    let kubeconfig = std::env::var("KUBECONFIG").unwrap();
    for (key, value) in [
        ("cluster.kubeconfig", kubeconfig.as_str()),
        ("agent_sandbox.router_only", "false"),
        ("agent_sandbox.sandbox_names", &format!("{claim}={name}")),
    ] {
        settings.set(key, value).unwrap();
    }
    let error = Podbay::new(settings.clone()).unwrap().reconnect(claim).await.unwrap_err();
    assert_eq!(podbay::ErrorName::of(&error).exception, "PermissionDenied", "{error}");
    settings.set("agent_sandbox.foreign_claims", "true").unwrap();
    let podbay = Podbay::new(settings).unwrap();
    let found = podbay.reconnect(claim).await.unwrap();
    assert_eq!(found.run("cat who").await.unwrap().text(), format!("{claim}\n"));
    let error = podbay.list(&Query::default()).await.unwrap_err().to_string();
    assert!(error.contains("sandboxclaims"), "{error}");

    the_doctor_tries_the_router(inside).await;
}

async fn what_needs_rights_says_so(podbay: &Podbay, name: &str) {
    let errors = [
        ("create sandboxclaims", podbay.create().await.unwrap_err()),
        ("create sandboxclaims", podbay.get_or_create(name).await.unwrap_err()),
        ("list sandboxclaims", podbay.list(&Query::default()).await.unwrap_err()),
        ("get sandboxclaims", podbay.describe(name).await.unwrap_err()),
        ("delete sandboxclaims", podbay.delete(name).await.unwrap_err()),
        ("patch sandboxes", podbay.suspend(name).await.unwrap_err()),
        ("patch sandboxes", podbay.resume(name).await.unwrap_err()),
        ("delete sandboxclaims", podbay.cleanup(None).await.unwrap_err()),
        ("list sandboxclaims", podbay.stats(Duration::from_secs(1)).await.unwrap_err()),
        ("get sandboxwarmpools", podbay.pool_status().await.unwrap_err()),
    ];
    for (right, error) in errors {
        let text = error.to_string();
        assert!(text.contains(right) && text.contains("cluster.kubeconfig"), "{text}");
        assert_eq!(podbay::ErrorName::of(&error).exception, "PermissionDenied");
    }
}

/// Every failure names the connection, the address and what to do.
async fn wrong_names_are_explained(podbay: &Podbay, inside: &Inside) {
    let error = podbay.reconnect("no-such-sandbox").await.unwrap_err();
    assert_eq!(podbay::ErrorName::of(&error).exception, "Unreachable");
    let error = error.to_string();
    let address = format!("http://{}:8080", inside.router);
    for words in ["connection direct", address.as_str(), "no-such-sandbox", "status.sandbox.name", "podbay doctor"] {
        assert!(error.contains(words), "{error} lacks {words}");
    }
    let unaware = podbay.reconnect(&inside.sandboxes[2].1).await.unwrap_err().to_string();
    assert!(unaware.contains("PODBAYD_SANDBOX_OBJECT") && unaware.contains("connection direct"), "{unaware}");
    let elsewhere = podbay.reconnect("elsewhere/box").await.unwrap_err().to_string();
    assert!(elsewhere.contains("elsewhere"), "{elsewhere}");
}

async fn the_doctor_tries_the_router(inside: &Inside) {
    let examine = async |sandbox: Option<&str>, url: Option<&str>| {
        let mut settings = inside.settings();
        url.into_iter().for_each(|url| settings.set("agent_sandbox.router_url", url).unwrap());
        let (cluster, config) = settings.agent_sandbox_cluster().await.unwrap();
        let trial = Trial { hold: Some(Duration::from_secs(3)), sandbox: sandbox.map(str::to_owned) };
        Doctor::agent_sandbox_with(cluster, config, trial).unwrap().examine(Depth::Full).await
    };
    let report = examine(Some(&inside.sandboxes[0].1), None).await;
    assert!(report.usable && state(&report, "hold") == Some(CheckState::Ok), "{report:?}");
    assert_eq!(
        (state(&report, "cluster"), state(&report, "channel")),
        (Some(CheckState::Skipped), Some(CheckState::Ok))
    );
    let report = examine(None, None).await;
    assert!(report.usable && state(&report, "channel") == Some(CheckState::Skipped), "{report:?}");
    let report = examine(Some(&inside.sandboxes[2].1), None).await;
    assert!(!report.usable && state(&report, "hold").is_none(), "{report:?}");
    let report = examine(None, Some("http://127.0.0.1:1")).await;
    let found = report.findings.iter().find(|finding| finding.state == CheckState::Failed).unwrap();
    assert!(found.detail.contains("127.0.0.1:1") && found.fix.is_some(), "{report:?}");
}

/// The name of the Sandbox is in the claim.
async fn reads_claims(inside: &Inside) {
    let mut settings = inside.settings();
    let kubeconfig = std::env::var("KUBECONFIG").unwrap();
    settings.set("cluster.kubeconfig", &kubeconfig).unwrap();
    settings.set("agent_sandbox.router_only", "false").unwrap();
    let podbay = Podbay::new(settings).unwrap();
    let (claim, name) = &inside.sandboxes[0];
    let mut left = 50;
    let found = loop {
        left -= 1;
        match podbay.reconnect(claim).await {
            Ok(found) => break found,
            // The API server learns of the role a moment later.
            Err(_) if left > 0 => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found.run("cat who").await.unwrap().text(), format!("{claim}\n"));
    // A name that no claim has isn't tried as a Sandbox's.
    let error = podbay.reconnect(name).await.unwrap_err();
    assert_eq!(podbay::ErrorName::of(&error).exception, "SandboxNotFound", "{error}");
}

/// A token that names no pod is shown wherever it could be of use to somebody who stole it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_a_pod_opens_nothing_else() {
    let Some(namespace) = rig::inside() else {
        let Some(fixture) = Fixture::new().await else { return };
        fixture.run_inside("a_token_without_a_pod_opens_nothing_else", &[]).await;
        // From outside of the cluster, with all rights: every connection that is configured, and a policy that admits the router.
        let config = Config {
            template_name: Some("podbay".into()),
            connection: Connection::Tunnel,
            private_key_file: fixture._key.path().join("key").to_str().map(str::to_owned),
            ..Config::default()
        };
        let cluster = Cluster::with_client(fixture.cluster.admin(), fixture.namespace.name());
        let trial = Trial { hold: Some(Duration::from_secs(3)), sandbox: None };
        let report = Doctor::agent_sandbox_with(cluster, config, trial).unwrap().examine(Depth::Full).await;
        assert!(report.usable, "{report:?}");
        for check in ["channel", "hold", "ports"] {
            assert_eq!(state(&report, check), Some(CheckState::Ok), "{report:?}");
        }
        let channel = report.findings.iter().find(|finding| finding.check == "channel").unwrap();
        assert_eq!(channel.what, "connection tunnel");
        return;
    };
    let inside = Inside::new(namespace);
    let (own, [(claim, first), (_, second), (_, unaware)]) = (inside.namespace.as_str(), &inside.sandboxes[..]) else {
        panic!("there are three sandboxes")
    };
    let good = inside.token(own, first);
    assert_eq!(inside.knock(first, &good).0, 101);
    let in_container = |container| key().sign(&Claims::without_pod(own, first, Some(container), now() + 600));
    assert_eq!(inside.knock(first, &in_container("sandbox")).0, 101);
    let with = |claims: Claims| key().sign(&claims);
    let plain = Claims::without_pod(own, first, None, now() + 600);
    for (story, sandbox, token, words) in [
        ("another sandbox's", second, good.clone(), "for another sandbox"),
        ("a podbayd that doesn't know its Sandbox", unaware, inside.token(own, unaware), "PODBAYD_SANDBOX_OBJECT"),
        ("the same with another's token", unaware, good.clone(), "PODBAYD_SANDBOX_OBJECT"),
        ("another namespace", first, inside.token("default", first), "for another sandbox"),
        ("no namespace", first, inside.token("", first), "for another sandbox"),
        ("no sandbox", first, inside.token(own, ""), "for another sandbox"),
        ("the claim's name", first, inside.token(own, claim), "for another sandbox"),
        ("another container", first, in_container("other"), "for another sandbox"),
        ("a pod's name alone", first, with(Claims { pod: first.clone(), ..plain.clone() }), "for another sandbox"),
        ("another pod", first, with(Claims { uid: "u".into(), ..plain.clone() }), "for another sandbox"),
        ("an expired one", first, with(Claims { expires: now() - 1, ..plain.clone() }), "expired"),
        ("one forever", first, with(Claims { expires: u64::MAX, ..plain.clone() }), "more than a day"),
        ("another key", first, PrivateKey::from_seed([8; 32]).sign(&plain), "doesn't accept"),
        ("a changed one", first, changed(&good), "token"),
        ("none", first, String::new(), "requires a token"),
    ] {
        let (status, body) = inside.knock(sandbox, &token);
        assert!(status == 401 && body.contains(words), "{story}: {status} {body}");
    }
}

/// The token with another signature: its first character stands for six bits, all of which count.
fn changed(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{other}{}", &signature[1..])
}
