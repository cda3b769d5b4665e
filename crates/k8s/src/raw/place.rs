//! The namespace in which a sandbox's objects are: the provider's, or one of the sandbox's own.

use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions, WatchEvent, WatchParams};

use super::config::Config;
use super::lease::{Holder, Leases};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{self, HOME, MANAGED_BY, PODBAY, SANDBOX};
use crate::retry::{Pauses, patiently};

/// The label by which a namespace says how strict the cluster is with its pods.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// The one ResourceQuota in a sandbox's own namespace.
const QUOTA: &str = "podbay";

/// A namespace with sandboxes in it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) leases: Leases,
    pub(crate) pods: Api<Pod>,
}

impl Place {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let pods = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { leases: Leases::new(&cluster), pods, cluster }
    }

    /// Makes a pod. A namespace that was made just now isn't ready for one yet: its service account and the count of its quota
    /// are made by controllers.
    pub(crate) async fn make_pod(&self, pod: &Pod, patience: Duration) -> Result<Pod, kube::Error> {
        let work = async {
            let mut pauses = Pauses::default();
            loop {
                match patiently(|| async { self.pods.create(&PostParams::default(), pod).await }).await {
                    Err(kube::Error::Api(status)) if is_early(status.code, &status.message) => {
                        tokio::time::sleep(pauses.next()).await;
                    }
                    other => return other,
                }
            }
        };
        match tokio::time::timeout(patience, work).await {
            Ok(made) => made,
            // Once more, for what the API server says about it.
            Err(_) => self.pods.create(&PostParams::default(), pod).await,
        }
    }

    /// Whether there is a pod of that name.
    pub(crate) async fn exists(&self, pod: &str) -> Result<bool> {
        let found = patiently(|| self.pods.get_metadata_opt(pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        Ok(found.is_some())
    }

    /// Whether there are pods of Podbay's that are about to go.
    pub(crate) async fn has_pods_that_go(&self) -> Result<bool> {
        let ours = ListParams::default().labels(&names::ours());
        let list =
            patiently(|| self.pods.list_metadata(&ours)).await.map_err(Error::api("list the sandboxes' pods"))?;
        Ok(list.items.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()))
    }

    /// A pod, as messages name it.
    pub(crate) fn label(&self, pod: &Pod) -> String {
        format!("{}/{}", self.cluster.namespace, pod.metadata.name.as_deref().unwrap_or("?"))
    }

    /// Deletes a pod; one that is gone, or whose name another has, is no error.
    pub(crate) async fn delete_pod(&self, holder: &Holder) -> Result<()> {
        let preconditions = Some(Preconditions { uid: holder.uid.clone(), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match patiently(|| self.pods.delete(&holder.pod, &parameters)).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(Error::api("delete the sandbox's pod")(error)),
        }
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.cluster.client.clone())
    }

    /// Makes this namespace for one sandbox, or finds that it was made for it.
    pub(crate) async fn make_namespace(&self, config: &Config, home: &str, sandbox: &str) -> Result<()> {
        let name = &self.cluster.namespace;
        let mut labels = config.namespace_labels.clone();
        if let Some(level) = config.pod_security() {
            labels.entry(ENFORCE.into()).or_insert(level.into());
        }
        labels.extend([
            (MANAGED_BY.into(), PODBAY.into()),
            (SANDBOX.into(), sandbox.into()),
            (HOME.into(), home.into()),
        ]);
        let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let wanted = Namespace { metadata, ..Namespace::default() };
        let patience = Duration::from_secs(config.startup_timeout);
        loop {
            match patiently(|| async { self.namespaces().create(&PostParams::default(), &wanted).await }).await {
                Ok(_) => break,
                Err(error) if Error::code(&error) == Some(409) => {}
                Err(error) => return Err(Error::api("make the sandbox's namespace")(error)),
            }
            let Some(found) = self.namespace().await? else { continue };
            let label = |key: &str| found.metadata.labels.as_ref()?.get(key).cloned();
            if label(MANAGED_BY).as_deref() != Some(PODBAY) || label(HOME).as_deref() != Some(home) {
                return Err(Error::NotOurs(format!("the namespace {name}")));
            }
            if found.metadata.deletion_timestamp.is_none() {
                break;
            }
            // The sandbox before is on its way out: it takes all in it along, so nothing new may go there.
            let late =
                || Error::Config(format!("the namespace {name} of the sandbox before isn't gone after {patience:?}"));
            tokio::time::timeout(patience, self.until_gone(&found)).await.map_err(|_| late())??;
        }
        self.make_quota(config).await
    }

    async fn make_quota(&self, config: &Config) -> Result<()> {
        if config.namespace_quota.is_empty() {
            return Ok(());
        }
        let hard = config.namespace_quota.iter().map(|(key, value)| (key.clone(), Quantity(value.clone()))).collect();
        let quota = ResourceQuota {
            metadata: ObjectMeta {
                name: Some(QUOTA.into()),
                labels: Some([(MANAGED_BY.into(), PODBAY.into())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
            status: None,
        };
        let quotas: Api<ResourceQuota> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        match patiently(|| async { quotas.create(&PostParams::default(), &quota).await }).await {
            Err(error) if Error::code(&error) != Some(409) => {
                Err(Error::api("make the quota of the sandbox's namespace")(error))
            }
            _ => Ok(()),
        }
    }

    async fn namespace(&self) -> Result<Option<Namespace>> {
        patiently(|| async { self.namespaces().get_opt(&self.cluster.namespace).await })
            .await
            .map_err(Error::api("get the sandbox's namespace"))
    }

    async fn until_gone(&self, found: &Namespace) -> Result<()> {
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.cluster.namespace));
        let mut found = found.clone();
        let mut pauses = Pauses::default();
        loop {
            let version = found.metadata.resource_version.clone().unwrap_or_default();
            if let Ok(events) = self.namespaces().watch(&only, &version).await {
                let mut events = Box::pin(events);
                while let Ok(Some(event)) = events.try_next().await {
                    match event {
                        WatchEvent::Deleted(_) => return Ok(()),
                        WatchEvent::Error(_) => break,
                        _ => {}
                    }
                }
            }
            tokio::time::sleep(pauses.next()).await;
            match self.namespace().await? {
                Some(newer) if newer.metadata.uid == found.metadata.uid => found = newer,
                _ => return Ok(()),
            }
        }
    }

    /// Deletes this namespace with all in it; whether there was one. It must be one that was made for a sandbox.
    pub(crate) async fn delete_namespace(&self, home: &str) -> Result<bool> {
        let Some(found) = self.namespace().await? else { return Ok(false) };
        let labels = found.metadata.labels.unwrap_or_default();
        if labels.get(MANAGED_BY).map(String::as_str) != Some(PODBAY)
            || labels.get(HOME).map(String::as_str) != Some(home)
        {
            return Err(Error::NotOurs(format!("the namespace {}", self.cluster.namespace)));
        }
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let preconditions = Some(Preconditions { uid: found.metadata.uid, resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match patiently(|| async { self.namespaces().delete(&self.cluster.namespace, &parameters).await }).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(Error::api("delete the sandbox's namespace")(error)),
        }
    }
}

/// Whether a pod is refused only because its namespace is new.
fn is_early(code: u16, message: &str) -> bool {
    code == 403
        && (message.contains("status unknown for quota")
            || message.contains("error looking up service account")
            || message.contains("no API token found for service account"))
}
