//! Whether a template's network policy lets clients get to the port that they use.

use serde_json::Value;

use super::report::{CheckState, Finding};
use crate::agent_sandbox::Config;
use crate::channel::router::ROUTER_NAMESPACE;

/// The label that clients at pods' own addresses have.
const CLIENT: (&str, &str) = ("podbay.dev/client", "true");

/// The label that upstream's router has.
const ROUTER: (&str, &str) = ("app", "sandbox-router");

/// Whoever connects to podbayd's port.
struct Peer<'a> {
    what: &'static str,
    label: (&'static str, &'static str),
    /// Its namespace; any if it isn't known.
    namespace: Option<&'a str>,
}

/// Examines a template. Nothing if nobody connects to a port, as with exec.
pub(super) fn ports(template: &Value, config: &Config) -> Option<Finding> {
    let addresses = config.addresses();
    let stock = config.stock_runtime().ok().flatten().map(|(way, _)| way);
    if stock.is_none() && !addresses.is_used() {
        return None;
    }
    let peer = match config.way_to_router().is_some() {
        true => Peer { what: "the router", label: ROUTER, namespace: Some(&config.router_namespace) },
        false => Peer { what: "clients with the label podbay.dev/client=true", label: CLIENT, namespace: None },
    };
    let what = peer.what;
    let (port, setting) = match stock {
        Some(_) => (config.runtime_port, "agent_sandbox.runtime_port"),
        None => (config.port, "cluster.port"),
    };
    let finding = |state, detail: String| Finding::new("ports", "the template's network policy", state, detail);
    if template["networkPolicyManagement"] == "Unmanaged" {
        return Some(finding(
            CheckState::Skipped,
            "the controller sets none; the namespace's own policies decide".into(),
        ));
    }
    let admitted = match &template["networkPolicy"] {
        // The controller's own policy admits the router, to every port, and nobody else.
        Value::Null => match peer.namespace {
            Some(ROUTER_NAMESPACE) => Admitted::To(vec![Ports::All]),
            _ => Admitted::To(Vec::new()),
        },
        policy => admitted(&policy["ingress"], &peer),
    };
    Some(match admitted {
        Admitted::Unknown => {
            finding(CheckState::Skipped, "selects by expressions or addresses, which aren't examined".into())
        }
        Admitted::To(all) if all.iter().any(|one| one.contain(port, template)) => {
            finding(CheckState::Ok, format!("admits {what} to port {port}"))
        }
        Admitted::To(all) => {
            let others: Vec<String> = all.iter().map(ToString::to_string).collect();
            let others = if others.is_empty() { "no port".into() } else { others.join(", ") };
            finding(CheckState::Warning, format!("admits {what} to {others}, not to {port} ({setting})")).fix(match stock {
                Some(_) => "admit the router to that port in the template's spec.networkPolicy",
                None => {
                    "compare it with the template that 'podbay install agent-sandbox --public-key KEY --router' prints"
                }
            })
        }
    })
}

/// To what a peer is admitted.
enum Admitted {
    To(Vec<Ports>),
    /// A selector can't be judged.
    Unknown,
}

enum Ports {
    All,
    Range(u64, u64),
    Named(String),
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => write!(f, "every port"),
            Self::Range(first, last) if first == last => write!(f, "{first}"),
            Self::Range(first, last) => write!(f, "{first} to {last}"),
            Self::Named(name) => write!(f, "{name}"),
        }
    }
}

impl Ports {
    fn contain(&self, port: u16, template: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Range(first, last) => (*first..=*last).contains(&u64::from(port)),
            Self::Named(name) => {
                let containers = template["podTemplate"]["spec"]["containers"].as_array().into_iter().flatten();
                let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
                ports.any(|one| one["name"] == name.as_str() && one["containerPort"] == port)
            }
        }
    }
}

fn admitted(ingress: &Value, peer: &Peer<'_>) -> Admitted {
    let (mut to, mut unknown) = (Vec::new(), false);
    for rule in ingress.as_array().into_iter().flatten() {
        let from = rule["from"].as_array().map(Vec::as_slice).unwrap_or_default();
        let judged: Vec<Option<bool>> = from.iter().map(|one| selects(one, peer)).collect();
        if !from.is_empty() && !judged.contains(&Some(true)) {
            unknown = unknown || judged.contains(&None);
            continue;
        }
        match rule["ports"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => to.push(Ports::All),
            ports => to.extend(ports.iter().filter_map(port)),
        }
    }
    if unknown { Admitted::Unknown } else { Admitted::To(to) }
}

fn port(rule: &Value) -> Option<Ports> {
    if !matches!(rule["protocol"].as_str(), None | Some("TCP")) {
        return None;
    }
    match &rule["port"] {
        Value::Null => Some(Ports::All),
        Value::String(name) => Some(Ports::Named(name.clone())),
        number => {
            let first = number.as_u64()?;
            Some(Ports::Range(first, rule["endPort"].as_u64().unwrap_or(first)))
        }
    }
}

/// Whether a rule's `from` means a peer; nothing if that can't be told.
fn selects(from: &Value, peer: &Peer<'_>) -> Option<bool> {
    if !from["ipBlock"].is_null() || !from["namespaceSelector"]["matchExpressions"].is_null() {
        return None;
    }
    if !from["podSelector"]["matchExpressions"].is_null() {
        return None;
    }
    let labels = |selector: &Value| selector["matchLabels"].as_object().cloned().unwrap_or_default();
    let pod = labels(&from["podSelector"])
        .iter()
        .all(|(key, value)| (key.as_str(), value.as_str()) == (peer.label.0, Some(peer.label.1)));
    if !pod {
        return Some(false);
    }
    let namespaces = labels(&from["namespaceSelector"]);
    match peer.namespace {
        // Without such a selector it means pods of the sandboxes' own namespace.
        Some(_) if from["namespaceSelector"].is_null() => Some(false),
        Some(name) => {
            let named = |(key, value): (&String, &Value)| key == "kubernetes.io/metadata.name" && value == name;
            // Other labels of that namespace aren't known here.
            let known = namespaces.keys().all(|key| key == "kubernetes.io/metadata.name");
            known.then(|| namespaces.iter().all(named))
        }
        None => namespaces.is_empty().then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_sandbox::Runtime;
    use crate::channel::Connection;
    use serde_json::json;

    fn config(connection: Connection) -> Config {
        Config {
            connection,
            private_key_file: Some("key".into()),
            router_url: Some("http://router".into()),
            ..Config::default()
        }
    }

    fn judged(policy: Value, connection: Connection) -> (CheckState, String) {
        let spec = json!({"containers": [{"ports": [{"name": "podbayd", "containerPort": 7777}]}]});
        let template = json!({"podTemplate": {"spec": spec}, "networkPolicy": policy});
        let found = ports(&template, &config(connection)).unwrap();
        (found.state, found.detail)
    }

    #[test]
    fn the_port_that_a_policy_admits_is_compared_with_podbayds() {
        let router = |ports: Value| {
            let from = json!([{
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
                "podSelector": {"matchLabels": {"app": "sandbox-router"}},
            }]);
            json!({"ingress": [{"from": from, "ports": ports}]})
        };
        for open in
            [json!([{"port": 7777}]), json!([{"port": 7000, "endPort": 8000}]), json!([{"port": "podbayd"}]), json!([])]
        {
            assert_eq!(judged(router(open.clone()), Connection::Direct).0, CheckState::Ok, "{open}");
            // Clients of another kind aren't meant by that rule.
            assert_eq!(judged(router(open.clone()), Connection::InCluster).0, CheckState::Warning, "{open}");
        }
        let (state, detail) = judged(router(json!([{"port": 8888, "protocol": "TCP"}])), Connection::Direct);
        assert!(state == CheckState::Warning && detail.contains("to 8888, not to 7777"), "{detail}");
        assert_eq!(
            judged(router(json!([{"port": 7777, "protocol": "UDP"}])), Connection::Direct).0,
            CheckState::Warning
        );
        assert_eq!(judged(json!({"ingress": []}), Connection::Direct).0, CheckState::Warning);
        // The controller's own policy, and rules for everybody.
        assert_eq!(judged(Value::Null, Connection::Direct).0, CheckState::Ok);
        assert_eq!(judged(Value::Null, Connection::InCluster).0, CheckState::Warning);
        assert_eq!(judged(json!({"ingress": [{}]}), Connection::InCluster).0, CheckState::Ok);
        // Without a namespace it is the sandboxes' own, where no router runs.
        let near = json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "sandbox-router"}}}]}]});
        assert_eq!(judged(near, Connection::Direct).0, CheckState::Warning);
        let block = json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]});
        assert_eq!(judged(block, Connection::Direct).0, CheckState::Skipped);
    }

    /// The doctor asked for podbayd's port, which isn't used there.
    #[test]
    fn the_stock_runtimes_port_counts_where_its_api_is_used() {
        let from = json!([{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
        }]);
        let template = json!({"networkPolicy": {"ingress": [{"from": from, "ports": [{"port": 8888}]}]}});
        let stock = Config { runtime: Runtime::Stock, ..Config::default() };
        assert_eq!(ports(&template, &stock).unwrap().state, CheckState::Ok);
        let found = ports(&template, &Config { runtime_port: 9999, ..stock }).unwrap();
        assert!(
            found.state == CheckState::Warning && found.detail.contains("9999 (agent_sandbox.runtime_port)"),
            "{found:?}"
        );
    }

    #[test]
    fn templates_that_podbay_prints_admit_whom_they_should() {
        let rules =
            [crate::raw::network::clients(7777).unwrap(), crate::raw::network::router(ROUTER_NAMESPACE, 7777).unwrap()];
        let policy = json!({"ingress": rules});
        for connection in [Connection::Direct, Connection::Tunnel, Connection::InCluster] {
            assert_eq!(judged(policy.clone(), connection).0, CheckState::Ok, "{connection:?}");
        }
        assert!(ports(&json!({}), &config(Connection::Exec)).is_none());
    }
}
