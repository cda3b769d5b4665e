//! What the doctor examines in raw mode only.

mod pod_view;
mod trial;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use podbay_client::provider::{Pending, Provider};

use super::report::{CheckState, Finding};
use super::{Examined, ModeNeeds};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{MANAGED_BY, Metadata, PODBAY};
use crate::raw::{Config, Features, Raw, manifest};

/// Examines a cluster for raw mode.
pub(super) struct RawExamination {
    cluster: Cluster,
    config: Config,
    raw: Raw,
    needs: ModeNeeds,
    /// What the ids of all sandboxes of the trial begin with.
    id: String,
}

impl RawExamination {
    pub(super) fn new(cluster: Cluster, config: Config) -> Result<Self> {
        let raw = Raw::new(cluster.clone(), config.clone())?;
        let needs = Features::of(&config).needs();
        Ok(Self { cluster, config, raw, needs, id: format!("pb-doctor-{:08x}", rand::random::<u32>()) })
    }

    fn sandbox_id(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    async fn remove_trial(&self) -> Result<(), podbay_client::Error> {
        for id in trial::NAMES.map(|name| self.sandbox_id(name)) {
            self.raw.delete(&id).await?;
        }
        Ok(())
    }

    /// Sends a dry run, which goes through admission, quotas and webhooks, and creates nothing.
    async fn rehearse_admission(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("admission", "admission of such a pod", state, detail);
        let rehearsed = async {
            let metadata = Metadata::new(&self.id, &self.config.label_prefix, &self.config.default_labels)?;
            let mut pod = manifest::pod(&self.config, &self.id, &metadata, Default::default(), None, self.config.ttl)?;
            // There is no Lease that it could belong to.
            pod.metadata.owner_references = None;
            let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
            let parameters = PostParams { dry_run: true, ..PostParams::default() };
            pods.create(&parameters, &pod).await.map(drop).map_err(Error::api("admit a sandbox's pod"))
        };
        match rehearsed.await {
            Ok(()) => finding(CheckState::Ok, "yes".into()),
            Err(error) => {
                let text = error.to_string();
                let fix = if text.contains("PodSecurity") {
                    "the namespace's Pod Security level forbids it: change the setting that it names, or lower the \
                     level (podbay install raw --pod-security baseline)"
                } else if text.contains("quota") {
                    "the namespace's quota is used up: raise it, delete sandboxes, or request less (raw.cpu_request, \
                     raw.memory_request)"
                } else if text.contains("RuntimeClass") {
                    "name an existing runtime class (kubectl get runtimeclass), or omit --runtime-class"
                } else if text.contains("serviceaccount") {
                    "name an existing service account (kubectl get serviceaccount), or omit --service-account"
                } else {
                    "change the setting that it names ('podbay config' shows them), or ask the cluster's administrator"
                };
                finding(CheckState::Failed, text).fix(fix)
            }
        }
    }
}

impl Examined for RawExamination {
    fn needs(&self) -> &ModeNeeds {
        &self.needs
    }

    fn provider(&self) -> &dyn Provider {
        &self.raw
    }

    fn other_pods(&self) -> String {
        format!("{MANAGED_BY}!={PODBAY}")
    }

    fn is_unlimited(&self) -> bool {
        self.config.ttl.is_none() && self.config.idle_ttl.is_none()
    }

    fn admission(&self) -> Pending<'_, Finding> {
        Box::pin(async { Ok(self.rehearse_admission().await) })
    }

    fn trial(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async { Ok(self.try_sandboxes().await) })
    }

    fn clean_up(&self) -> Pending<'_, ()> {
        Box::pin(self.remove_trial())
    }
}

/// What belongs to a trial, for whoever finds it.
fn labels() -> std::collections::BTreeMap<String, String> {
    [("purpose".to_owned(), "doctor".to_owned())].into()
}
