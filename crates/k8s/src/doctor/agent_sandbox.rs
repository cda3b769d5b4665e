//! What the doctor examines in agent-sandbox mode only: CRDs, controller, template, pool, and a sandbox by claim.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Pending, Provider, Wanted};

use super::protection::protection;
use super::report::{Finding, State};
use super::{Examined, ModeNeeds};
use crate::agent_sandbox::claims::refused;
use crate::agent_sandbox::resources::{EXTENSIONS_GROUP, SANDBOXES_GROUP, SandboxTemplate, SandboxWarmPool, VERSION};
use crate::agent_sandbox::{AgentSandbox, Config, Features};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// Where upstream's manifests put the controller.
const CONTROLLER_NAMESPACE: &str = "agent-sandbox-system";

/// How long the sandbox of a trial lives if nobody deletes it.
const BACKSTOP: Duration = Duration::from_secs(600);

/// What to install, in one sentence.
const INSTALL: &str = "apply upstream's release manifests of the controller and its extensions: docs/agent-sandbox.md says \
                       which";

/// Examines a cluster for agent-sandbox mode.
pub(super) struct AgentSandboxExamination {
    cluster: Cluster,
    config: Config,
    provider: AgentSandbox,
    needs: ModeNeeds,
    /// The id of the trial's sandbox.
    id: String,
}

impl AgentSandboxExamination {
    pub(super) fn new(cluster: Cluster, config: Config) -> Result<Self> {
        let provider = AgentSandbox::new(&cluster, config.clone())?;
        let needs = Features::of(&config).needs();
        Ok(Self { cluster, config, provider, needs, id: format!("pb-doctor-{:08x}", rand::random::<u32>()) })
    }

    /// Whether the cluster serves the kinds, in the version that Podbay speaks.
    async fn crds(&self, group: &'static str) -> Finding {
        let finding = |state, detail: String| Finding::new("crds", format!("API group {group}"), state, detail);
        match self.cluster.client.list_api_groups().await {
            Ok(groups) => match groups.groups.into_iter().find(|found| found.name == group) {
                None => finding(State::Failed, "the cluster doesn't have it".into()).fix(INSTALL),
                Some(found) => {
                    let served: Vec<String> = found.versions.into_iter().map(|version| version.version).collect();
                    match served.iter().any(|version| version == VERSION) {
                        true => finding(State::Ok, format!("serves {}", served.join(", "))),
                        false => finding(State::Failed, format!("serves {}, not {VERSION}", served.join(", ")))
                            .fix("upgrade the controller to v0.5.0 or newer; v1.0.0 or newer is recommended"),
                    }
                }
            },
            Err(error) => finding(State::Warning, Error::api("list the API groups")(error).to_string()),
        }
    }

    /// Whether the controller runs, and in which version. Few accounts may see that; the trial shows it as well.
    async fn controller(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("controller", "the controller", state, detail);
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client.clone(), CONTROLLER_NAMESPACE);
        let all = match deployments.list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(error) if Error::code(&error) == Some(403) => {
                let why = format!("this account may not look into {CONTROLLER_NAMESPACE}, which is fine");
                return finding(State::Skipped, why);
            }
            Err(error) => return finding(State::Warning, Error::api("list deployments")(error).to_string()),
        };
        let is_controller =
            |one: &&Deployment| one.metadata.name.as_deref().is_some_and(|name| name.contains("controller"));
        let Some(found) = all.iter().find(is_controller) else {
            return finding(State::Warning, format!("not found in {CONTROLLER_NAMESPACE}")).fix(INSTALL);
        };
        let pod = found.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let image = pod.and_then(|pod| pod.containers.first()?.image.clone()).unwrap_or_default();
        let ready = found.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
        match ready {
            0 => finding(State::Failed, format!("{image} isn't ready")).fix(format!(
                "kubectl -n {CONTROLLER_NAMESPACE} describe deployment {}",
                found.metadata.name.as_deref().unwrap_or_default()
            )),
            _ => finding(State::Ok, format!("{ready} ready, image {image}")),
        }
    }

    /// The pool that sandboxes are claimed from, and its template.
    async fn pool(&self) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("pool", "the warm pool", state, detail);
        let name = match self.provider.pool_name().await {
            Ok(name) => name,
            Err(error @ Error::TemplateNotFound { .. }) => {
                let detail = error.to_string();
                return vec![Finding::new("template", "the template", State::Failed, detail).fix(self.install())];
            }
            Err(error) => {
                let fix = match &error {
                    Error::CrdsMissing(_) => INSTALL.to_owned(),
                    _ => self.install(),
                };
                return vec![finding(State::Failed, error.to_string()).fix(fix)];
            }
        };
        let pools: Api<SandboxWarmPool> = self.namespaced();
        let pool = match pools.get_opt(&name).await.map_err(refused("get the warm pool")) {
            Ok(Some(pool)) => pool,
            Ok(None) => {
                let detail = format!("no SandboxWarmPool {name} in namespace {}", self.cluster.namespace);
                return vec![finding(State::Failed, detail).fix(self.install())];
            }
            Err(error) => return vec![finding(State::Warning, error.to_string())],
        };
        let ready = pool.status.as_ref().map_or(0, |status| status.ready_replicas);
        let wanted = pool.spec.replicas;
        let pool_finding = match (wanted, ready) {
            (0, _) => finding(State::Ok, format!("{name} keeps nothing ready: every sandbox starts cold")),
            (_, 0) => finding(State::Warning, format!("{name} has none of {wanted} ready"))
                .fix(format!("kubectl -n {} describe sandboxwarmpool {name}", self.cluster.namespace)),
            _ => finding(State::Ok, format!("{name} has {ready} of {wanted} ready")),
        };
        vec![self.template(&pool.spec.sandbox_template_ref.name).await, pool_finding]
    }

    async fn template(&self, name: &str) -> Finding {
        let finding = |state, detail: String| Finding::new("template", format!("template {name}"), state, detail);
        let templates: Api<SandboxTemplate> = self.namespaced();
        let template = match templates.get_opt(name).await {
            Ok(Some(template)) => template,
            Ok(None) => return finding(State::Failed, "doesn't exist".into()).fix(self.install()),
            Err(error) if Error::code(&error) == Some(403) => {
                return finding(State::Skipped, "this account may not read templates, which is fine".into());
            }
            Err(error) => return finding(State::Warning, Error::api("get the template")(error).to_string()),
        };
        let pod = &template.spec["podTemplate"]["spec"];
        let class = pod["runtimeClassName"]
            .as_str()
            .map_or_else(|| "the node's default runtime".to_owned(), |class| format!("the runtime class {class}"));
        match weaknesses(&template.spec) {
            weak if weak.is_empty() => finding(State::Ok, format!("exists; runs with {class}")),
            weak => finding(State::Warning, format!("exists; runs with {class}; {}", weak.join("; ")))
                .fix("compare it with the template that 'podbay install agent-sandbox' prints, which has all of this"),
        }
    }

    fn install(&self) -> String {
        format!("podbay install agent-sandbox --namespace {} | kubectl apply -f -", self.cluster.namespace)
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace)
    }

    async fn rehearse_admission(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("admission", "admission of such a claim", state, detail);
        match self.provider.rehearse().await {
            Ok(()) => finding(State::Ok, "a dry run was accepted".into()),
            Err(error) => finding(State::Failed, error.to_string()).fix("change what the message names"),
        }
    }

    async fn try_sandbox(&self) -> Vec<Finding> {
        let mut findings = self.tried().await;
        if let Err(error) = self.provider.delete(&self.id).await {
            let detail = format!("can't remove that of this trial: {error}");
            let fix = format!("it ends by itself after {} minutes", BACKSTOP.as_secs() / 60);
            findings.push(Finding::new("leftovers", super::LEFTOVERS, State::Warning, detail).fix(fix));
        }
        findings
    }

    async fn tried(&self) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("start", "starting a sandbox", state, detail);
        let begun = Instant::now();
        let wanted = Wanted { id: Some(self.id.clone()), ttl: Some(BACKSTOP), ..Wanted::default() };
        let failed = |error: podbay_client::Error| {
            finding(State::Failed, error.to_string()).fix("fix what the message names, then run the doctor again")
        };
        let made = match self.provider.get_or_create(&wanted).await {
            Ok(made) => made,
            Err(error) => return vec![failed(error)],
        };
        match made.sandbox.run("echo works").await {
            Ok(output) if output.text() == "works\n" => {
                let launch = made.launch.map_or("", |launch| launch.as_str());
                let detail = format!("the first command ran after {} ms ({launch})", begun.elapsed().as_millis());
                vec![finding(State::Ok, detail), protection(&made.sandbox).await]
            }
            Ok(output) => vec![finding(State::Failed, format!("'echo works' printed {:?}", output.text()))],
            Err(error) => vec![failed(error)],
        }
    }
}

/// What a template leaves open.
fn weaknesses(template: &serde_json::Value) -> Vec<&'static str> {
    let pod = &template["podTemplate"]["spec"];
    let containers = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let everywhere = |pointer: &str, value: serde_json::Value| {
        let own = |container: &serde_json::Value| container.pointer(pointer).cloned();
        containers
            .iter()
            .all(|container| own(container).or_else(|| pod.pointer(pointer).cloned()) == Some(value.clone()))
    };
    let privileged = |container: &serde_json::Value| container["securityContext"]["privileged"] == true;
    let checks = [
        (containers.iter().any(privileged), "a container is privileged"),
        (pod["automountServiceAccountToken"] == true, "the service account's token is mounted"),
        (!everywhere("/securityContext/runAsNonRoot", true.into()), "containers may run as root"),
        (
            !everywhere("/securityContext/allowPrivilegeEscalation", false.into()),
            "containers may gain privileges (allowPrivilegeEscalation)",
        ),
        (template["networkPolicyManagement"] == "Unmanaged", "the controller sets no network policy"),
    ];
    checks.into_iter().filter(|(found, _)| *found).map(|(_, what)| what).collect()
}

impl Examined for AgentSandboxExamination {
    fn needs(&self) -> &ModeNeeds {
        &self.needs
    }

    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn installation(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async {
            let mut findings = vec![self.crds(SANDBOXES_GROUP).await, self.crds(EXTENSIONS_GROUP).await];
            if findings.iter().all(|finding| finding.state != State::Failed) {
                findings.push(self.controller().await);
                findings.extend(self.pool().await);
            }
            Ok(findings)
        })
    }

    fn other_pods(&self) -> String {
        "!agents.x-k8s.io/sandbox-name-hash".to_owned()
    }

    fn is_unlimited(&self) -> bool {
        self.config.ttl.is_none() && self.config.idle_ttl.is_none()
    }

    fn admission(&self) -> Pending<'_, Finding> {
        Box::pin(async { Ok(self.rehearse_admission().await) })
    }

    fn trial(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async { Ok(self.try_sandbox().await) })
    }

    fn clean_up(&self) -> Pending<'_, ()> {
        Box::pin(async { self.provider.delete(&self.id).await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_templates_weaknesses_are_named() {
        let strong = json!({"podTemplate": {"spec": {
            "securityContext": {"runAsNonRoot": true},
            "containers": [{"name": "a", "securityContext": {"allowPrivilegeEscalation": false}}],
        }}});
        assert!(weaknesses(&strong).is_empty(), "{:?}", weaknesses(&strong));
        let weak = json!({
            "networkPolicyManagement": "Unmanaged",
            "podTemplate": {"spec": {"automountServiceAccountToken": true, "containers": [
                {"name": "a", "securityContext": {"privileged": true}},
            ]}},
        });
        assert_eq!(weaknesses(&weak).len(), 5);
    }
}
