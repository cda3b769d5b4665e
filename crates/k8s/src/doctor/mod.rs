//! Finds out whether sandboxes work on a cluster and are protected as they should be, and says how to get there.
//!
//! Everything that can be tried is tried. Nothing is left behind: the pods of a trial are deleted, and end by themselves
//! where that fails.

mod address;
mod agent_sandbox;
mod channels;
mod ports;
mod protection;
mod raw;
mod report;
mod rights;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Listed, Pending, Phase, Provider, Query};

pub use report::{CHECKS, CheckState, DoctorReport, Finding};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::rights::ModeNeeds;

/// What two of the checks look for.
const LEFTOVERS: &str = "expired sandboxes";
const LIFETIMES: &str = "sandboxes without a lifetime";

/// How thorough the examination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Everything is tried.
    #[default]
    Full,
    /// Starts no pods, so neither the image nor the network is tried.
    Quick,
}

/// What else is tried in agent-sandbox mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trial {
    /// How long each connection is held open, to find out whether something cuts it.
    pub hold: Option<Duration>,
    /// A sandbox that exists, to be tried instead of a new one.
    pub sandbox: Option<String>,
}

/// A mode of sandboxes on a cluster, as the doctor examines it.
pub trait Examined: Send + Sync {
    /// What the mode needs on the cluster.
    fn needs(&self) -> &ModeNeeds;

    /// The mode's sandboxes.
    fn provider(&self) -> &dyn Provider;

    /// Whether the cluster has what the mode requires.
    fn installation(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// What can be found out where the cluster's API isn't used; nothing where it is.
    fn without_api(&self) -> Option<Pending<'_, Vec<Finding>>> {
        None
    }

    /// Selects the pods of the namespace that don't belong to sandboxes.
    fn other_pods(&self) -> String;

    /// Whether new sandboxes would have neither a `ttl` nor an `idle_ttl`.
    fn is_unlimited(&self) -> bool;

    /// Whether the cluster would admit a sandbox. Nothing is created.
    fn admission(&self) -> Pending<'_, Finding>;

    /// Starts short-lived sandboxes, tries what they can do, and removes them.
    fn trial(&self) -> Pending<'_, Vec<Finding>>;

    /// Removes the sandboxes of a trial, also of one that was cut short.
    fn clean_up(&self) -> Pending<'_, ()>;
}

/// Examines a cluster.
pub struct Doctor {
    cluster: Cluster,
    mode: Box<dyn Examined>,
}

impl std::fmt::Debug for Doctor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doctor").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Doctor {
    /// Examines a cluster for a mode. The cluster isn't asked yet.
    pub fn of(cluster: Cluster, mode: Box<dyn Examined>) -> Self {
        Self { cluster, mode }
    }

    /// Examines a cluster for raw mode with this configuration. The cluster isn't asked yet.
    ///
    /// # Errors
    /// When the configuration can't work.
    pub fn raw(cluster: Cluster, config: crate::raw::Config) -> Result<Self> {
        let mode = Box::new(raw::RawExamination::new(cluster.clone(), config)?);
        Ok(Self::of(cluster, mode))
    }

    /// Examines a cluster for agent-sandbox mode with this configuration. The cluster isn't asked yet.
    ///
    /// # Errors
    /// When the configuration can't work.
    pub fn agent_sandbox(cluster: Cluster, config: crate::agent_sandbox::Config) -> Result<Self> {
        Self::agent_sandbox_with(cluster, config, Trial::default())
    }

    /// Like [`agent_sandbox`](Self::agent_sandbox), with further trials.
    ///
    /// # Errors
    /// When the configuration can't work.
    pub fn agent_sandbox_with(cluster: Cluster, config: crate::agent_sandbox::Config, trial: Trial) -> Result<Self> {
        let mode = Box::new(agent_sandbox::AgentSandboxExamination::new(cluster.clone(), config, trial)?);
        Ok(Self::of(cluster, mode))
    }

    /// Examines everything.
    pub async fn examine(&self, depth: Depth) -> DoctorReport {
        if let Some(examined) = self.mode.without_api() {
            let failed = |error: podbay_client::Error| {
                vec![Finding::new("channel", "the router", CheckState::Failed, error.to_string())]
            };
            return self.report(examined.await.unwrap_or_else(failed));
        }
        let mut findings = vec![self.reached().await];
        if findings[0].state == CheckState::Ok {
            let account = rights::account(&self.cluster).await;
            let who = account.detail.clone();
            findings.push(account);
            findings.push(self.namespace().await);
            findings.extend(self.mode.installation().await.unwrap_or_else(|error| {
                vec![Finding::new("crds", "what the mode requires", CheckState::Warning, error.to_string())]
            }));
            findings.extend(rights::granted(&self.cluster, self.mode.needs(), &who).await);
            findings.push(rights::excess(&self.cluster, self.mode.needs().mode).await);
            let may_list =
                !findings.iter().any(|finding| finding.check == "rights" && finding.state == CheckState::Failed);
            if may_list {
                findings.push(self.neighbours().await);
                findings.extend(self.sandboxes().await);
                findings.push(self.mode.admission().await.unwrap_or_else(|error| {
                    Finding::new("admission", "admission of such a pod", CheckState::Warning, error.to_string())
                }));
            }
            // After a failure each of these would fail for the same reason.
            let hopeless = findings.iter().any(|finding| finding.state == CheckState::Failed);
            match (depth, hopeless) {
                (Depth::Full, false) => match self.mode.trial().await {
                    Ok(tried) => findings.extend(tried),
                    Err(error) => {
                        findings.push(Finding::new(
                            "start",
                            "starting a sandbox",
                            CheckState::Failed,
                            error.to_string(),
                        ));
                    }
                },
                (depth, _) => {
                    let asked = depth == Depth::Full;
                    let why = if asked { "skipped: fix the failures above first" } else { "not requested" };
                    findings.push(Finding::new("start", "starting a sandbox", CheckState::Skipped, why));
                    findings.push(Finding::new("network", "network rules", CheckState::Skipped, why));
                }
            }
        }
        self.report(findings)
    }

    fn report(&self, findings: Vec<Finding>) -> DoctorReport {
        let usable = findings.iter().all(|finding| finding.state != CheckState::Failed);
        DoctorReport { usable, namespace: self.cluster.namespace.clone(), findings }
    }

    /// Removes what a trial has created, even one that was interrupted.
    ///
    /// # Errors
    /// When something is left.
    pub async fn clean_up(&self) -> Result<(), podbay_client::Error> {
        self.mode.clean_up().await
    }

    async fn reached(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("cluster", "the cluster", state, detail);
        match self.cluster.client.apiserver_version().await {
            Ok(version) => finding(CheckState::Ok, format!("answers; Kubernetes {}", version.git_version)),
            Err(error) => {
                let fix = match Error::code(&error) {
                    Some(401) => {
                        "the cluster doesn't know this account: log in again, or create a new token (kubectl create \
                         token)"
                    }
                    Some(403) => "this account may not even read the version: use another one",
                    _ => {
                        "check the kubeconfig, its context (--kubeconfig, --context) and the network: 'kubectl \
                         version' has to answer"
                    }
                };
                finding(CheckState::Failed, Error::api("report its version")(error).to_string()).fix(fix)
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
                    Some(level) => finding(CheckState::Ok, format!("exists; Pod Security: {level}")),
                    None => {
                        finding(CheckState::Warning, "exists; no Pod Security level is enforced for its pods".into())
                            .fix(format!(
                                "kubectl label namespace {name} pod-security.kubernetes.io/enforce=restricted"
                            ))
                    }
                }
            }
            Ok(None) => finding(CheckState::Failed, "doesn't exist".into())
                .fix(format!("podbay install {} --namespace {name} | kubectl apply -f -", self.mode.needs().mode)),
            // An account with few rights can't read namespaces, and doesn't need to.
            Err(error) if Error::code(&error) == Some(403) => {
                finding(CheckState::Skipped, "this account may not read namespaces, which is fine".into())
            }
            Err(error) => finding(CheckState::Warning, Error::api("get the namespace")(error).to_string()),
        }
    }

    /// Whoever may exec into one pod of a namespace may exec into all.
    async fn neighbours(&self) -> Finding {
        let finding = |state, detail: String| Finding::new("neighbours", "other pods in the namespace", state, detail);
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let others = ListParams::default().labels(&self.mode.other_pods()).limit(100);
        match pods.list(&others).await {
            Ok(list) if list.items.is_empty() => finding(CheckState::Ok, "none".into()),
            Ok(list) => {
                let names: Vec<&str> =
                    list.items.iter().filter_map(|pod| pod.metadata.name.as_deref()).take(3).collect();
                let more = if list.items.len() > names.len() { ", …" } else { "" };
                finding(
                    CheckState::Warning,
                    format!(
                        "{} that aren't Podbay's ({}{more}): this account may run commands in them too",
                        list.items.len(),
                        names.join(", ")
                    ),
                )
                .fix(format!(
                    "give sandboxes a namespace of their own: podbay install {} | kubectl apply -f -, then --namespace \
                     podbay-sandboxes",
                    self.mode.needs().mode
                ))
            }
            Err(error) => finding(CheckState::Warning, Error::api("list the pods")(error).to_string()),
        }
    }

    /// Sandboxes that have ended and weren't removed, and those that would stay forever.
    async fn sandboxes(&self) -> Vec<Finding> {
        let listed = async {
            let (mut all, mut query) = (Vec::new(), Query::default());
            loop {
                let page = self.mode.provider().list(&query).await?;
                all.extend(page.sandboxes);
                match page.cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => return Ok::<_, podbay_client::Error>((all, self.cluster.now().await?.as_millisecond())),
                }
            }
        };
        match listed.await {
            Ok((all, now)) => vec![self.leftovers(&all, now), self.lifetimes(&all)],
            Err(error) => {
                let finding = |check, what: &str| Finding::new(check, what, CheckState::Warning, error.to_string());
                vec![finding("leftovers", LEFTOVERS), finding("lifetimes", LIFETIMES)]
            }
        }
    }

    fn lifetimes(&self, all: &[Listed]) -> Finding {
        let reap = format!("podbay reap --mode {} --namespace {}", self.mode.needs().mode, self.cluster.namespace);
        lifetimes(all, self.mode.is_unlimited(), &reap)
    }

    fn leftovers(&self, all: &[Listed], now: i64) -> Finding {
        let finding = |state, detail: String| Finding::new("leftovers", LEFTOVERS, state, detail);
        let mode = self.mode.needs().mode;
        let over = |end: u64| i64::try_from(end).is_ok_and(|end| end <= now);
        let left = all.iter().filter(|one| one.phase == Phase::Terminated || one.expires_ms.is_some_and(over)).count();
        match left {
            0 => finding(CheckState::Ok, format!("none, of {}", all.len())),
            _ => finding(CheckState::Warning, format!("{left} of {} have expired and weren't removed", all.len())).fix(
                format!(
                    "podbay reap --mode {mode} --namespace {}; for good: podbay install {mode} --reaper-image IMAGE | \
                 kubectl apply -f -",
                    self.cluster.namespace
                ),
            ),
        }
    }
}

/// What would stay forever, among the sandboxes that exist and those to come.
fn lifetimes(all: &[Listed], unlimited: bool, reap: &str) -> Finding {
    let finding = |state, detail: String| Finding::new("lifetimes", LIFETIMES, state, detail);
    let stays = |one: &&Listed| one.expires_ms.is_none() && matches!(one.phase, Phase::Running | Phase::Pending);
    // Pods that wait in a pool end with the pool.
    let ids: Vec<&str> =
        all.iter().filter(stays).filter(|one| one.active_ms.is_some()).map(|one| one.id.as_str()).collect();
    let fix = format!(
        "set idle_ttl (a day by default) or ttl for new ones; end old ones with 'podbay delete ID' or '{reap} --idle \
         24h'"
    );
    match (ids.len(), unlimited) {
        (0, false) => finding(CheckState::Ok, "none: each has a ttl or an idle_ttl".into()),
        (0, true) => finding(
            CheckState::Warning,
            "none yet, but new sandboxes would never expire: ttl and idle_ttl are both none".into(),
        )
        .fix(fix),
        (count, _) => {
            let shown = ids.iter().take(3).copied().collect::<Vec<_>>().join(", ");
            let more = if count > 3 { ", …" } else { "" };
            let detail = format!("{count} with neither a ttl nor an idle_ttl ({shown}{more})");
            finding(CheckState::Warning, detail).fix(fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `doctor` didn't say that sandboxes without limits stay forever.
    #[test]
    fn what_would_stay_for_ever_is_found() {
        let one = |id: &str, expires_ms, active_ms| Listed {
            id: id.into(),
            namespace: None,
            labels: Default::default(),
            phase: Phase::Running,
            created_ms: 0,
            active_ms,
            expires_ms,
            ttl_ms: None,
            idle_ttl_ms: None,
        };
        // A pod that waits in a pool ends with the pool.
        let fine = [one("pb-1", Some(5), Some(1)), one("pb-warm", None, None)];
        assert_eq!(lifetimes(&fine, false, "podbay reap").state, CheckState::Ok);
        let found = lifetimes(&fine, true, "podbay reap");
        assert!(found.state == CheckState::Warning && found.fix.is_some(), "{found:?}");
        let found = lifetimes(&[one("pb-2", None, Some(1))], false, "podbay reap");
        assert!(found.state == CheckState::Warning && found.detail.contains("pb-2"), "{found:?}");
    }
}
