//! The namespace that a sandbox's objects are in: the provider's, or one of the sandbox's own.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use super::config::Config;
use super::lease::{self, Holder, Leases};
use crate::api::follow::{Outcome, UntilDeleted, follow};
use crate::api::retry::{Backoff, with_retry};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::lifetime::age;
use crate::names::{self, HOME, MANAGED_BY, PODBAY, REUSED, SANDBOX};
use crate::sandbox_object::unchanged;

/// The label with the Pod Security level that the cluster enforces in a namespace.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// The one ResourceQuota in a sandbox's own namespace.
const QUOTA: &str = "podbay";

/// A namespace with sandboxes in it.
#[derive(Clone)]
pub(crate) struct SandboxNamespace {
    pub(crate) cluster: Cluster,
    pub(crate) leases: Leases,
    pub(crate) pods: Api<Pod>,
}

impl SandboxNamespace {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let pods = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { leases: Leases::new(&cluster), pods, cluster }
    }

    /// Creates a pod. A namespace that was created a moment ago isn't ready for one yet: controllers have to create its
    /// service account and count its quota first.
    pub(crate) async fn create_pod(&self, pod: &Pod, patience: Duration) -> Result<Pod, kube::Error> {
        let work = async {
            let mut backoff = Backoff::default();
            loop {
                match with_retry(|| async { self.pods.create(&PostParams::default(), pod).await }).await {
                    Err(kube::Error::Api(status)) if is_early(status.code, &status.message) => {
                        tokio::time::sleep(backoff.next()).await;
                    }
                    other => return other,
                }
            }
        };
        match tokio::time::timeout(patience, work).await {
            Ok(created) => created,
            // Once more, for the API server's reason.
            Err(_) => self.pods.create(&PostParams::default(), pod).await,
        }
    }

    /// Whether a pod of that name exists.
    pub(crate) async fn exists(&self, pod: &str) -> Result<bool> {
        let found =
            with_retry(|| self.pods.get_metadata_opt(pod)).await.map_err(Error::api("get the sandbox's pod"))?;
        Ok(found.is_some())
    }

    /// Whether any of Podbay's pods are being deleted.
    pub(crate) async fn has_terminating_pods(&self) -> Result<bool> {
        let ours = ListParams::default().labels(&names::ours());
        let list =
            with_retry(|| self.pods.list_metadata(&ours)).await.map_err(Error::api("list the sandboxes' pods"))?;
        Ok(list.items.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()))
    }

    /// A pod's namespace and name, as messages show it.
    pub(crate) fn label(&self, pod: &Pod) -> String {
        format!("{}/{}", self.cluster.namespace, pod.metadata.name.as_deref().unwrap_or("?"))
    }

    /// Deletes a pod. One that is gone, or whose name another pod has, is no error.
    pub(crate) async fn delete_pod(&self, holder: &Holder) -> Result<()> {
        let preconditions = Some(kube::api::Preconditions { uid: holder.uid.clone(), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match with_retry(|| self.pods.delete(&holder.pod, &parameters)).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(Error::api("delete the sandbox's pod")(error)),
        }
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.cluster.client.clone())
    }

    /// Creates this namespace for one sandbox, or takes over the one that exists. Whoever takes one over writes to it first,
    /// so that nobody deletes it because of what was read before.
    pub(crate) async fn create_namespace(&self, config: &Config, home: &str, sandbox: &str) -> Result<()> {
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
            match with_retry(|| async { self.namespaces().create(&PostParams::default(), &wanted).await }).await {
                Ok(_) => break,
                Err(error) if Error::code(&error) == Some(409) => {}
                Err(error) => return Err(Error::api("create the sandbox's namespace")(error)),
            }
            let Some(found) = self.namespace(home).await? else { continue };
            let Some(found) = self.take_over(&found).await? else { continue };
            if found.metadata.deletion_timestamp.is_none() {
                break;
            }
            // It takes everything in it along, so nothing new may go there.
            let mut progress = String::new();
            let deleted = follow(self.namespaces(), found, &UntilDeleted, &mut progress);
            match tokio::time::timeout(patience, deleted).await {
                Ok(Ok(Outcome::Failed(never))) => match never {},
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(Error::api("watch the sandbox's namespace")(error)),
                Err(_) => return Err(Error::Terminating { namespace: name.clone(), seconds: patience.as_secs() }),
            }
        }
        self.create_quota(config).await
    }

    /// Records that a namespace is about to be used again; nothing when it is gone by now.
    async fn take_over(&self, found: &Namespace) -> Result<Option<Namespace>> {
        let now = self.cluster.now().await?;
        let patch = Patch::Merge(json!({"metadata": {
            "uid": found.metadata.uid,
            "annotations": {REUSED: now.to_string()},
        }}));
        let name = &self.cluster.namespace;
        match with_retry(|| async { self.namespaces().patch(name, &PatchParams::default(), &patch).await }).await {
            Ok(namespace) => Ok(Some(namespace)),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(None),
            Err(error) => Err(Error::api("take over the sandbox's namespace")(error)),
        }
    }

    async fn create_quota(&self, config: &Config) -> Result<()> {
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
        match with_retry(|| async { quotas.create(&PostParams::default(), &quota).await }).await {
            Err(error) if Error::code(&error) != Some(409) => {
                Err(Error::api("create the quota of the sandbox's namespace")(error))
            }
            _ => Ok(()),
        }
    }

    /// This namespace, which must be one that was created for a sandbox.
    pub(crate) async fn namespace(&self, home: &str) -> Result<Option<Namespace>> {
        let found = with_retry(|| async { self.namespaces().get_opt(&self.cluster.namespace).await })
            .await
            .map_err(Error::api("get the sandbox's namespace"))?;
        let Some(found) = found else { return Ok(None) };
        let label = |key: &str| found.metadata.labels.as_ref()?.get(key).map(String::as_str);
        match label(MANAGED_BY) == Some(PODBAY) && label(HOME) == Some(home) {
            true => Ok(Some(found)),
            false => Err(Error::not_ours(format_args!("the namespace {}", self.cluster.namespace))),
        }
    }

    /// Deletes this namespace as it was read before its sandbox's Lease was deleted, or found missing. Says whether it did.
    /// A namespace that somebody is about to use again stays.
    pub(crate) async fn delete_namespace(&self, read: &Namespace, deleted: Option<&Lease>) -> Result<bool> {
        let reused = is_being_reused(read, deleted, self.cluster.now().await?);
        if read.metadata.deletion_timestamp.is_some() || reused {
            return Ok(false);
        }
        let parameters = DeleteParams { preconditions: Some(unchanged(read)), ..DeleteParams::background() };
        match with_retry(|| async { self.namespaces().delete(&self.cluster.namespace, &parameters).await }).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(Error::api("delete the sandbox's namespace")(error)),
        }
    }
}

/// Whether somebody has taken a namespace over, and may not have written to its sandbox's Lease yet.
pub(crate) fn is_being_reused(namespace: &Namespace, lease: Option<&Lease>, now: Timestamp) -> bool {
    let reused = namespace.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REUSED));
    let Some(reused) = reused.and_then(|time| time.parse::<Timestamp>().ok()) else { return false };
    let written = lease.and_then(lease::last_written);
    age(reused, now) < lease::CLAIMING && written.is_none_or(|written| written < reused)
}

/// Whether a pod is refused only because its namespace is new.
fn is_early(code: u16, message: &str) -> bool {
    code == 403
        && (message.contains("status unknown for quota")
            || message.contains("error looking up service account")
            || message.contains("no API token found for service account"))
}
