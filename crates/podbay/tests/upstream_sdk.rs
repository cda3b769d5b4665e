//! Upstream's own Python SDK, unchanged, with sandboxes whose runtime is podbayd, through upstream's router. What it gets there is
//! compared with what it gets from the stock runtime.
//!
//! Needs a Python with `k8s-agent-sandbox` from PyPI, named by `PODBAY_PYTHON`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use podbay::k8s::agent_sandbox::Features;
use podbay::k8s::install::{Install, PodSecurity, Template};
use podbay::k8s::raw;
use serde_json::Value;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_sdk.py");

/// Where podbayd's answer is meant to be another, and why.
const DIFFERENCES: [(&str, &str); 4] = [
    ("run: bytes that aren't UTF-8", "the stock runtime loses the whole result"),
    ("run: command_timeout", "the runtime of v1.0.3 doesn't know timeout_seconds yet"),
    ("run: an empty command", "the stock runtime says that a list index is out of range"),
    ("list: a dangling link", "the stock runtime lists nothing then"),
];

/// Upstream's template of its runtime, and a pool.
const STOCK: &str = include_str!("../../../rig/manifests/warm-pool.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_sdk_gets_the_stock_runtimes_answers_from_podbayd() {
    let Some(cluster) = rig::cluster_with(&[rig::AddOn::AgentSandbox]).await.unwrap() else { return };
    let Some(python) = std::env::var_os("PODBAY_PYTHON") else {
        let required = std::env::var("PODBAY_REQUIRE").is_ok_and(|what| what == "all");
        assert!(!required, "the comparison was required: PODBAY_PYTHON has to name a Python with k8s-agent-sandbox");
        return println!("skipped: PODBAY_PYTHON doesn't name a Python with k8s-agent-sandbox");
    };
    let arch = std::env::consts::ARCH;
    let image =
        rig::Runtime::Debian.image(podbay_embed::daemon(arch).unwrap(), podbay_embed::digest(arch).unwrap()).unwrap();
    cluster.add_images(&[image]).unwrap();
    let tunnel = Some("agent-sandbox-system".to_owned());
    let mut needs = Features { templates: true, tunnel, ..Features::default() }.needs();
    needs.rights.retain(|right| right.resource != "pods/exec");
    let namespace = cluster.namespace(needs.policy_rules()).await.unwrap();
    let template = Template {
        name: "podbay".into(),
        replicas: 1,
        pod: raw::Config {
            image: rig::PODBAY_RUNTIME.into(),
            image_pull_policy: "Never".into(),
            memory_request: "16Mi".into(),
            ..raw::Config::default()
        },
        allow_env: false,
        public_keys: Vec::new(),
        admit_router: false,
        router_namespace: "agent-sandbox-system".into(),
        podbayd_in_image: true,
        runtime_api: true,
    };
    let install = Install {
        namespace: namespace.name().into(),
        account: "test".into(),
        template: Some(template),
        // Upstream's pod isn't hardened.
        pod_security: PodSecurity::Privileged,
        ..Install::new(needs)
    };
    cluster.apply(&install.manifests().unwrap()).unwrap();
    cluster.apply(&may_get_the_routers_pods(namespace.name())).unwrap();
    cluster.apply(&STOCK.replace("namespace: default", &format!("namespace: {}", namespace.name()))).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, namespace.access().kubeconfig()).unwrap();
    // The SDK's tunnel is a kubectl.
    let path = format!("{}:{}", cluster.programs().display(), std::env::var("PATH").unwrap());
    let of_pool = |pool: &'static str| {
        let mut script = std::process::Command::new(&python);
        script.arg(SCRIPT).args([namespace.name(), pool]).env("KUBECONFIG", &kubeconfig).env("PATH", &path);
        async move {
            let ran = tokio::task::spawn_blocking(move || script.output().unwrap()).await.unwrap();
            assert!(ran.status.success(), "{pool}: {}", String::from_utf8_lossy(&ran.stderr));
            serde_json::from_slice::<BTreeMap<String, Value>>(&ran.stdout).unwrap()
        }
    };
    let (stock, ours) = tokio::join!(of_pool("python"), of_pool("podbay"));
    assert!(stock.keys().eq(ours.keys()) && ours.len() > 35, "{:?}", ours.keys());
    let different: Vec<&str> =
        ours.iter().filter(|(what, got)| stock[*what] != **got).map(|(what, _)| &**what).collect();
    let mut expected = DIFFERENCES.map(|(what, _)| what);
    expected.sort_unstable();
    assert_eq!(different, expected, "stock: {stock:#?}\npodbayd: {ours:#?}");
    assert_eq!(ours["run: bytes that aren't UTF-8"]["stdout"], "a\u{fffd}b");
    assert_eq!(ours["run: command_timeout"]["timed_out"], true);
    assert_eq!(ours["list: a dangling link"].as_array().unwrap().len(), 1);
}

/// What kubectl needs for a port-forward beyond what Podbay's own tunnel does.
fn may_get_the_routers_pods(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: kubectl-{namespace}, namespace: \
         agent-sandbox-system}}\nrules: [{{apiGroups: [\"\"], resources: [pods], verbs: [get]}}]\n---\napiVersion: \
         rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: kubectl-{namespace}, namespace: \
         agent-sandbox-system}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: kubectl-{namespace}}}\nsubjects: \
         [{{kind: ServiceAccount, name: test, namespace: {namespace}}}]\n"
    )
}
