//! From a claim to the pod behind it. Nothing is sent to a pod before every link of the chain was checked by UID: the claim
//! controls the Sandbox, and the Sandbox controls the pod. Names alone prove nothing.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::GetParams;
use podbay_client::Sandbox as Handle;
use podbay_client::provider::Launch;

use super::AgentSandbox;
use super::claims::refused;
use super::resources::{LAUNCH_TYPE, Sandbox, SandboxClaim, is_controlled_by};
use crate::api::retry::with_retry;
use crate::channel::exec::ExecChannel;
use crate::channel::pod::PodChannel;
use crate::channel::stock_runtime::StockChannel;
use crate::error::{Error, Result};
use crate::pod::container::Container;
use crate::pod::health::{ending, lost_node};
use crate::sandbox_object::SandboxObject;

/// Annotation of a pod: the container that tools work in unless told otherwise.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What a claim is bound to.
pub(super) struct Binding {
    pub(super) sandbox: Sandbox,
    pub(super) pod: Pod,
}

/// What was read of a Sandbox before a claim was bound to it.
#[derive(Default)]
pub(super) struct Ahead {
    sandbox: Option<Sandbox>,
    pod: Option<Pod>,
}

impl AgentSandbox {
    /// Reads the pod of a Sandbox that a claim is about to get, and then the Sandbox, which may have its new owner by then.
    pub(super) async fn look_ahead(&self, name: &str, ahead: &mut Ahead) -> Result<(), kube::Error> {
        ahead.pod = self.pods().get_opt(name).await?;
        ahead.sandbox = Some(self.sandboxes().get_with(name, &GetParams::any()).await?);
        Ok(())
    }

    /// The Sandbox that a claim is bound to.
    ///
    /// # Errors
    /// When there is none, or it isn't the claim's.
    pub(super) async fn bound_sandbox(&self, claim: &SandboxClaim) -> Result<Sandbox> {
        let name = claim.sandbox().ok_or_else(|| self.gone(claim, "the claim isn't bound to a Sandbox"))?;
        let sandboxes = self.sandboxes();
        let sandbox = with_retry(|| sandboxes.get_opt(name)).await.map_err(refused("get the Sandbox"))?;
        self.checked_sandbox(claim, sandbox)
    }

    fn checked_sandbox(&self, claim: &SandboxClaim, sandbox: Option<Sandbox>) -> Result<Sandbox> {
        let sandbox = sandbox.ok_or_else(|| self.gone(claim, "its Sandbox was deleted"))?;
        if !is_controlled_by(sandbox.metadata.owner_references.as_ref(), claim.metadata.uid.as_ref()) {
            let name = sandbox.metadata.name.unwrap_or_default();
            return Err(Error::NotOurs(format!("the Sandbox {name} belongs to another claim, not to {}", claim.id())));
        }
        Ok(sandbox)
    }

    /// The Sandbox and the pod behind a claim that is ready. The two are read at the same time.
    ///
    /// # Errors
    /// When one of them is gone, or isn't the claim's.
    pub(super) async fn binding(&self, claim: &SandboxClaim) -> Result<Binding> {
        self.binding_with(claim, Ahead::default()).await
    }

    /// As [`Self::binding`], with what was read before the claim was ready.
    pub(super) async fn binding_with(&self, claim: &SandboxClaim, ahead: Ahead) -> Result<Binding> {
        let name = claim.sandbox().ok_or_else(|| self.gone(claim, "the claim isn't bound to a Sandbox"))?;
        let (sandboxes, pods) = (self.sandboxes(), self.pods());
        let read_pod = async {
            match ahead.pod.filter(|pod| pod.metadata.name.as_deref() == Some(name)) {
                Some(pod) => Ok(Some(pod)),
                // A pod is named like its Sandbox, except for Sandboxes that very old controllers created.
                None => with_retry(|| pods.get_opt(name)).await,
            }
        };
        let read_sandbox = async {
            // Who controls a Sandbox doesn't change back, so what was read earlier counts if it says so. The API server's
            // cache answers sooner than its database, and is behind at worst.
            let is_bound = |sandbox: Sandbox| self.checked_sandbox(claim, Some(sandbox)).ok();
            if let Some(sandbox) = ahead.sandbox.and_then(is_bound) {
                return Ok(sandbox);
            }
            match sandboxes.get_with(name, &GetParams::any()).await.ok().and_then(is_bound) {
                Some(sandbox) => Ok(sandbox),
                None => self.bound_sandbox(claim).await,
            }
        };
        let (sandbox, pod) = futures_util::future::join(read_sandbox, read_pod).await;
        let sandbox = sandbox?;
        let mut pod = pod.map_err(Error::api("get the sandbox's pod"))?;
        if sandbox.pod() != name {
            pod = with_retry(|| pods.get_opt(sandbox.pod())).await.map_err(Error::api("get the sandbox's pod"))?;
        }
        let pod = pod.ok_or_else(|| self.gone(claim, "it was deleted"))?;
        if !is_controlled_by(pod.metadata.owner_references.as_ref(), sandbox.metadata.uid.as_ref()) {
            return Err(Error::NotOurs(format!("the pod {} belongs to another Sandbox, not to {name}", sandbox.pod())));
        }
        Ok(Binding { sandbox, pod })
    }

    /// The sandbox in a pod that was checked just now. Nothing is opened yet.
    pub(super) fn open(&self, claim: &str, pod: &Pod) -> Result<Handle> {
        let container = self.container(pod)?;
        let label = || format!("{}/{}", self.claims.cluster.namespace, pod.metadata.name.as_deref().unwrap_or("?"));
        if let Some(how) = ending(pod, &container) {
            return Err(Error::PodGone { pod: label(), how });
        }
        if let Some(node) = lost_node(pod, &container) {
            return Err(Error::NodeLost { pod: label(), node });
        }
        let channel = self.exec_channel(pod)?;
        if let Some(router) = &self.stock {
            return Ok(Handle::new(StockChannel::new(router, channel)).with_env(self.config.env.clone()));
        }
        let channel = PodChannel::new(channel).with_addresses(self.addresses.as_ref(), claim);
        Ok(Handle::new(channel).with_env(self.config.env.clone()))
    }

    /// The exec channel to a pod that was checked just now, with what podbayd is told when it is started there.
    fn exec_channel(&self, pod: &Pod) -> Result<ExecChannel> {
        let container = self.container_in(pod)?;
        let workdir = self.config.workdir.clone().unwrap_or_default();
        let channel = ExecChannel::new(self.claims.cluster.client.clone(), container, workdir).checked_just_now(pod);
        Ok(if self.config.command_filter { channel } else { channel.without_command_filter() })
    }

    /// The container to work in, with its pod.
    pub(super) fn container_in(&self, pod: &Pod) -> Result<Container> {
        Ok(Container {
            namespace: self.claims.cluster.namespace.clone(),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            name: self.container(pod)?,
        })
    }

    /// The name of the container to work in.
    pub(super) fn container(&self, pod: &Pod) -> Result<String> {
        default_container(pod, self.config.container.as_deref()).ok_or_else(|| {
            let spec = pod.spec.as_ref();
            let names: Vec<_> = spec.iter().flat_map(|spec| &spec.containers).map(|one| one.name.as_str()).collect();
            Error::Config(format!(
                "the pod has no container {:?}: set agent_sandbox.container to one of {}",
                self.config.container.as_deref().unwrap_or_default(),
                names.join(", ")
            ))
        })
    }

    fn gone(&self, claim: &SandboxClaim, how: &str) -> Error {
        let name = claim.sandbox().unwrap_or(claim.id());
        Error::PodGone { pod: format!("{}/{name}", self.claims.cluster.namespace), how: how.into() }
    }

    pub(super) fn sandboxes(&self) -> Api<Sandbox> {
        Api::namespaced(self.claims.cluster.client.clone(), &self.claims.cluster.namespace)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.claims.cluster.client.clone(), &self.claims.cluster.namespace)
    }
}

/// Whether a Sandbox came from a warm pool, as the controller reports it.
pub(super) fn launch(sandbox: &Sandbox) -> Option<Launch> {
    match sandbox.metadata.labels.as_ref()?.get(LAUNCH_TYPE)?.as_str() {
        "warm" => Some(Launch::Warm),
        "cold" => Some(Launch::Cold),
        _ => None,
    }
}

/// The container that is wanted, or the pod's default one: what kubectl would choose.
pub(super) fn default_container(pod: &Pod, wanted: Option<&str>) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let noted = pod.metadata.annotations.as_ref().and_then(|all| all.get(DEFAULT_CONTAINER)).map(String::as_str);
    let has = |name: &&str| containers.iter().any(|container| container.name == **name);
    match wanted {
        Some(name) => Some(name).filter(has).map(str::to_owned),
        None => noted.filter(has).map(str::to_owned).or_else(|| containers.first().map(|one| one.name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_sandbox::Config;
    use crate::bootstrap;
    use crate::cluster::Cluster;
    use serde_json::json;

    #[tokio::test]
    async fn podbayd_is_started_as_the_settings_say() {
        let spec = json!({"containers": [{"name": "runtime"}]});
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).unwrap();
        let started = |config: Config| {
            let provider = AgentSandbox::new(&Cluster::without_api("agents"), config).unwrap();
            // After the script and its name come its arguments.
            bootstrap::command(provider.exec_channel(&pod).unwrap().launch()).split_off(4)
        };
        assert_eq!(started(Config::default()), [""]);
        let config = Config { workdir: Some("/data".into()), command_filter: false, ..Config::default() };
        assert_eq!(started(config), ["/data", "--no-command-filter"]);
    }

    #[test]
    fn the_container_is_the_one_that_is_asked_for_or_the_pods_default() {
        let pod = |annotations: serde_json::Value| -> Pod {
            let spec = json!({"containers": [{"name": "proxy"}, {"name": "runtime"}]});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap()
        };
        assert_eq!(default_container(&pod(json!({})), None).as_deref(), Some("proxy"));
        let noted = pod(json!({DEFAULT_CONTAINER: "runtime"}));
        assert_eq!(default_container(&noted, None).as_deref(), Some("runtime"));
        assert_eq!(default_container(&noted, Some("proxy")).as_deref(), Some("proxy"));
        assert_eq!(default_container(&noted, Some("nope")), None);
    }
}
