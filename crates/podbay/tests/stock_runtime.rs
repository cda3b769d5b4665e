//! podbayd over the API of upstream's stock runtime, where the router reaches nothing but that runtime's port.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod gateway;
mod suite;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use podbay::files::{Download, Ls, Read, Write};
use podbay::k8s::agent_sandbox::{AgentSandbox, Config, Features, Runtime};
use podbay::k8s::channel::Connection;
use podbay::k8s::doctor::{CheckState, Depth, Doctor};
use podbay::k8s::install::{Install, PodSecurity};
use podbay::k8s::keys::PrivateKey;
use podbay::k8s::{Access, Cluster};
use podbay::provider::{Provider, Wanted};
use podbay::{RawPath, Sandbox};
use rig::AddOn;

/// What admits the router to the stock runtime's port only.
const POLICY: &str = "spec:
  networkPolicy:
    ingress:
      - from:
          - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: agent-sandbox-system}}
            podSelector: {matchLabels: {app: sandbox-router}}
        ports: [{port: 8888, protocol: TCP}]
  podTemplate:";

/// One test stops the router that the others use.
static ROUTER: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// Upstream's template of its Python runtime, and a pool of it.
const STOCK: &str = include_str!("../../../rig/manifests/warm-pool.yaml");

/// The port of upstream's image.
const PORT: u16 = 8888;

/// A namespace with that template, in which the account may not exec and the router reaches the runtime's port and nothing else; and a
/// client that wants podbayd's own port.
async fn only_the_stock_port(case: &Case) -> Option<(rig::Namespace, AgentSandbox, tempfile::TempDir)> {
    let add_ons: Vec<AddOn> = [&[AddOn::AgentSandbox], case.add_ons].concat();
    let cluster = rig::cluster_with(&add_ons).await.unwrap()?;
    // What this connection takes, and nothing for any other.
    let needs = |gateway_namespace: &str| Features::of(&case.config(gateway_namespace, None)).needs();
    let namespace = cluster.namespace(needs("default").policy_rules()).await.unwrap();
    let install = Install {
        namespace: namespace.name().into(),
        account: "test".into(),
        // Upstream's pod isn't hardened.
        pod_security: PodSecurity::Privileged,
        ..Install::new(needs(namespace.name()))
    };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    let stock = STOCK.replace("namespace: default", &format!("namespace: {}", namespace.name()));
    let stock = stock.replacen("spec:\n  podTemplate:", POLICY, 1).replace(&PORT.to_string(), &case.port.to_string());
    let port = case.port;
    let server = format!("command: [python3, -m, uvicorn, 'main:app', --host, 0.0.0.0, --port, '{port}']");
    let container = "imagePullPolicy: Never";
    cluster.apply(&stock.replacen(container, &format!("{container}\n          {server}"), 1)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, PrivateKey::from_seed([7; 32]).secret_text()).unwrap();
    let config = Config {
        template_name: Some("python".into()),
        connection: Connection::Tunnel,
        private_key_file: file.to_str().map(str::to_owned),
        ..Config::default()
    };
    let claims = AgentSandbox::new(&Cluster::with_client(namespace.client(), namespace.name()), config).unwrap();
    Some((namespace, claims, dir))
}

/// The account has no right to exec, and the router reaches only port 8888: over the stock runtime's API, everything that
/// works elsewhere works.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_by_the_stock_runtime_through_a_tunnel() {
    let _used = ROUTER.read().await;
    let Some((namespace, by_port, _dir)) = only_the_stock_port(&Case::by_a_tunnel()).await else { return };
    // podbayd can be brought there, but not reached on its own port: the error says what to do.
    let error = by_port.get_or_create(&Wanted::default()).await.unwrap_err().to_string();
    for words in ["cluster.port", "agent_sandbox.runtime"] {
        assert!(error.contains(words), "{error}");
    }
    let cluster = Cluster::with_client(namespace.client(), namespace.name());
    passes(&cluster, by_the_stock_runtime(), Router::Go).await;
    let report = Doctor::agent_sandbox(cluster, by_the_stock_runtime()).unwrap().examine(Depth::Full).await;
    assert!(report.usable, "{report:?}");
    let found = |what: &str| {
        let finding = report.findings.iter().find(|finding| finding.what == what);
        finding.map_or_else(|| panic!("{what}: {report:?}"), |finding| (finding.state, finding.detail.clone()))
    };
    assert_eq!(found("connection tunnel, over the stock runtime").0, CheckState::Ok, "{report:?}");
    let (state, detail) = found("the stock runtime's API");
    assert!(state == CheckState::Warning && detail.contains("no authentication"), "{detail}");
    assert!(!report.findings.iter().any(|finding| finding.what.contains("pods/exec")), "{report:?}");
}

/// The same at the router's own address.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_by_the_stock_runtime_through_the_routers_url() {
    passes_inside("the_suite_by_the_stock_runtime_through_the_routers_url", Case::default()).await;
}

/// The same through upstream's other router, which is in Python and wants a token.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_by_the_stock_runtime_through_the_python_router() {
    let case = Case { add_ons: &[AddOn::PythonRouter], service: PYTHON_ROUTER, ..Case::default() };
    passes_inside("the_suite_by_the_stock_runtime_through_the_python_router", case).await;
}

/// The same at the address that a Gateway's status names, of a runtime that listens on a port of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_by_a_stock_runtime_on_another_port_through_a_gateway() {
    let case = Case { add_ons: &[AddOn::GatewayApi], connection: Connection::Gateway, port: 8765, ..Case::default() };
    passes_inside("the_suite_by_a_stock_runtime_on_another_port_through_a_gateway", case).await;
}

/// How the stock runtime is reached, by default at the router's URL.
struct Case {
    add_ons: &'static [AddOn],
    /// The router's Service.
    service: &'static str,
    connection: Connection,
    port: u16,
}

impl Default for Case {
    fn default() -> Self {
        Self { add_ons: &[], service: "sandbox-router-svc", connection: Connection::Direct, port: PORT }
    }
}

impl Case {
    fn by_a_tunnel() -> Self {
        Self { connection: Connection::Tunnel, ..Self::default() }
    }

    fn config(&self, gateway_namespace: &str, router_url: Option<String>) -> Config {
        Config {
            connection: self.connection,
            router_url,
            gateway_name: Some("podbay".into()),
            gateway_namespace: gateway_namespace.into(),
            runtime_port: self.port,
            ..by_the_stock_runtime()
        }
    }
}

/// Services have no address outside of the cluster.
async fn passes_inside(test: &str, case: Case) {
    let Some(namespace) = rig::inside() else {
        let _used = ROUTER.read().await;
        let Some((namespace, ..)) = only_the_stock_port(&case).await else { return };
        let cluster = rig::cluster_with(&[AddOn::AgentSandbox]).await.unwrap().unwrap();
        let services: Api<Service> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
        let router = services.get(case.service).await.unwrap().spec.unwrap().cluster_ip.unwrap();
        if case.connection == Connection::Gateway {
            gateway::add(&cluster, namespace.name(), &router);
        }
        let router = format!("http://{router}:8080");
        return namespace.run_test_inside_with(test, &[("PODBAY_TEST_ROUTER", &router)]).await.unwrap();
    };
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let access = Access { kubeconfig, namespace: Some(namespace.clone()), ..Access::default() };
    // The Python router wants it, and the Go router here takes anything.
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "rig\n").unwrap();
    let router_url = std::env::var("PODBAY_TEST_ROUTER").ok();
    let router_token_file = token.path().to_str().map(str::to_owned);
    let config = Config { router_token_file, ..case.config(&namespace, router_url) };
    let router = if case.service == PYTHON_ROUTER { Router::Python } else { Router::GoAgain };
    passes(&Cluster::connect(&access).await.unwrap(), config, router).await;
}

/// The Service of upstream's other router.
const PYTHON_ROUTER: &str = "python-router";

/// What carries the stock runtime's API. What takes long is tried once with each router, whatever leads to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Router {
    Go,
    GoAgain,
    Python,
}

/// What the stock runtime's API is asked to do.
fn by_the_stock_runtime() -> Config {
    Config {
        template_name: Some("python".into()),
        connection: Connection::Tunnel,
        runtime: Runtime::Stock,
        ..Config::default()
    }
}

async fn passes(cluster: &Cluster, config: Config, router: Router) {
    let claims = AgentSandbox::new(cluster, config).unwrap();
    let made = claims.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    // Longer than the router lets any request take to begin its answer. Everything else is done meanwhile, by other requests.
    let mut long = None;
    if router != Router::GoAgain {
        let other = claims.reconnect(&made.id).await.unwrap().sandbox;
        long = Some(tokio::spawn(async move { other.run("sleep 35; echo over").await }));
    }
    hostile_names(&made.sandbox).await;
    if router != Router::GoAgain {
        many_clients(&claims, &made.id).await;
        large_files(&made.sandbox).await;
    }
    let described = claims.describe(&made.id).await.unwrap();
    let carried = described.facts.iter().find(|fact| fact.0 == "connection").map(|fact| fact.1.clone()).unwrap();
    for words in ["stock runtime", "slower", "without authentication"] {
        assert!(carried.contains(words), "{carried}");
    }
    assert!(described.protection.is_some());
    // Nothing of Podbay's is left where the agent works.
    let shown = made.sandbox.run("ls -A . /app").await.unwrap();
    assert!(!shown.text().contains("podbay-"), "{}", shown.text());
    a_command_cannot_use_it(&made.sandbox).await;
    if let Some(long) = long {
        assert_eq!(long.await.unwrap().unwrap().text(), "over\n");
    }
    assert!(claims.delete(&made.id).await.unwrap());
}

/// Names that a shell, a URL or a decoder would change.
async fn hostile_names(sandbox: &Sandbox) {
    let names: [&[u8]; 6] = [b"$(touch owned)", b"'; touch owned; '", b"a\nb", b"a%2F..%2Fb", b"\xff\xfe", b"-rf"];
    for name in names {
        let path = RawPath::from([b"hostile/", name].concat());
        sandbox.write(&Write::new(path.clone()), name.to_vec()).await.unwrap();
        assert_eq!(sandbox.download(&Download::new(path)).await.unwrap(), name);
    }
    assert_eq!(sandbox.ls(&Ls::new("hostile")).await.unwrap().entries.len(), names.len());
    assert_eq!(sandbox.run("ls owned").await.unwrap().code(), Some(2), "something was run");
}

/// More clients, each with a request that waits, than the runtime has threads for commands.
async fn many_clients(claims: &AgentSandbox, id: &str) {
    let mut handles = Vec::new();
    for number in 0..10 {
        let sandbox = claims.reconnect(id).await.unwrap().sandbox;
        assert_eq!(sandbox.run(format!("echo {number}").as_str()).await.unwrap().text(), format!("{number}\n"));
        handles.push(sandbox);
    }
    let begun = Instant::now();
    for (number, sandbox) in handles.iter().enumerate() {
        assert_eq!(sandbox.run(format!("echo {number}").as_str()).await.unwrap().text(), format!("{number}\n"));
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

async fn large_files(sandbox: &Sandbox) {
    let content: Vec<u8> = (0..20_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let begun = Instant::now();
    sandbox.write("large", content.clone()).await.unwrap();
    let up = begun.elapsed();
    assert!(sandbox.download("large").await.unwrap() == content);
    println!("20 MB up in {up:?}, down in {:?}", begun.elapsed() - up);
    let mut times = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        sandbox.read(Read::new("hostile/-rf")).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    println!("a small read: {:?} at the median, {:?} at best", times[25], times[0]);
}

/// A command is inside of podbayd's domain, where neither a stream can be opened nor somebody else's be used.
async fn a_command_cannot_use_it(sandbox: &Sandbox) {
    let state = sandbox.hello().await.unwrap().state;
    let session = "0".repeat(32);
    for ask in [format!("connect --exchange {session}"), format!("exchange --session {session} --wait 0")] {
        let output = sandbox.run(format!("exec {state}/podbayd {ask} --state {state}").as_str()).await.unwrap();
        assert!(!output.success() && output.text().contains("closed the connection"), "{}", output.text());
    }
}

/// Every connection through the router breaks while a command runs. It runs once, and its result arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_by_the_stock_runtime_runs_once_when_its_connection_is_cut() {
    let _alone = ROUTER.write().await;
    let Some((namespace, ..)) = only_the_stock_port(&Case::by_a_tunnel()).await else { return };
    let cluster = Cluster::with_client(namespace.client(), namespace.name());
    let claims = AgentSandbox::new(&cluster, by_the_stock_runtime()).unwrap();
    let made = claims.get_or_create(&Wanted::default()).await.unwrap();
    let sandbox = made.sandbox.clone();
    let run = tokio::spawn(async move { sandbox.run("echo x >> ran; sleep 12; cat ran").await });
    while made.sandbox.run("cat ran").await.unwrap().code() != Some(0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cluster = rig::cluster_with(&[AddOn::AgentSandbox]).await.unwrap().unwrap();
    let routers: Api<Pod> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
    for pod in routers.list(&ListParams::default().labels("app=sandbox-router")).await.unwrap().items {
        let name = pod.metadata.name.unwrap_or_default();
        routers.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    assert_eq!(run.await.unwrap().unwrap().text(), "x\n");
    assert_eq!(made.sandbox.run("cat ran").await.unwrap().text(), "x\n");
    assert!(claims.delete(&made.id).await.unwrap());
}
