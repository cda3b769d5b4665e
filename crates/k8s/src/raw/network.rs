//! The rules of sandboxes' networks: one NetworkPolicy for each distinct set, shared by all sandboxes that have it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};

use super::config::Config;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, MANAGED_BY, NETWORK, PODBAY};
use crate::retry::patiently;

/// What the names of policies begin with; the rest is the hash of the rules.
const PREFIX: &str = "pb-net-";

/// Makes sure that the policy for a configuration exists, and gives the label that puts a pod under it. To be called before
/// the pod is made: there is no moment without rules.
///
/// # Errors
/// When the policy can't be made. Then no pod may be.
pub(crate) async fn ensure(cluster: &Cluster, config: &Config) -> Result<Option<String>> {
    if !config.block_network {
        return Ok(None);
    }
    let (hash, policy) = policy(config)?;
    let name = policy.metadata.name.clone().unwrap_or_default();
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let found = patiently(|| policies.get_opt(&name)).await.map_err(Error::api("get the network policy"))?;
    if let Some(found) = found {
        return agrees(&found, &policy, &name).map(|()| Some(hash));
    }
    match patiently(|| async { policies.create(&PostParams::default(), &policy).await }).await {
        Ok(_) => Ok(Some(hash)),
        Err(error) if Error::code(&error) == Some(409) => Ok(Some(hash)),
        Err(error) => Err(Error::api("make the network policy")(error)),
    }
}

/// The label that puts a pod under the policy for a configuration.
pub(crate) fn label(config: &Config) -> Result<Option<String>> {
    config.block_network.then(|| policy(config).map(|(hash, _)| hash)).transpose()
}

/// Removes policies that no pod is under any more; how many.
///
/// A creator makes sure of its policy before its pod exists and again after; and here is looked again after. So whichever way
/// the two fall together, the pod has its policy.
pub(crate) async fn clean(cluster: &Cluster, pods: &Api<Pod>) -> Result<usize> {
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let ours = ListParams::default().labels(&names::ours());
    let list = patiently(|| policies.list(&ours)).await.map_err(Error::api("list the network policies"))?;
    let mut removed = 0;
    for policy in list.items {
        let Some(name) = policy.metadata.name.clone() else { continue };
        let Some(hash) = name.strip_prefix(PREFIX) else { continue };
        let under = ListParams::default().labels(&format!("{NETWORK}={hash}")).limit(1);
        let used = || async {
            let list =
                patiently(|| pods.list(&under)).await.map_err(Error::api("list the pods of a network policy"))?;
            Ok::<_, Error>(!list.items.is_empty())
        };
        if used().await? {
            continue;
        }
        let preconditions = Preconditions { uid: policy.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match patiently(|| policies.delete(&name, &parameters)).await {
            Ok(_) => removed += 1,
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => continue,
            Err(error) => return Err(Error::api("delete a network policy")(error)),
        }
        if used().await? {
            let metadata = ObjectMeta { name: Some(name), labels: policy.metadata.labels, ..ObjectMeta::default() };
            let again = NetworkPolicy { metadata, spec: policy.spec };
            match patiently(|| async { policies.create(&PostParams::default(), &again).await }).await {
                Err(error) if Error::code(&error) != Some(409) => {
                    return Err(Error::api("make a network policy that is needed again")(error));
                }
                _ => removed -= 1,
            }
        }
    }
    Ok(removed)
}

fn policy(config: &Config) -> Result<(String, NetworkPolicy)> {
    let rules = serde_json::to_vec(&(&config.egress, &config.ingress))
        .map_err(|error| Error::Config(format!("the network rules can't be described: {error}")))?;
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
            egress: Some(config.egress.clone()),
            ingress: Some(config.ingress.clone()),
        }),
    };
    Ok((hash, policy))
}

/// The name says what is in it, unless somebody has changed it since. The API server fills in defaults, so rules are counted
/// and not compared.
fn agrees(found: &NetworkPolicy, wanted: &NetworkPolicy, name: &str) -> Result<()> {
    let shape = |policy: &NetworkPolicy| {
        policy.spec.as_ref().map(|spec| {
            let rules = (spec.egress.as_ref().map_or(0, Vec::len), spec.ingress.as_ref().map_or(0, Vec::len));
            (spec.pod_selector.clone(), spec.policy_types.clone(), rules)
        })
    };
    if shape(found) == shape(wanted) {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the NetworkPolicy {name} was changed and doesn't hold the rules that its name stands for: delete it, and Podbay makes \
         it anew"
    )))
}
