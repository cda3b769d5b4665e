//! Sandboxes as plain pods: no controller, no CRDs, no router, no special image.
//!
//! One Lease is the sandbox; the pod belongs to it and goes with it. Whoever creates the Lease has made the sandbox,
//! and everybody else attaches to it.

mod config;
mod inventory;
mod lease;
pub(crate) mod manifest;
mod network;
mod overrides;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use podbay_client::Sandbox;
use podbay_client::provider::{Cleaned, Page, Pending, Provided, Provider, Query, Stats, Wanted};

pub use config::Config;
pub use manifest::CONTAINER;

use crate::channel::exec::{Container, ExecChannel};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, IDLE_TTL, Marks, TTL};
use crate::pod::startup::{Patience, Waiting};
use lease::{Holder, Leases};

/// How often a sandbox whose pod is replaced meanwhile is looked at again.
const ATTEMPTS: usize = 20;

/// Makes sandboxes as plain pods.
#[derive(Clone)]
pub struct Raw {
    cluster: Cluster,
    config: std::sync::Arc<Config>,
    leases: Leases,
    pods: Api<Pod>,
}

/// What is known about the pod that a Lease names.
enum Occupant {
    /// It exists, and may be used or waited for.
    Live(Box<Pod>),
    /// It was never made.
    NotYet,
    /// It has ended or was deleted, with all that was in it.
    Gone(&'static str),
}

impl Raw {
    /// A provider for the namespace of a cluster.
    ///
    /// # Errors
    /// When the configuration can't work. The cluster isn't asked.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self> {
        config.check()?;
        let leases = Leases::new(&cluster);
        let pods = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Ok(Self { cluster, config: config.into(), leases, pods })
    }

    async fn provide(&self, wanted: &Wanted) -> Result<Provided> {
        if wanted.leashed {
            // A cluster doesn't see the end of a process, so the promise couldn't be kept.
            return Err(Error::Config(
                "a sandbox on a cluster can't be leashed to a process: set idle_ttl instead".into(),
            ));
        }
        let name = match &wanted.id {
            Some(id) => names::of_id(id, self.cluster.namespace())?.to_owned(),
            None => names::random(),
        };
        let ttl = wanted.ttl.map(|ttl| ttl.as_secs().max(1)).or(self.config.ttl);
        let marks = self.marks(&name, wanted, ttl)?;
        // What can be refused is refused before anything exists, and what protects a pod exists before the pod.
        manifest::pod(&self.config, &name, &marks, Default::default(), None, ttl)?;
        let network = network::ensure(&self.cluster, &self.config).await?;
        let mut lease = self.leases.make(&name, &marks).await?;
        for _ in 0..ATTEMPTS {
            let holder = holder(&lease)?;
            match self.occupant(&lease, &holder).await? {
                Occupant::Live(pod) => return self.attach(&lease, *pod, false).await,
                Occupant::Gone(_) => lease = self.leases.replace_pod(&lease).await?,
                Occupant::NotYet => {
                    let owner = lease::owner(&lease);
                    let pod = manifest::pod(&self.config, &holder.pod, &marks, owner, network.as_deref(), ttl)?;
                    match self.pods.create(&PostParams::default(), &pod).await {
                        Ok(pod) => return self.start(&lease, pod).await,
                        // Someone else was faster: the next look finds it.
                        Err(error) if Error::code(&error) == Some(409) => {}
                        Err(error) => {
                            let error = Error::api("make the sandbox's pod")(error);
                            return Err(self.undo(&lease, None, error).await);
                        }
                    }
                }
            }
        }
        Err(Error::Config(format!(
            "the sandbox {name} lost its pod {ATTEMPTS} times while it was being made; who deletes them?"
        )))
    }

    fn marks(&self, name: &str, wanted: &Wanted, ttl: Option<u64>) -> Result<Marks> {
        let mut labels = self.config.default_labels.clone();
        labels.extend(wanted.labels.clone());
        let mut marks = Marks::new(name, &self.config.label_prefix, &labels)?;
        let idle = wanted.idle_ttl.map(|ttl| ttl.as_secs().max(1)).or(self.config.idle_ttl);
        for (key, seconds) in [(TTL, ttl), (IDLE_TTL, idle)] {
            if let Some(seconds) = seconds {
                marks.annotations.insert(key.into(), seconds.to_string());
            }
        }
        Ok(marks)
    }

    async fn start(&self, lease: &Lease, pod: Pod) -> Result<Provided> {
        match self.attach(lease, pod.clone(), true).await {
            Err(error) => Err(self.undo(lease, Some(&pod), error).await),
            started => started,
        }
    }

    /// Removes what was made in vain, and gives the reason back.
    async fn undo(&self, lease: &Lease, pod: Option<&Pod>, reason: Error) -> Error {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        if let Err(error) = self.leases.delete(name, lease.metadata.uid.clone()).await {
            tracing::warn!(%error, name, "a sandbox that can't start couldn't be removed");
        }
        if let Some(pod) = pod
            && let Err(error) = self.delete_pod(&holder_of(pod)).await
        {
            tracing::warn!(%error, name, "the pod of a sandbox that can't start couldn't be removed");
        }
        reason
    }

    /// Waits for a pod and gives the sandbox in it.
    async fn attach(&self, lease: &Lease, pod: Pod, created: bool) -> Result<Provided> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let waiting = Waiting {
            cluster: &self.cluster,
            timeout: Duration::from_secs(self.config.startup_timeout),
            patience: Patience { container: CONTAINER, wait_for_node: self.config.wait_for_node, fresh: created },
        };
        let Holder { pod: pod_name, uid } = holder_of(&pod);
        let uid = uid.unwrap_or_default();
        let pod = waiting.until_running(pod).await?;
        self.leases.set_uid(lease, &pod_name, &uid).await?;
        let container =
            Container { namespace: self.cluster.namespace.clone(), pod: pod_name, uid, name: CONTAINER.into() };
        let channel = ExecChannel::new(self.cluster.client.clone(), container, &self.config.workdir)
            .watched_by(self.leases.witness(&name));
        let sandbox = Sandbox::new(channel);
        if created {
            // Now is the time to find out that podbayd doesn't start there, or that the container ends by itself.
            tokio::select! {
                welcome = sandbox.hello() => {
                    if let Err(error) = welcome {
                        return Err(waiting.failure(&pod).await.unwrap_or(Error::Unusable(error)));
                    }
                }
                error = waiting.until_failed(&pod) => return Err(error),
            }
        }
        Ok(Provided { id: name, sandbox, created, leash: None })
    }

    async fn occupant(&self, lease: &Lease, holder: &Holder) -> Result<Occupant> {
        let Some(pod) = self.pods.get_opt(&holder.pod).await.map_err(Error::api("get the sandbox's pod"))? else {
            return Ok(match holder.uid {
                Some(_) => Occupant::Gone("it was deleted"),
                None => Occupant::NotYet,
            });
        };
        // An id reaches what Podbay made for it and nothing else, whatever a Lease says.
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref()) {
            return Err(Error::NotOurs(format!("the pod {}", holder.pod)));
        }
        if holder.uid.is_some() && holder.uid != pod.metadata.uid {
            return Ok(Occupant::Gone("another pod has its name"));
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Ok(match phase {
            _ if pod.metadata.deletion_timestamp.is_some() => Occupant::Gone("it is being deleted"),
            Some("Failed" | "Succeeded") => Occupant::Gone("it has ended"),
            _ => Occupant::Live(Box::new(pod)),
        })
    }

    async fn find(&self, id: &str) -> Result<Provided> {
        let lease = self.leases.find(names::of_id(id, self.cluster.namespace())?).await?;
        let holder = holder(&lease)?;
        let gone = |how: &str| {
            Err(Error::PodGone { pod: format!("{}/{}", self.cluster.namespace, holder.pod), how: how.into() })
        };
        match self.occupant(&lease, &holder).await? {
            Occupant::Live(pod) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                let found = self.attach(&lease, *pod, false).await?;
                self.leases.renew(&name).await;
                Ok(found)
            }
            Occupant::NotYet => gone("whoever made the sandbox didn't make its pod"),
            Occupant::Gone(how) => gone(how),
        }
    }

    /// Deletes a sandbox. The Lease goes first, so that nobody attaches to what is about to end; the pod directly after it,
    /// because the garbage collector takes its time.
    async fn remove(&self, id: &str) -> Result<bool> {
        let name = names::of_id(id, self.cluster.namespace())?;
        let lease = match self.leases.find(name).await {
            Ok(lease) => lease,
            Err(Error::SandboxNotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let holder = holder(&lease)?;
        let occupant = self.occupant(&lease, &holder).await?;
        let deleted = self.leases.delete(name, lease.metadata.uid.clone()).await?;
        if let Occupant::Live(pod) = occupant {
            self.delete_pod(&holder_of(&pod)).await?;
        }
        Ok(deleted)
    }

    async fn delete_pod(&self, holder: &Holder) -> Result<()> {
        let preconditions = Some(Preconditions { uid: holder.uid.clone(), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match self.pods.delete(&holder.pod, &parameters).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(Error::api("delete the sandbox's pod")(error)),
        }
    }
}

fn holder(lease: &Lease) -> Result<Holder> {
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    Holder::of(lease).ok_or_else(|| Error::NotOurs(format!("the Lease {name} names no pod: it")))
}

fn holder_of(pod: &Pod) -> Holder {
    Holder { pod: pod.metadata.name.clone().unwrap_or_default(), uid: pod.metadata.uid.clone() }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Provider for Raw {
    fn mode(&self) -> &'static str {
        "raw"
    }

    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided> {
        Box::pin(async { Ok(self.provide(wanted).await?) })
    }

    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided> {
        Box::pin(async { Ok(self.find(id).await?) })
    }

    fn list<'a>(&'a self, query: &'a Query) -> Pending<'a, Page> {
        Box::pin(async { Ok(self.page(query).await?) })
    }

    fn delete<'a>(&'a self, id: &'a str) -> Pending<'a, bool> {
        Box::pin(async { Ok(self.remove(id).await?) })
    }

    fn cleanup(&self, max_idle: Option<Duration>) -> Pending<'_, Cleaned> {
        Box::pin(async move { Ok(self.clean(max_idle).await?) })
    }

    fn stats(&self, idle: Duration) -> Pending<'_, Stats> {
        Box::pin(async move { Ok(self.count(idle).await?) })
    }
}
