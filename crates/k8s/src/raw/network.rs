//! Network rules: one NetworkPolicy for each distinct set of rules, shared by all sandboxes that have it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use serde_json::{Value, json};

use super::config::Config;
use super::egress;
use crate::api::retry::with_retry;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, CLIENT, MANAGED_BY, NETWORK, PODBAY};

/// The prefix of policies' names; the rest is the hash of the rules.
const PREFIX: &str = "pb-net-";

/// Makes sure that the policy for a configuration exists, and returns the label that puts a pod under it. Has to be called
/// before the pod is created, so that there is no moment without rules.
///
/// # Errors
/// When the policy can't be created. Then no pod may be.
pub(crate) async fn ensure(cluster: &Cluster, config: &Config) -> Result<Option<String>> {
    if !config.block_network {
        return Ok(None);
    }
    let (hash, policy) = policy(config)?;
    let name = policy.metadata.name.clone().unwrap_or_default();
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    loop {
        let found = with_retry(|| policies.get_opt(&name)).await.map_err(Error::api("get the network policy"))?;
        if let Some(found) = found {
            return agrees(&found, &policy, &name).map(|()| Some(hash));
        }
        match with_retry(|| async { policies.create(&PostParams::default(), &policy).await }).await {
            Ok(made) => return agrees(&made, &policy, &name).map(|()| Some(hash)),
            // Somebody created it meanwhile: compare it.
            Err(error) if Error::code(&error) == Some(409) => {}
            Err(error) => return Err(Error::api("create the network policy")(error)),
        }
    }
}

/// The label that puts a pod under the policy for a configuration.
pub(crate) fn label(config: &Config) -> Result<Option<String>> {
    config.block_network.then(|| policy(config).map(|(hash, _)| hash)).transpose()
}

/// Removes policies that no pod is under any more; returns how many.
///
/// A creator makes sure of its policy before and after it creates its pod, and this function looks again after it has deleted
/// one. So a pod has its policy whichever of the two is faster.
pub(crate) async fn clean(cluster: &Cluster, pods: &Api<Pod>) -> Result<usize> {
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let ours = ListParams::default().labels(&names::ours());
    let list = with_retry(|| policies.list(&ours)).await.map_err(Error::api("list the network policies"))?;
    let mut removed = 0;
    for policy in list.items {
        let Some(name) = policy.metadata.name.clone() else { continue };
        let Some(hash) = name.strip_prefix(PREFIX) else { continue };
        let under = ListParams::default().labels(&format!("{NETWORK}={hash}")).limit(1);
        let used = || async {
            let list =
                with_retry(|| pods.list(&under)).await.map_err(Error::api("list the pods of a network policy"))?;
            Ok::<_, Error>(!list.items.is_empty())
        };
        if used().await? {
            continue;
        }
        let preconditions = Preconditions { uid: policy.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match with_retry(|| policies.delete(&name, &parameters)).await {
            Ok(_) => removed += 1,
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => continue,
            Err(error) => return Err(Error::api("delete a network policy")(error)),
        }
        if used().await? {
            let metadata = ObjectMeta { name: Some(name), labels: policy.metadata.labels, ..ObjectMeta::default() };
            let again = NetworkPolicy { metadata, spec: policy.spec };
            match with_retry(|| async { policies.create(&PostParams::default(), &again).await }).await {
                Err(error) if Error::code(&error) != Some(409) => {
                    return Err(Error::api("create a network policy that is needed again")(error));
                }
                _ => removed -= 1,
            }
        }
    }
    Ok(removed)
}

fn policy(config: &Config) -> Result<(String, NetworkPolicy)> {
    let egress = egress::rules(config)?;
    let ingress = ingress(config)?;
    let rules = serde_json::to_vec(&(&egress, &ingress)).map_err(Error::manifest("the network rules"))?;
    let hash = names::hash(&rules);
    let selector = LabelSelector { match_labels: Some([(NETWORK.into(), hash.clone())].into()), ..Default::default() };
    let policy = NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(format!("{PREFIX}{hash}")),
            labels: Some([(MANAGED_BY.into(), PODBAY.into())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            egress: Some(egress),
            ingress: Some(ingress),
        }),
    };
    Ok((hash, policy))
}

/// Who may reach a sandbox: whom the configuration names, and clients where they connect to the pod's address.
fn ingress(config: &Config) -> Result<Vec<NetworkPolicyIngressRule>> {
    let mut rules = config.ingress.clone();
    if config.addresses().is_used() {
        rules.push(clients(config.port)?);
    }
    Ok(rules)
}

/// Admits the pods of clients, in any namespace, to podbayd's port.
///
/// # Errors
/// Never, unless Kubernetes' own types change.
pub(crate) fn clients(port: u16) -> Result<NetworkPolicyIngressRule> {
    let rule = json!({
        "from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {CLIENT: "true"}}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    });
    serde_json::from_value(rule).map_err(Error::manifest("a network rule"))
}

/// Admits the router in that namespace to a port.
///
/// # Errors
/// Never, unless Kubernetes' own types change.
pub(crate) fn router(namespace: &str, port: u16) -> Result<NetworkPolicyIngressRule> {
    let rule = json!({
        "from": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
        }],
        "ports": [{"port": port, "protocol": "TCP"}],
    });
    serde_json::from_value(rule).map_err(Error::manifest("a network rule"))
}

/// The name is the hash of the rules, unless somebody or a webhook has changed them.
fn agrees(found: &NetworkPolicy, wanted: &NetworkPolicy, name: &str) -> Result<()> {
    if plain(found)? == plain(wanted)? {
        return Ok(());
    }
    Err(Error::PolicyChanged(name.to_owned()))
}

/// A policy's rules as the API server stores them: it fills in defaults and leaves out empty fields.
fn plain(policy: &NetworkPolicy) -> Result<Value> {
    let mut spec = serde_json::to_value(&policy.spec).map_err(Error::manifest("the NetworkPolicy"))?;
    for way in ["egress", "ingress"] {
        for port in rules_of(&mut spec[way]).flat_map(|rule| rules_of(&mut rule["ports"])) {
            if port["protocol"].is_null() {
                port["protocol"] = "TCP".into();
            }
        }
    }
    drop_empty(&mut spec);
    Ok(spec)
}

fn rules_of(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

/// Drops empty fields. An empty selector and an empty rule mean everything, and stay.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|key, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(labels) => key != "matchLabels" || !labels.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let rules = json!([
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 443}]},
            {"to": [{"podSelector": {"matchLabels": {}}}], "ports": []},
        ]);
        Config { egress: serde_json::from_value(rules).unwrap(), ..Config::default() }
    }

    #[test]
    fn clients_are_admitted_where_they_use_the_pods_address() {
        let ingress = |config: &Config| policy(config).unwrap().1.spec.unwrap().ingress.unwrap();
        assert!(ingress(&config()).is_empty());
        let with_key = Config { private_key_file: Some("key".into()), port: 7070, ..config() };
        let rule = serde_json::to_value(&ingress(&with_key)[0]).unwrap();
        assert_eq!(rule["ports"][0]["port"], 7070);
        assert_eq!(rule["from"][0]["podSelector"]["matchLabels"]["podbay.dev/client"], "true");
        // The API server stores it as it is.
        let (_, wanted) = policy(&with_key).unwrap();
        agrees(&wanted, &wanted, "it").unwrap();
        assert!(ingress(&Config { connection: crate::channel::Connection::Exec, ..with_key }).is_empty());
    }

    #[test]
    fn what_the_rules_name_is_in_the_policy() {
        let rules = |config: &Config| serde_json::to_value(policy(config).unwrap().1.spec.unwrap()).unwrap();
        let from = json!([{"podSelector": {"matchLabels": {"app": "browser"}}}]);
        let rule = json!([{"from": from, "ports": [{"port": 8080}]}]);
        let config = Config { ingress: serde_json::from_value(rule).unwrap(), ..config() };
        let found = rules(&config);
        assert_eq!((&found["ingress"][0]["from"], &found["ingress"][0]["ports"][0]["port"]), (&from, &json!(8080)));
        assert_eq!(found["egress"][0]["ports"][1]["port"], 443);
        // Both directions are closed but for that.
        let closed = rules(&Config::default());
        assert_eq!(closed["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!((&closed["ingress"], &closed["egress"]), (&json!([]), &json!([])));
    }

    /// Only the number of rules was compared: a policy that somebody had opened was taken for the closed one.
    #[test]
    fn a_policy_is_compared_whole() {
        let (_, wanted) = policy(&config()).unwrap();
        agrees(&wanted, &wanted, "it").unwrap();
        let changed = |change: fn(&mut Value)| {
            let mut found = serde_json::to_value(&wanted).unwrap();
            change(&mut found);
            agrees(&serde_json::from_value(found).unwrap(), &wanted, "it")
        };
        // What the API server makes of it.
        changed(|policy| {
            policy["spec"]["egress"][0]["ports"][1]["protocol"] = "TCP".into();
            policy["spec"]["egress"][1]["ports"] = Value::Null;
            policy["spec"]["egress"][1]["to"][0]["podSelector"] = json!({});
            policy["spec"]["ingress"] = Value::Null;
        })
        .unwrap();
        for change in [
            (|policy: &mut Value| policy["spec"]["egress"][0]["ports"][1]["port"] = 444.into()) as fn(&mut Value),
            |policy| policy["spec"]["egress"][0]["to"][0]["ipBlock"]["except"] = Value::Null,
            |policy| policy["spec"]["egress"][0]["to"] = Value::Null,
            |policy| policy["spec"]["egress"][1]["to"][0]["namespaceSelector"] = json!({}),
            |policy| policy["spec"]["ingress"] = json!([{}]),
            |policy| policy["spec"]["policyTypes"] = json!(["Ingress"]),
            |policy| policy["spec"]["podSelector"]["matchLabels"]["podbay.dev/net"] = "x".into(),
        ] {
            assert!(matches!(changed(change), Err(Error::PolicyChanged(_))));
        }
    }
}
