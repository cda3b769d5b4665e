//! The rules of sandboxes' networks: one NetworkPolicy for each distinct set, shared by all sandboxes that have it.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::config::Config;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, MANAGED_BY, NETWORK, PODBAY};

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
    if let Some(found) = policies.get_opt(&name).await.map_err(Error::api("get the network policy"))? {
        return agrees(&found, &policy, &name).map(|()| Some(hash));
    }
    match policies.create(&PostParams::default(), &policy).await {
        Ok(_) => Ok(Some(hash)),
        Err(error) if Error::code(&error) == Some(409) => Ok(Some(hash)),
        Err(error) => Err(Error::api("make the network policy")(error)),
    }
}

fn policy(config: &Config) -> Result<(String, NetworkPolicy)> {
    let rules = serde_json::to_vec(&(&config.egress, &config.ingress))
        .map_err(|error| Error::Config(format!("the network rules can't be described: {error}")))?;
    let hash = names::hash(&rules);
    let selector = LabelSelector { match_labels: Some([(NETWORK.into(), hash.clone())].into()), ..Default::default() };
    let policy = NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(format!("pb-net-{hash}")),
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
