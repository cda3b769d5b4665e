//! Finds out whether sandboxes can be made on a cluster and are what they should be, and says how to get there.
//!
//! What can be tried is tried. Nothing stays: the pods of a trial are deleted, and end by themselves where that fails.

mod cluster;
mod report;
mod rights;
mod trial;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use podbay_client::provider::{Listed, Phase, Provider, Query};

pub use report::{CHECKS, Finding, Report, State};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::names::{MANAGED_BY, Marks, PODBAY};
use crate::raw::{Config, Raw, manifest};
use crate::rights::Features;

/// What two of the checks look for.
const LEFTOVERS: &str = "sandboxes that are over";
const LIFETIMES: &str = "sandboxes that would stay for ever";

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Everything is tried.
    #[default]
    Full,
    /// Only asks, and starts no pods: neither image nor network are tried.
    Quick,
}

/// Looks at a cluster with the eyes of raw mode.
#[derive(Debug)]
pub struct Doctor {
    cluster: Cluster,
    config: Config,
    /// Begins the ids of all sandboxes of the trial.
    id: String,
}

impl Doctor {
    /// A look at a cluster, as sandboxes with this configuration would be there. The cluster isn't asked yet.
    ///
    /// # Errors
    /// When the configuration can't work.
    pub fn new(cluster: Cluster, config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self { cluster, config, id: format!("pb-doctor-{:08x}", rand::random::<u32>()) })
    }

    /// Looks at everything.
    pub async fn examine(&self, depth: Depth) -> Report {
        let mut findings = vec![self.reached().await];
        if findings[0].state == State::Ok {
            let account = rights::account(&self.cluster).await;
            let features = Features::of(&self.config);
            let who = account.detail.clone();
            findings.push(account);
            findings.push(self.namespace().await);
            findings.extend(rights::granted(&self.cluster, features, &who).await);
            findings.push(rights::excess(&self.cluster).await);
            let may_list = !findings.iter().any(|finding| finding.check == "rights" && finding.state == State::Failed);
            if may_list {
                findings.push(self.neighbours().await);
                findings.extend(self.sandboxes().await);
                findings.push(self.admission().await);
            }
            // Each of these would fail for the same reason.
            let hopeless = findings.iter().any(|finding| finding.state == State::Failed);
            match (depth, hopeless) {
                (Depth::Full, false) => findings.extend(self.trial().await),
                (depth, _) => {
                    let asked = depth == Depth::Full;
                    let why = if asked { "left out: first mend what is above" } else { "not asked for" };
                    findings.push(Finding::new("start", "starting a sandbox", State::Skipped, why));
                    findings.push(Finding::new("network", "network rules", State::Skipped, why));
                }
            }
        }
        let usable = findings.iter().all(|finding| finding.state != State::Failed);
        Report { usable, namespace: self.cluster.namespace.clone(), findings }
    }

    /// Removes what a trial has made, also one that was cut short.
    ///
    /// # Errors
    /// When something stays.
    pub async fn clean_up(&self) -> Result<(), podbay_client::Error> {
        let raw = Raw::new(self.cluster.clone(), self.config.clone())?;
        for id in trial::NAMES.map(|name| self.sandbox_id(name)) {
            raw.delete(&id).await?;
        }
        Ok(())
    }

    fn sandbox_id(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    async fn reached(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("cluster", "the cluster", state, detail);
        match self.cluster.client.apiserver_version().await {
            Ok(version) => finding(State::Ok, format!("answers; Kubernetes {}", version.git_version)),
            Err(error) => {
                let fix = match Error::code(&error) {
                    Some(401) => {
                        "the cluster doesn't know this account: log in again, or take a new token (kubectl create token)"
                    }
                    Some(403) => "this account may not even ask for the version: use another one",
                    _ => {
                        "check the kubeconfig, its context (--kubeconfig, --context) and the network: 'kubectl version' has to answer"
                    }
                };
                finding(State::Failed, Error::api("tell its version")(error).to_string()).fix(fix)
            }
        }
    }

    async fn namespace(&self) -> Finding {
        let name = &self.cluster.namespace;
        let finding = |state, detail: String| Finding::new("namespace", format!("namespace {name}"), state, detail);
        let all: Api<Namespace> = Api::all(self.cluster.client.clone());
        match all.get_opt(name).await {
            Ok(Some(found)) => {
                let labels = found.metadata.labels.unwrap_or_default();
                match labels.get("pod-security.kubernetes.io/enforce") {
                    Some(level) => finding(State::Ok, format!("exists; Pod Security: {level}")),
                    None => finding(
                        State::Warning,
                        "exists; the cluster doesn't hold its pods to a Pod Security level".into(),
                    )
                    .fix(format!("kubectl label namespace {name} pod-security.kubernetes.io/enforce=restricted")),
                }
            }
            Ok(None) => finding(State::Failed, "there is none of that name".into())
                .fix(format!("podbay install raw --namespace {name} | kubectl apply -f -")),
            // An account with few rights can't look at namespaces, and needn't.
            Err(error) if Error::code(&error) == Some(403) => {
                finding(State::Skipped, "this account may not look at namespaces, which is fine".into())
            }
            Err(error) => finding(State::Warning, Error::api("get the namespace")(error).to_string()),
        }
    }

    /// Whoever may exec into one pod of a namespace may exec into all.
    async fn neighbours(&self) -> Finding {
        let finding =
            |state, detail: String| Finding::new("neighbours", "other pods beside the sandboxes", state, detail);
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let others = ListParams::default().labels(&format!("{MANAGED_BY}!={PODBAY}")).limit(100);
        match pods.list(&others).await {
            Ok(list) if list.items.is_empty() => finding(State::Ok, "none".into()),
            Ok(list) => {
                let names: Vec<&str> =
                    list.items.iter().filter_map(|pod| pod.metadata.name.as_deref()).take(3).collect();
                let more = if list.items.len() > names.len() { ", …" } else { "" };
                finding(
                    State::Warning,
                    format!(
                        "{} that aren't Podbay's ({}{more}): this account may run commands in them too",
                        list.items.len(),
                        names.join(", ")
                    ),
                )
                .fix("give sandboxes a namespace of their own: podbay install raw | kubectl apply -f -, then --namespace podbay-sandboxes")
            }
            Err(error) => finding(State::Warning, Error::api("list the pods")(error).to_string()),
        }
    }

    /// What is over and still there, and what would stay for ever.
    async fn sandboxes(&self) -> Vec<Finding> {
        let listed = async {
            let raw = Raw::new(self.cluster.clone(), self.config.clone())?;
            let (mut all, mut query) = (Vec::new(), Query::default());
            loop {
                let page = raw.list(&query).await?;
                all.extend(page.sandboxes);
                match page.cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => return Ok::<_, podbay_client::Error>(all),
                }
            }
        };
        match listed.await {
            Ok(all) => {
                let now = self.cluster.now().await.as_millisecond();
                vec![self.leftovers(&all, now), self.lifetimes(&all)]
            }
            Err(error) => {
                let finding = |check, what: &str| Finding::new(check, what, State::Warning, error.to_string());
                vec![finding("leftovers", LEFTOVERS), finding("lifetimes", LIFETIMES)]
            }
        }
    }

    fn leftovers(&self, all: &[Listed], now: i64) -> Finding {
        let finding = |state, detail: String| Finding::new("leftovers", LEFTOVERS, state, detail);
        let over = |end: u64| i64::try_from(end).is_ok_and(|end| end <= now);
        let left = all.iter().filter(|one| one.phase == Phase::Terminated || one.expires_ms.is_some_and(over)).count();
        match left {
            0 => finding(State::Ok, format!("none, of {}", all.len())),
            _ => finding(State::Warning, format!("{left} of {} are over and not removed", all.len())).fix(format!(
                "podbay reap --mode raw --namespace {}; for good: podbay install raw --reaper-image IMAGE | kubectl apply -f -",
                self.cluster.namespace
            )),
        }
    }

    fn lifetimes(&self, all: &[Listed]) -> Finding {
        let finding = |state, detail: String| Finding::new("lifetimes", LIFETIMES, state, detail);
        let stays = |one: &&Listed| one.expires_ms.is_none() && matches!(one.phase, Phase::Running | Phase::Pending);
        // Pods that wait in a pool end with the pool.
        let ids: Vec<&str> =
            all.iter().filter(stays).filter(|one| one.active_ms.is_some()).map(|one| one.id.as_str()).collect();
        let namespace = &self.cluster.namespace;
        let fix = format!(
            "set idle_ttl (a day unless set) or ttl for new ones; end old ones with 'podbay delete ID' or \
             'podbay reap --mode raw --namespace {namespace} --idle 24h'"
        );
        let unlimited = self.config.ttl.is_none() && self.config.idle_ttl.is_none();
        match (ids.len(), unlimited) {
            (0, false) => finding(State::Ok, "none: each has a ttl or an idle_ttl".into()),
            (0, true) => {
                finding(State::Warning, "none yet, but new ones would: ttl and idle_ttl are both none".into()).fix(fix)
            }
            (count, _) => {
                let shown = ids.iter().take(3).copied().collect::<Vec<_>>().join(", ");
                let more = if count > 3 { ", …" } else { "" };
                let detail = format!("{count} with neither a ttl nor an idle_ttl ({shown}{more})");
                finding(State::Warning, detail).fix(fix)
            }
        }
    }

    /// What admits pods, quotas and webhooks included, is asked without making one.
    async fn admission(&self) -> Finding {
        let finding =
            |state, detail: String| Finding::new("admission", "whether such a pod is admitted", state, detail);
        let rehearsed = async {
            let marks = Marks::new(&self.id, &self.config.label_prefix, &self.config.default_labels)?;
            let mut pod = manifest::pod(&self.config, &self.id, &marks, Default::default(), None, self.config.ttl)?;
            // There is no Lease that it could belong to.
            pod.metadata.owner_references = None;
            let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
            let parameters = PostParams { dry_run: true, ..PostParams::default() };
            pods.create(&parameters, &pod).await.map(drop).map_err(Error::api("admit a sandbox's pod"))
        };
        match rehearsed.await {
            Ok(()) => finding(State::Ok, "yes".into()),
            Err(error) => {
                let text = error.to_string();
                let fix = if text.contains("PodSecurity") {
                    "the namespace's Pod Security level forbids it: take back the setting that it names, or lower the level (podbay install raw --pod-security baseline)"
                } else if text.contains("quota") {
                    "the namespace's quota is used up: raise it, delete sandboxes, or ask for less (raw.cpu_request, raw.memory_request)"
                } else if text.contains("RuntimeClass") {
                    "name a runtime class that there is (kubectl get runtimeclass), or leave --runtime-class out"
                } else if text.contains("serviceaccount") {
                    "name a service account that there is (kubectl get serviceaccount), or leave --service-account out"
                } else {
                    "change the setting that it names ('podbay config' shows them), or ask whoever runs the cluster"
                };
                finding(State::Failed, text).fix(fix)
            }
        }
    }
}

/// What belongs to a trial, for whoever finds it.
pub(crate) fn labels() -> std::collections::BTreeMap<String, String> {
    [("purpose".to_owned(), "doctor".to_owned())].into()
}
