//! Describes a sandbox's pod: what runs in it, where, and what happened to it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Event as Recorded, Pod};
use kube::Api;
use kube::api::ListParams;
use podbay_client::Sandbox;
use podbay_client::description::{Description, Limit, SandboxEvent};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::lifetime::millis;
use crate::names::NETWORK;
use crate::pod::health::{container_of, ending};

/// How long the cluster may take to list the events: the rest is worth showing without them.
const EVENTS: Duration = Duration::from_secs(5);

/// How long podbayd may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Adds what podbayd says of itself.
pub(crate) async fn ask_podbayd(description: &mut Description, sandbox: &Sandbox) {
    match tokio::time::timeout(ANSWER, sandbox.hello()).await {
        Ok(Ok(welcome)) => {
            description.running = Some(welcome.running);
            let open = "it doesn't say how it is protected from commands";
            match tokio::time::timeout(ANSWER, sandbox.protection()).await {
                Ok(Ok(protection)) => description.protection = Some(protection),
                Ok(Err(error)) => description.unknown.push(format!("{open}: {error}")),
                Err(_) => description.unknown.push(format!("{open}: no answer within {} s", ANSWER.as_secs())),
            }
        }
        Ok(Err(error)) => description.unknown.push(format!("its podbayd can't be reached: {error}")),
        Err(_) => description.unknown.push(format!("its podbayd didn't answer within {} s", ANSWER.as_secs())),
    }
}

/// Adds what is known of a sandbox's pod.
pub(crate) async fn describe_pod(description: &mut Description, cluster: &Cluster, pod: &Pod, container: &str) {
    let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
    description.isolation = class.map_or_else(
        || "a pod, with the node's default runtime".to_owned(),
        |class| format!("a pod, with the runtime class {class}"),
    );
    description.facts.push(("namespace", cluster.namespace.clone()));
    description.facts.extend(facts(pod, container));
    description.limits = limits(pod, container);
    match tokio::time::timeout(EVENTS, recorded(cluster, pod)).await {
        Ok(Ok(events)) => description.events = events,
        Ok(Err(error)) => description.unknown.push(format!("its events can't be read: {error}")),
        Err(_) => description.unknown.push(format!("its events weren't listed within {} s", EVENTS.as_secs())),
    }
}

/// A pod's events, oldest first.
async fn recorded(cluster: &Cluster, pod: &Pod) -> Result<Vec<SandboxEvent>> {
    let api: Api<Recorded> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(100);
    let list = api.list(&about).await.map_err(Error::api("list events"))?;
    let mut events: Vec<SandboxEvent> = list.items.into_iter().map(event).collect();
    events.sort_by_key(|event| event.at_ms);
    Ok(events)
}

fn event(recorded: Recorded) -> SandboxEvent {
    // Older components write the first, newer ones the second.
    let last = recorded.last_timestamp.map(|time| time.0).or(recorded.event_time.map(|time| time.0));
    let last = last.or(recorded.metadata.creation_timestamp.map(|time| time.0));
    SandboxEvent {
        at_ms: last.map(millis),
        kind: recorded.type_.unwrap_or_default(),
        reason: recorded.reason.unwrap_or_default(),
        message: recorded.message.unwrap_or_default().trim().to_owned(),
        count: recorded.count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
    }
}

fn container_spec<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    pod.spec.as_ref()?.containers.iter().find(|container| container.name == name)
}

fn facts(pod: &Pod, name: &str) -> Vec<(&'static str, String)> {
    let (spec, status, container) = (pod.spec.as_ref(), pod.status.as_ref(), container_spec(pod, name));
    let state = container_of(pod, name);
    let own_user = container.and_then(|container| container.security_context.as_ref()?.run_as_user);
    let user = own_user.or_else(|| spec?.security_context.as_ref()?.run_as_user);
    let has_policy = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(NETWORK));
    let network = if has_policy { "what its NetworkPolicy allows" } else { "what the cluster allows" };
    let facts = [
        ("pod", pod.metadata.name.clone()),
        ("ended", ending(pod, name)),
        ("node", spec.and_then(|spec| spec.node_name.clone())),
        ("address", status.and_then(|status| status.pod_ip.clone())),
        ("image", container.and_then(|container| container.image.clone())),
        ("user", user.map(|user| user.to_string())),
        ("network", Some(network.to_owned())),
        ("restarts", state.map(|state| state.restart_count.to_string())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn limits(pod: &Pod, name: &str) -> Vec<Limit> {
    let set = container_spec(pod, name).and_then(|container| container.resources.as_ref()?.limits.as_ref());
    let limit = |(name, resource): (&str, &str)| {
        let most = set.and_then(|limits| limits.get(resource)).map(|quantity| quantity.0.clone());
        let by = most.as_ref().map(|_| "the node".to_owned());
        Limit { limit: name.to_owned(), most, by, note: None }
    };
    [("memory", "memory"), ("cpu", "cpu"), ("disk", "ephemeral-storage")].map(limit).into()
}
