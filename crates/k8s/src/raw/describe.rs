//! Describes a sandbox: its Lease, its pod, and the pod's events.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Event as Recorded, Pod};
use kube::Api;
use kube::api::ListParams;
use podbay_client::description::{Description, Limit, SandboxEvent};
use podbay_client::provider::Phase;

use super::Raw;
use super::inventory::Pods;
use super::lease::Holder;
use super::manifest::CONTAINER;
use super::namespace::SandboxNamespace;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::lifetime::{LifetimeLimits, millis};
use crate::names::{self, NETWORK};
use crate::pod::health::ending;
use crate::sandbox_object::{SandboxObject, SandboxObjects};

/// How long the cluster may take to list the events: the rest is worth showing without them.
const EVENTS: Duration = Duration::from_secs(5);

/// How long podbayd may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

impl Raw {
    /// Describes a sandbox, or a pod that waits in a pool to become one.
    pub(super) async fn description(&self, id: &str) -> Result<Description> {
        let name = names::of_id(id, self.home.cluster.namespace())?;
        match self.namespace_of(name).leases.find(name).await {
            Ok(lease) => self.describe_lease(&self.namespace_of(name), &lease).await,
            Err(error @ Error::SandboxNotFound(_)) => match self.sandbox_of_pod(name).await? {
                Some(name) => {
                    self.describe_lease(&self.namespace_of(&name), &self.namespace_of(&name).leases.find(&name).await?)
                        .await
                }
                None => self.describe_waiting_pod(name).await?.ok_or(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn describe_lease(&self, namespace: &SandboxNamespace, lease: &Lease) -> Result<Description> {
        let pod = own_pod(namespace, lease).await?;
        let pods = Pods::of(pod.iter().cloned().collect());
        let listed = self.listed(lease, &pods, self.home.cluster.now().await?);
        let name = lease.metadata.name.clone().unwrap_or_default();
        let listed = listed.ok_or(Error::SandboxNotFound(name))?;
        let mut description = Description::new(listed, "a pod that is gone");
        let LifetimeLimits { ttl, idle_ttl } = lease.limits();
        description.ttl_ms = ttl.map(|seconds| seconds.saturating_mul(1000));
        description.idle_ttl_ms = idle_ttl.map(|seconds| seconds.saturating_mul(1000));
        if let Some(pod) = &pod {
            describe_pod(&mut description, namespace, pod).await;
        }
        if let Some(pod) = pod.filter(|_| description.listed.phase == Phase::Running) {
            // A handle of its own, which doesn't renew the Lease: looking at a sandbox isn't using it.
            let sandbox = self.open(namespace, lease, &pod);
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
        Ok(description)
    }

    async fn describe_waiting_pod(&self, pod: &str) -> Result<Option<Description>> {
        if self.config.namespace_per_sandbox {
            return Ok(None);
        }
        let found = with_retry(|| self.home.pods.get_opt(pod)).await.map_err(Error::api("get the pod"))?;
        let waits = |pod: &Pod| {
            let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).map(String::as_str);
            label(names::MANAGED_BY) == Some(names::PODBAY) && label(names::POOL).is_some()
        };
        let Some(pod) = found.filter(waits) else { return Ok(None) };
        let Some(listed) = self.listed_pod(&pod) else { return Ok(None) };
        let mut description = Description::new(listed, "");
        describe_pod(&mut description, &self.home, &pod).await;
        Ok(Some(description))
    }
}

/// The pod that a Lease names, if it belongs to the Lease: an id reaches what Podbay created for it and nothing else, whatever
/// a Lease says.
async fn own_pod(namespace: &SandboxNamespace, lease: &Lease) -> Result<Option<Pod>> {
    let Some(holder) = Holder::of(lease) else { return Ok(None) };
    let pod = with_retry(|| namespace.pods.get_opt(&holder.pod)).await.map_err(Error::api("get the sandbox's pod"))?;
    Ok(pod.filter(|pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let same = holder.uid.is_none() || holder.uid == pod.metadata.uid;
        same && owners.any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref())
    }))
}

async fn describe_pod(description: &mut Description, namespace: &SandboxNamespace, pod: &Pod) {
    let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
    description.isolation = class.map_or_else(
        || "a pod, with the node's default runtime".to_owned(),
        |class| format!("a pod, with the runtime class {class}"),
    );
    description.facts.push(("namespace", namespace.cluster.namespace.clone()));
    description.facts.extend(facts(pod));
    description.limits = limits(pod);
    match tokio::time::timeout(EVENTS, recorded(namespace, pod)).await {
        Ok(Ok(events)) => description.events = events,
        Ok(Err(error)) => description.unknown.push(format!("its events can't be read: {error}")),
        Err(_) => description.unknown.push(format!("its events weren't listed within {} s", EVENTS.as_secs())),
    }
}

/// A pod's events, oldest first.
async fn recorded(namespace: &SandboxNamespace, pod: &Pod) -> Result<Vec<SandboxEvent>> {
    let api: Api<Recorded> = Api::namespaced(namespace.cluster.client.clone(), &namespace.cluster.namespace);
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

fn container(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.iter().find(|container| container.name == CONTAINER)
}

fn facts(pod: &Pod) -> Vec<(&'static str, String)> {
    let (spec, status, container) = (pod.spec.as_ref(), pod.status.as_ref(), container(pod));
    let state = status.and_then(|status| status.container_statuses.iter().flatten().find(|one| one.name == CONTAINER));
    let own_user = container.and_then(|container| container.security_context.as_ref()?.run_as_user);
    let user = own_user.or_else(|| spec?.security_context.as_ref()?.run_as_user);
    let fenced = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(NETWORK));
    let network = if fenced { "what its NetworkPolicy allows" } else { "what the cluster allows" };
    let facts = [
        ("pod", pod.metadata.name.clone()),
        ("ended", ending(pod, CONTAINER)),
        ("node", spec.and_then(|spec| spec.node_name.clone())),
        ("address", status.and_then(|status| status.pod_ip.clone())),
        ("image", container.and_then(|container| container.image.clone())),
        ("user", user.map(|user| user.to_string())),
        ("network", Some(network.to_owned())),
        ("restarts", state.map(|state| state.restart_count.to_string())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn limits(pod: &Pod) -> Vec<Limit> {
    let set = container(pod).and_then(|container| container.resources.as_ref()?.limits.as_ref());
    let limit = |(name, resource): (&str, &str)| {
        let most = set.and_then(|limits| limits.get(resource)).map(|quantity| quantity.0.clone());
        let by = most.as_ref().map(|_| "the node".to_owned());
        Limit { limit: name.to_owned(), most, by, note: None }
    };
    [("memory", "memory"), ("cpu", "cpu"), ("disk", "ephemeral-storage")].map(limit).into()
}
