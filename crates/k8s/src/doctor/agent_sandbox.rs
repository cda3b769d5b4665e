//! What the doctor examines in agent-sandbox mode only: CRDs, controller, template, pool, and a sandbox by claim.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Pending, Provider, Wanted};
use podbay_proto::layout::listen_env;

use super::address::RunningPod;
use super::channels::{Channels, SandboxLocation};
use super::ports::ports;
use super::protection::protection;
use super::report::{CheckState, Finding};
use super::{Examined, ModeNeeds, Trial};
use crate::agent_sandbox::claims::refused;
use crate::agent_sandbox::resources::{EXTENSIONS_GROUP, SANDBOXES_GROUP, SandboxTemplate, SandboxWarmPool, VERSION};
use crate::agent_sandbox::{AgentSandbox, Config, Features};
use crate::channel::in_cluster::PodAddresses;
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
    trial: Trial,
    /// The id of the trial's sandbox.
    id: String,
}

impl AgentSandboxExamination {
    pub(super) fn new(cluster: Cluster, config: Config, trial: Trial) -> Result<Self> {
        let provider = AgentSandbox::new(&cluster, config.clone())?;
        let needs = Features::of(&config).needs();
        let id = format!("pb-doctor-{:08x}", rand::random::<u32>());
        Ok(Self { cluster, config, provider, needs, trial, id })
    }

    /// What a client without rights can find out: whether the router answers, and whether it leads to a sandbox that is named.
    async fn by_router_alone(&self) -> Vec<Finding> {
        let why = "not used: agent_sandbox.router_only is set, or there is neither a kubeconfig nor a service account";
        let mut findings = vec![Finding::new("cluster", "the cluster's API", CheckState::Skipped, why)];
        let finding = |state, detail: String| Finding::new("channel", "the router", state, detail);
        let addresses = match PodAddresses::new(&self.cluster, self.config.addresses()) {
            Ok(Some(addresses)) => addresses,
            Ok(None) => return vec![finding(CheckState::Failed, "cluster.private_key_file isn't set".into())],
            Err(error) => return vec![finding(CheckState::Failed, error.to_string())],
        };
        match addresses.greet_router().await {
            Ok(place) => findings.push(finding(CheckState::Ok, format!("{place} answers"))),
            Err(why) => {
                let fix = "check agent_sandbox.router_url and what is between here and the router";
                findings.push(finding(CheckState::Failed, why).fix(fix));
                return findings;
            }
        }
        let what = "connection direct";
        match &self.trial.sandbox {
            Some(id) => match self.provider.name_of(id) {
                Ok(sandbox) => findings.extend(self.channels(SandboxLocation::Named(sandbox)).findings().await),
                Err(error) => findings.push(Finding::new("channel", what, CheckState::Failed, error.to_string())),
            },
            None => {
                let why = "no sandbox was named, and none can be created without the cluster's API";
                let fix = "podbay doctor --sandbox NAME tries one that exists";
                findings.push(Finding::new("channel", what, CheckState::Skipped, why).fix(fix));
            }
        }
        findings
    }

    fn channels(&self, location: SandboxLocation) -> Channels<'_> {
        Channels { cluster: &self.cluster, config: &self.config, location, hold: self.trial.hold }
    }

    /// Tries every connection to a sandbox that is running.
    async fn connections(&self, id: &str) -> Vec<Finding> {
        match self.provider.container_of(id).await {
            Ok((container, ip)) => self.channels(SandboxLocation::Pod(RunningPod { container, ip })).findings().await,
            Err(error) => vec![Finding::new("channel", "connections", CheckState::Failed, error.to_string())],
        }
    }

    /// Whether the cluster serves the kinds, in the version that Podbay speaks.
    async fn crds(&self) -> Vec<Finding> {
        match self.cluster.client.list_api_groups().await {
            Ok(groups) => [SANDBOXES_GROUP, EXTENSIONS_GROUP].map(|group| served(&groups.groups, group)).into(),
            Err(error) => {
                let detail = Error::api("list the API groups")(error).to_string();
                vec![Finding::new("crds", "the API groups", CheckState::Warning, detail)]
            }
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
                return finding(CheckState::Skipped, why);
            }
            Err(error) => return finding(CheckState::Warning, Error::api("list deployments")(error).to_string()),
        };
        let is_controller =
            |one: &&Deployment| one.metadata.name.as_deref().is_some_and(|name| name.contains("controller"));
        let Some(found) = all.iter().find(is_controller) else {
            return finding(CheckState::Warning, format!("not found in {CONTROLLER_NAMESPACE}")).fix(INSTALL);
        };
        let pod = found.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let image = pod.and_then(|pod| pod.containers.first()?.image.clone()).unwrap_or_default();
        let ready = found.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
        match ready {
            0 => finding(CheckState::Failed, format!("{image} isn't ready")).fix(format!(
                "kubectl -n {CONTROLLER_NAMESPACE} describe deployment {}",
                found.metadata.name.as_deref().unwrap_or_default()
            )),
            _ => finding(CheckState::Ok, format!("{ready} ready, image {image}")),
        }
    }

    /// The pool that sandboxes are claimed from, and its template.
    async fn pool(&self) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("pool", "the warm pool", state, detail);
        let name = match self.provider.pool_name().await {
            Ok(name) => name,
            Err(error @ Error::TemplateNotFound { .. }) => {
                let detail = error.to_string();
                return vec![Finding::new("template", "the template", CheckState::Failed, detail).fix(self.install())];
            }
            Err(error) => {
                let fix = match &error {
                    Error::CrdsMissing(_) => INSTALL.to_owned(),
                    _ => self.install(),
                };
                return vec![finding(CheckState::Failed, error.to_string()).fix(fix)];
            }
        };
        let pools: Api<SandboxWarmPool> = self.namespaced();
        let pool = match pools.get_opt(&name).await.map_err(refused("get the warm pool")) {
            Ok(Some(pool)) => pool,
            Ok(None) => {
                let detail = format!("no SandboxWarmPool {name} in namespace {}", self.cluster.namespace);
                return vec![finding(CheckState::Failed, detail).fix(self.install())];
            }
            Err(error) => return vec![finding(CheckState::Warning, error.to_string())],
        };
        let ready = pool.status.as_ref().map_or(0, |status| status.ready_replicas);
        let wanted = pool.spec.replicas;
        let pool_finding = match (wanted, ready) {
            (0, _) => finding(CheckState::Ok, format!("{name} keeps nothing ready: every sandbox starts cold")),
            (_, 0) => finding(CheckState::Warning, format!("{name} has none of {wanted} ready"))
                .fix(format!("kubectl -n {} describe sandboxwarmpool {name}", self.cluster.namespace)),
            _ => finding(CheckState::Ok, format!("{name} has {ready} of {wanted} ready")),
        };
        let mut findings = self.template(&pool.spec.sandbox_template_ref.name).await;
        findings.push(pool_finding);
        findings
    }

    /// The template, and the port that its network policy admits.
    async fn template(&self, name: &str) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("template", format!("template {name}"), state, detail);
        let templates: Api<SandboxTemplate> = self.namespaced();
        let template = match templates.get_opt(name).await {
            Ok(Some(template)) => template,
            Ok(None) => return vec![finding(CheckState::Failed, "doesn't exist".into()).fix(self.install())],
            Err(error) if Error::code(&error) == Some(403) => {
                return vec![finding(CheckState::Skipped, "this account may not read templates, which is fine".into())];
            }
            Err(error) => return vec![finding(CheckState::Warning, Error::api("get the template")(error).to_string())],
        };
        let pod = &template.spec["podTemplate"]["spec"];
        let class = pod["runtimeClassName"]
            .as_str()
            .map_or_else(|| "the node's default runtime".to_owned(), |class| format!("the runtime class {class}"));
        let examined = match weaknesses(&template.spec) {
            weak if weak.is_empty() => finding(CheckState::Ok, format!("exists; runs with {class}")),
            weak => finding(CheckState::Warning, format!("exists; runs with {class}; {}", weak.join("; ")))
                .fix("compare it with the template that 'podbay install agent-sandbox' prints, which has all of this"),
        };
        [Some(examined), ports(&template.spec, &self.config)].into_iter().flatten().collect()
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
            Ok(()) => finding(CheckState::Ok, "a dry run was accepted".into()),
            Err(error) => {
                finding(CheckState::Failed, error.to_string()).fix("correct the setting that the message names")
            }
        }
    }

    async fn try_sandbox(&self) -> Vec<Finding> {
        if let Some(id) = &self.trial.sandbox {
            return self.try_existing(id).await;
        }
        let mut findings = self.tried().await;
        if let Err(error) = self.provider.delete(&self.id).await {
            let detail = format!("can't remove the test sandbox: {error}");
            let fix = format!("it ends by itself after {} minutes", BACKSTOP.as_secs() / 60);
            findings.push(Finding::new("leftovers", super::LEFTOVERS, CheckState::Warning, detail).fix(fix));
        }
        findings
    }

    /// Tries a sandbox that exists, as the settings say and by every other connection.
    async fn try_existing(&self, id: &str) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("start", format!("the sandbox {id}"), state, detail);
        let answered = async { self.provider.reconnect(id).await?.sandbox.hello().await };
        if let Err(error) = answered.await {
            let failed = finding(CheckState::Failed, error.to_string());
            return vec![failed.fix("fix what the message names, then run the doctor again")];
        }
        let mut findings = vec![finding(CheckState::Ok, "answers".into())];
        findings.extend(self.connections(id).await);
        findings
    }

    async fn tried(&self) -> Vec<Finding> {
        let finding = |state, detail: String| Finding::new("start", "starting a sandbox", state, detail);
        let begun = Instant::now();
        let wanted = Wanted { id: Some(self.id.clone()), ttl: Some(BACKSTOP), ..Wanted::default() };
        let failed = |error: podbay_client::Error| {
            finding(CheckState::Failed, error.to_string()).fix("fix what the message names, then run the doctor again")
        };
        let made = match self.provider.get_or_create(&wanted).await {
            Ok(made) => made,
            Err(error) => return vec![failed(error)],
        };
        match made.sandbox.run("echo works").await {
            Ok(output) if output.text() == "works\n" => {
                let launch = made.launch.map_or("", |launch| launch.as_str());
                let detail = format!("the first command ran after {} ms ({launch})", begun.elapsed().as_millis());
                let mut findings = vec![finding(CheckState::Ok, detail), protection(&made.sandbox).await];
                findings.extend(self.connections(&self.id).await);
                findings
            }
            Ok(output) => vec![finding(CheckState::Failed, format!("'echo works' printed {:?}", output.text()))],
            Err(error) => vec![failed(error)],
        }
    }
}

/// Whether one of the groups is there, in the version that Podbay speaks.
fn served(groups: &[APIGroup], name: &str) -> Finding {
    let finding = |state, detail: String| Finding::new("crds", format!("API group {name}"), state, detail);
    let Some(group) = groups.iter().find(|group| group.name == name) else {
        return finding(CheckState::Failed, "the cluster doesn't have it".into()).fix(INSTALL);
    };
    let versions: Vec<&str> = group.versions.iter().map(|version| version.version.as_str()).collect();
    match versions.contains(&VERSION) {
        true => finding(CheckState::Ok, format!("serves {}", versions.join(", "))),
        false => finding(CheckState::Failed, format!("serves {}, not {VERSION}", versions.join(", ")))
            .fix("upgrade the controller to v0.5.0 or newer"),
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
    let open = |container: &serde_json::Value| {
        let mut env = container["env"].as_array().into_iter().flatten();
        env.any(|variable| variable["name"] == listen_env::RUNTIME_API && variable["value"] != "")
    };
    let checks = [
        (containers.iter().any(privileged), "a container is privileged"),
        (pod["automountServiceAccountToken"] == true, "the service account's token is mounted"),
        (!everywhere("/securityContext/runAsNonRoot", true.into()), "containers may run as root"),
        (
            !everywhere("/securityContext/allowPrivilegeEscalation", false.into()),
            "containers may gain privileges (allowPrivilegeEscalation)",
        ),
        (template["networkPolicyManagement"] == "Unmanaged", "the controller sets no network policy"),
        (
            containers.iter().any(open),
            "podbayd serves upstream's runtime API without authentication (PODBAYD_RUNTIME_API), to whoever the network policy \
             and the router admit",
        ),
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
            let mut findings = self.crds().await;
            if findings.iter().all(|finding| finding.state != CheckState::Failed) {
                findings.push(self.controller().await);
                findings.extend(self.pool().await);
            }
            Ok(findings)
        })
    }

    fn without_api(&self) -> Option<Pending<'_, Vec<Finding>>> {
        self.config.router_only.then(|| Box::pin(async { Ok(self.by_router_alone().await) }) as Pending<'_, _>)
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
        // Without the API nothing was created.
        Box::pin(async {
            match self.config.router_only {
                true => Ok(()),
                false => self.provider.delete(&self.id).await.map(drop),
            }
        })
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
                {"name": "a", "securityContext": {"privileged": true}, "env": [
                    {"name": "PODBAYD_RUNTIME_API", "value": "8888"},
                ]},
            ]}},
        });
        assert_eq!(weaknesses(&weak).len(), 6);
    }
}
