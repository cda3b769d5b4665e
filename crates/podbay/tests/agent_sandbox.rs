//! The operation suite on sandboxes by claims, with upstream's own controller and an account that may do no more than is needed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod gateway;
mod suite;

use k8s_openapi::api::core::v1::Service;
use kube::Api;

use podbay::k8s::agent_sandbox::{AgentSandbox, Config, Features};
use podbay::k8s::channel::Connection;
use podbay::k8s::install::{Install, PodSecurity, Template};
use podbay::k8s::keys::PrivateKey;
use podbay::k8s::raw;
use podbay::k8s::{Access, Cluster};
use podbay::provider::{Provider, Wanted};
use rig::AddOn;

/// What a template prints, and what its sandboxes are reached by.
#[derive(Default)]
struct Case {
    add_ons: Vec<AddOn>,
    pod: raw::Config,
    podbayd_in_image: bool,
    /// The name of the test, where it runs in the cluster's network.
    inside: Option<&'static str>,
    /// How the sandbox is reached.
    connection: Connection,
}

/// A sandbox of a template that `podbay install` prints passes the suite, with the account that it prints.
async fn passes(case: Case) {
    if let Some(namespace) = rig::inside() {
        return passes_inside(&namespace, case.connection).await;
    }
    let add_ons: Vec<AddOn> = [vec![AddOn::AgentSandbox], case.add_ons.clone()].concat();
    let Some(cluster) = rig::cluster_with(&add_ons).await.unwrap() else { return };
    if case.podbayd_in_image {
        cluster.add_images(&[runtime_image()]).unwrap();
    }
    // What this connection takes, and nothing for any other.
    let needs = |gateway_namespace: &str| {
        let gateway_namespace = gateway_namespace.to_owned();
        let config = Config { connection: case.connection, gateway_namespace, ..Config::default() };
        let mut needs = Features { suspends: false, ..Features::of(&config) }.needs();
        // Where podbayd is in the image, nothing is copied through exec.
        needs.rights.retain(|right| !case.podbayd_in_image || right.resource != "pods/exec");
        needs
    };
    let namespace = cluster.namespace(needs("default").policy_rules()).await.unwrap();
    let needs = needs(namespace.name());
    let template = Template {
        name: "podbay".into(),
        replicas: 1,
        pod: raw::Config { image_pull_policy: "Never".into(), memory_request: "16Mi".into(), ..case.pod },
        allow_env: false,
        public_keys: if case.connection == Connection::Auto { Vec::new() } else { vec![key().public()] },
        admit_router: case.connection.is_through_router(),
        router_namespace: "agent-sandbox-system".into(),
        podbayd_in_image: case.podbayd_in_image,
        runtime_api: false,
    };
    let install = Install {
        namespace: namespace.name().into(),
        account: "test".into(),
        template: Some(template),
        ..Install::new(needs)
    };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    match case.inside {
        Some(test) => {
            let services: Api<Service> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
            let name = if case.add_ons.contains(&AddOn::PythonRouter) { "python-router" } else { "sandbox-router-svc" };
            let router = services.get(name).await.unwrap().spec.unwrap().cluster_ip.unwrap();
            if case.connection == Connection::Gateway {
                gateway::add(&cluster, namespace.name(), &router);
            }
            let router = format!("http://{router}:8080");
            namespace.run_test_inside_with(test, &[("PODBAY_TEST_ROUTER", &router)]).await.unwrap();
        }
        None => {
            let cluster = Cluster::with_client(namespace.client(), namespace.name());
            passes_with(&cluster, case.connection, Config::default()).await;
        }
    }
}

/// Pods and Services have no address outside of the cluster.
async fn passes_inside(namespace: &str, connection: Connection) {
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let access = Access { kubeconfig, namespace: Some(namespace.into()), ..Access::default() };
    let router_url = std::env::var("PODBAY_TEST_ROUTER").ok();
    let (gateway_name, gateway_namespace) = (Some("podbay".into()), namespace.into());
    // The Python router wants it, and the Go router here takes anything.
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "rig\n").unwrap();
    let router_token_file = token.path().to_str().map(str::to_owned);
    let config = Config { router_url, router_token_file, gateway_name, gateway_namespace, ..Config::default() };
    passes_with(&Cluster::connect(&access).await.unwrap(), connection, config).await;
}

async fn passes_with(cluster: &Cluster, connection: Connection, config: Config) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, key().secret_text()).unwrap();
    let private_key_file = file.to_str().filter(|_| connection != Connection::Auto).map(str::to_owned);
    let config = Config { template_name: Some("podbay".into()), connection, private_key_file, ..config };
    let claims = AgentSandbox::new(cluster, config).unwrap();
    let made = claims.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    let soak = std::env::var_os("PODBAY_SOAK").is_some();
    if connection.is_through_router() {
        // A URL and a Gateway lead to the same router. The Python router gets as many from a hundred sandboxes.
        if soak || connection == Connection::Tunnel {
            many_connections(&claims, &made.id).await;
        }
        if soak {
            // Longer than a router lets any other request take.
            assert_eq!(made.sandbox.run("sleep 200; echo over").await.unwrap().text(), "over\n");
        }
    }
    assert!(claims.delete(&made.id).await.unwrap());
}

/// More connections at once than the Python router admits for one client, which are 64.
async fn many_connections(claims: &AgentSandbox, id: &str) {
    let mut handles = Vec::new();
    for number in 0..80 {
        let sandbox = claims.reconnect(id).await.unwrap().sandbox;
        assert_eq!(sandbox.run(format!("echo {number}").as_str()).await.unwrap().text(), format!("{number}\n"));
        handles.push(sandbox);
    }
    // A command goes on while its connection makes room for others, and its result arrives.
    let long = handles[0].clone();
    let long = tokio::spawn(async move { long.run("echo x >> many; sleep 3; cat many").await.unwrap() });
    for _ in 0..2 {
        for (number, sandbox) in handles.iter().enumerate() {
            assert_eq!(sandbox.run(format!("echo {number}").as_str()).await.unwrap().text(), format!("{number}\n"));
        }
    }
    assert_eq!(long.await.unwrap().text(), "x\n");
}

/// The same for whoever installs the template and whoever uses its sandboxes.
fn key() -> PrivateKey {
    PrivateKey::from_seed([7; 32])
}

/// Debian with podbayd.
fn runtime_image() -> rig::Image {
    let arch = std::env::consts::ARCH;
    rig::Runtime::Debian.image(podbay_embed::daemon(arch).unwrap(), podbay_embed::digest(arch).unwrap()).unwrap()
}

fn image(name: &str) -> raw::Config {
    raw::Config { image: name.into(), ..raw::Config::default() }
}

#[tokio::test]
async fn the_suite_in_debian_on_runc() {
    let pod = raw::Config { runtime_class: Some(rig::RUNC.into()), ..image(rig::DEBIAN) };
    passes(Case { pod, ..Case::default() }).await;
}

#[tokio::test]
async fn the_suite_in_the_stock_runtimes_image() {
    passes(Case { pod: image(rig::PYTHON_RUNTIME), ..Case::default() }).await;
}

#[tokio::test]
async fn the_suite_in_gvisor() {
    let pod = raw::Config { runtime_class: Some("gvisor".into()), ..image(rig::DEBIAN) };
    passes(Case { add_ons: vec![AddOn::Gvisor], pod, ..Case::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_at_the_pods_address() {
    let inside = Some("the_suite_at_the_pods_address");
    passes(Case { pod: image(rig::DEBIAN), inside, connection: Connection::InCluster, ..Case::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_at_the_pods_address_in_gvisor() {
    let inside = Some("the_suite_at_the_pods_address_in_gvisor");
    let pod = raw::Config { runtime_class: Some("gvisor".into()), ..image(rig::PYTHON_RUNTIME) };
    passes(Case { add_ons: vec![AddOn::Gvisor], pod, inside, connection: Connection::InCluster, ..Case::default() })
        .await;
}

/// With podbayd in the image, an account that may not run commands through exec can use sandboxes.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_without_exec() {
    let inside = Some("the_suite_without_exec");
    passes(Case {
        pod: image(rig::PODBAY_RUNTIME),
        podbayd_in_image: true,
        inside,
        connection: Connection::InCluster,
        ..Case::default()
    })
    .await;
}

/// From outside of the cluster, through upstream's router, with a port-forward: no right to exec, and podbayd in the image.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_by_a_tunnel_to_the_router() {
    let pod = image(rig::PODBAY_RUNTIME);
    passes(Case { pod, podbayd_in_image: true, connection: Connection::Tunnel, ..Case::default() }).await;
}

/// Through upstream's router at its Service's address.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_through_the_routers_url() {
    let inside = Some("the_suite_through_the_routers_url");
    let pod = image(rig::PODBAY_RUNTIME);
    passes(Case { pod, podbayd_in_image: true, inside, connection: Connection::Direct, ..Case::default() }).await;
}

/// Through upstream's router, at the address that a Gateway's status names.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_through_a_gateway() {
    let inside = Some("the_suite_through_a_gateway");
    let (pod, add_ons) = (image(rig::PODBAY_RUNTIME), vec![AddOn::GatewayApi]);
    let connection = Connection::Gateway;
    passes(Case { add_ons, pod, podbayd_in_image: true, inside, connection }).await;
}

/// Through upstream's other router, which is in Python and wants a token.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_through_the_python_router() {
    let inside = Some("the_suite_through_the_python_router");
    let (pod, add_ons) = (image(rig::PODBAY_RUNTIME), vec![AddOn::PythonRouter]);
    passes(Case { add_ons, pod, podbayd_in_image: true, inside, connection: Connection::Direct }).await;
}

/// More sandboxes, each with a connection, than the Python router admits connections for one client, which are 64. With
/// `PODBAY_SOAK` they are a hundred; otherwise fewer, each with several clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sandboxes_through_the_python_router() {
    if let Some(namespace) = rig::inside() {
        return a_hundred_inside(&namespace).await;
    }
    let Some(cluster) = rig::cluster_with(&[AddOn::AgentSandbox, AddOn::PythonRouter]).await.unwrap() else { return };
    cluster.add_images(&[runtime_image()]).unwrap();
    let mut needs = Features { templates: true, ..Features::default() }.needs();
    needs.rights.retain(|right| right.resource != "pods/exec");
    let namespace = cluster.namespace(needs.policy_rules()).await.unwrap();
    let pod = raw::Config {
        image_pull_policy: "Never".into(),
        memory_request: "8Mi".into(),
        cpu_request: "1m".into(),
        ..image(rig::PODBAY_RUNTIME)
    };
    let template = Template {
        name: "podbay".into(),
        replicas: 0,
        pod,
        allow_env: false,
        public_keys: vec![key().public()],
        admit_router: true,
        router_namespace: "agent-sandbox-system".into(),
        podbayd_in_image: true,
        runtime_api: false,
    };
    let install = Install {
        namespace: namespace.name().into(),
        account: "test".into(),
        template: Some(template),
        ..Install::new(needs)
    };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    let services: Api<Service> = Api::namespaced(cluster.admin(), "agent-sandbox-system");
    let router = services.get("python-router").await.unwrap().spec.unwrap().cluster_ip.unwrap();
    let router = format!("http://{router}:8080");
    let test = "a_hundred_sandboxes_through_the_python_router";
    namespace.run_test_inside_with(test, &[("PODBAY_TEST_ROUTER", &router)]).await.unwrap();
}

async fn a_hundred_inside(namespace: &str) {
    let soak = std::env::var_os("PODBAY_SOAK").is_some();
    let (count, each) = if soak { (100, 1) } else { (6, 12) };
    let dir = tempfile::tempdir().unwrap();
    let (key_file, token) = (dir.path().join("key"), dir.path().join("token"));
    std::fs::write(&key_file, key().secret_text()).unwrap();
    std::fs::write(&token, "rig\n").unwrap();
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let access = Access { kubeconfig, namespace: Some(namespace.into()), ..Access::default() };
    let config = Config {
        template_name: Some("podbay".into()),
        connection: Connection::Direct,
        private_key_file: key_file.to_str().map(str::to_owned),
        router_url: std::env::var("PODBAY_TEST_ROUTER").ok(),
        router_token_file: token.to_str().map(str::to_owned),
        startup_timeout: 600,
        ..Config::default()
    };
    let claims = AgentSandbox::new(&Cluster::connect(&access).await.unwrap(), config).unwrap();
    let mut handles = Vec::new();
    while handles.len() < count * each {
        // A few pods at a time: the node has other work.
        let batch = 5.min(count - handles.len() / each);
        let creating: Vec<_> = (0..batch)
            .map(|_| claims.clone())
            .map(|claims| tokio::spawn(async move { claims.get_or_create(&Wanted::default()).await.unwrap() }))
            .collect();
        for made in creating {
            let made = made.await.unwrap();
            assert!(made.sandbox.run(format!("echo {} > who", made.id).as_str()).await.unwrap().success());
            for _ in 1..each {
                handles.push((made.id.clone(), claims.reconnect(&made.id).await.unwrap().sandbox));
            }
            handles.push((made.id, made.sandbox));
        }
    }
    // A command goes on while its connection makes room for others, and its result arrives once.
    let long = handles[0].1.clone();
    let long = tokio::spawn(async move { long.run("echo x >> once; sleep 5; cat once").await.unwrap() });
    for _ in 0..2 {
        for (id, sandbox) in &handles {
            assert_eq!(sandbox.run("cat who").await.unwrap().text(), format!("{id}\n"));
        }
    }
    assert_eq!(long.await.unwrap().text(), "x\n");
    let different: std::collections::BTreeSet<&String> = handles.iter().map(|(id, _)| id).collect();
    assert!(different.len() == count && handles.len() > 64, "{} of {}", different.len(), handles.len());
    for id in different {
        assert!(claims.delete(id).await.unwrap());
    }
}

/// Upstream's template of its Python runtime, and a pool of it.
const STOCK: &str = include_str!("../../../rig/manifests/warm-pool.yaml");

/// A namespace with that template, in which the account may not exec, and a client that goes through the router.
async fn stock_without_exec(
    change: impl Fn(String) -> String,
) -> Option<(rig::Namespace, AgentSandbox, tempfile::TempDir)> {
    let cluster = rig::cluster_with(&[AddOn::AgentSandbox]).await.unwrap()?;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, key().secret_text()).unwrap();
    let config = Config {
        template_name: Some("python".into()),
        connection: Connection::Tunnel,
        private_key_file: file.to_str().map(str::to_owned),
        ..Config::default()
    };
    let mut needs = Features { suspends: false, ..Features::of(&config) }.needs();
    needs.rights.retain(|right| right.resource != "pods/exec");
    let namespace = cluster.namespace(needs.policy_rules()).await.unwrap();
    let install = Install {
        namespace: namespace.name().into(),
        account: "test".into(),
        // Upstream's pod isn't hardened.
        pod_security: PodSecurity::Privileged,
        ..Install::new(needs)
    };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    let stock = STOCK.replace("namespace: default", &format!("namespace: {}", namespace.name()));
    cluster.apply(&change(stock)).unwrap();
    let claims = AgentSandbox::new(&Cluster::with_client(namespace.client(), namespace.name()), config).unwrap();
    Some((namespace, claims, dir))
}

/// Without exec, upstream's runtime itself brings podbayd into its pod.
#[tokio::test(flavor = "multi_thread")]
async fn the_stock_runtime_brings_podbayd_into_its_pod() {
    let Some((_namespace, claims, _dir)) = stock_without_exec(|stock| stock).await else { return };
    let made = claims.get_or_create(&Wanted::default()).await.unwrap();
    suite::all(&made.sandbox).await;
    let left = made.sandbox.run("ls -A /app | grep podbay-").await.unwrap();
    assert_eq!(left.text(), "", "the upload stays behind");
    // Another client finds it running.
    let found = claims.reconnect(&made.id).await.unwrap();
    assert_eq!(found.sandbox.run("echo found").await.unwrap().text(), "found\n");
    assert!(claims.delete(&made.id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxd_is_recognised_where_podbayd_cannot_be_brought() {
    let change = |stock: String| {
        let stock = stock
            .replace(rig::PYTHON_RUNTIME, rig::SANDBOXD)
            .replace("httpGet: {path: /,", "httpGet: {path: /v1/health,");
        stock.replace("8888", "8080")
    };
    let Some((_namespace, claims, _dir)) = stock_without_exec(change).await else { return };
    let error = claims.get_or_create(&Wanted::default()).await.unwrap_err().to_string();
    for words in ["runs sandboxd", "pods/exec", "--podbayd-in-image"] {
        assert!(error.contains(words), "{error}");
    }
}
