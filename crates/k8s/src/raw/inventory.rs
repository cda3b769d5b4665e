//! Lists the sandboxes of raw mode, and the pods that wait to become some.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Listed, Page, Phase, Query, Stats};

use super::Raw;
use super::lease::{self, Holder};
use super::manifest::CONTAINER;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::inventory::{self, page_error, page_parameters, selector};
use crate::lifetime::millis;
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE, WARM};
use crate::pod::health::ending;

/// How many sandboxes a page has by default, and at most: their names have to fit into one request.
const PAGE: usize = 100;

/// What a cursor begins with: it is in the list of sandboxes, or in that of waiting pods. The rest is the API server's.
const SANDBOXES: &str = "s:";
const WAITING: &str = "w:";

impl Raw {
    /// One page: first the sandboxes, then the pods that wait to become some.
    pub(super) async fn page(&self, query: &Query) -> Result<Page> {
        let pooled = !self.config.namespace_per_sandbox;
        // Waiting pods are warm or pending, and sandboxes are never warm.
        let skip = query.phase == Some(Phase::Warm) && pooled;
        let waiting = pooled && matches!(query.phase, None | Some(Phase::Warm | Phase::Pending));
        let mut limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE);
        let mut page = Page::default();
        let cursor = query.cursor.as_deref().unwrap_or(if skip { WAITING } else { SANDBOXES });
        let mut rest = match cursor.strip_prefix(SANDBOXES) {
            Some(token) => {
                let (leases, next) = self.leases(&query.labels, limit, token).await?;
                let (pods, now) = (self.pods_of(&leases).await?, self.home.cluster.now().await?);
                page.sandboxes.extend(leases.iter().filter_map(|lease| self.listed(lease, &pods, now)));
                limit -= leases.len().min(limit);
                match next {
                    Some(next) => {
                        page.cursor = Some(format!("{SANDBOXES}{next}"));
                        None
                    }
                    None => Some(String::new()),
                }
            }
            None => {
                let token = cursor.strip_prefix(WAITING).ok_or(Error::Cursor("isn't one of this mode"))?;
                Some(token.to_owned())
            }
        };
        if let Some(token) = rest.take().filter(|_| waiting) {
            page.cursor = match limit {
                // There may be none; the next page shows that.
                0 => Some(format!("{WAITING}{token}")),
                _ => {
                    let (pods, next) = self.waiting_pods(&query.labels, limit, &token).await?;
                    page.sandboxes.extend(pods.iter().filter_map(|pod| self.listed_pod(pod)));
                    next.map(|next| format!("{WAITING}{next}"))
                }
            };
        }
        page.sandboxes.retain(|listed| query.phase.is_none_or(|phase| phase == listed.phase));
        page.sandboxes.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(page)
    }

    /// Where the Leases of all sandboxes are, and what selects them.
    pub(super) fn all_leases(&self) -> (Api<Lease>, String) {
        match self.config.namespace_per_sandbox {
            true => (Api::all(self.home.cluster.client.clone()), self.of_sandboxes()),
            false => (self.home.leases.api.clone(), self.of_sandboxes()),
        }
    }

    /// Where the pods of all sandboxes are, and what selects them.
    pub(super) fn all_pods(&self) -> (Api<Pod>, String) {
        match self.config.namespace_per_sandbox {
            true => (Api::all(self.home.cluster.client.clone()), self.of_sandboxes()),
            false => (self.home.pods.clone(), self.of_sandboxes()),
        }
    }

    fn of_sandboxes(&self) -> String {
        match self.config.namespace_per_sandbox {
            true => format!("{},{SANDBOX},{HOME}={}", names::ours(), self.home.cluster.namespace),
            false => format!("{},{SANDBOX}", names::ours()),
        }
    }

    /// One page of the sandboxes' Leases, and where the next one begins.
    async fn leases(
        &self,
        labels: &BTreeMap<String, String>,
        limit: usize,
        token: &str,
    ) -> Result<(Vec<Lease>, Option<String>)> {
        let (api, base) = self.all_leases();
        let parameters = page_parameters(&selector(base, &self.config.label_prefix, labels)?, limit, token);
        let list = with_retry(|| api.list(&parameters)).await.map_err(page_error("list the sandboxes' Leases"))?;
        Ok((list.items, list.metadata.continue_.filter(|token| !token.is_empty())))
    }

    async fn waiting_pods(
        &self,
        labels: &BTreeMap<String, String>,
        limit: usize,
        token: &str,
    ) -> Result<(Vec<Pod>, Option<String>)> {
        let base = format!("{},{POOL},{STATE}!={CLAIMED}", names::ours());
        let parameters = page_parameters(&selector(base, &self.config.label_prefix, labels)?, limit, token);
        let list =
            with_retry(|| self.home.pods.list(&parameters)).await.map_err(page_error("list the pods of pools"))?;
        Ok((list.items, list.metadata.continue_.filter(|token| !token.is_empty())))
    }

    /// The pods of some sandboxes.
    async fn pods_of(&self, leases: &[Lease]) -> Result<Pods> {
        if leases.is_empty() {
            return Ok(Pods::default());
        }
        let ids: Vec<&str> = leases.iter().filter_map(|lease| lease.metadata.name.as_deref()).collect();
        let (api, base) = self.all_pods();
        let parameters = ListParams::default().labels(&format!("{base},{SANDBOX} in ({})", ids.join(",")));
        let list = with_retry(|| api.list(&parameters)).await.map_err(Error::api("list the sandboxes' pods"))?;
        Ok(Pods::of(list.items))
    }

    /// What a sandbox is doing.
    pub(super) fn phase_of(&self, lease: &Lease, pod: Option<&Pod>, now: Timestamp) -> Phase {
        let unfinished = lease::is_unfinished(lease);
        match pod {
            Some(pod) if ending(pod, CONTAINER).is_some() => Phase::Terminated,
            // Its creator was killed, and nobody has got it since.
            _ if unfinished && lease::startup_is_over(lease, now, self.startup()) => Phase::Terminated,
            Some(pod) if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") => {
                Phase::Running
            }
            Some(_) => Phase::Pending,
            None if unfinished || lease::is_being_claimed(lease, now, self.timing.claiming) => Phase::Pending,
            None => Phase::Terminated,
        }
    }

    pub(super) fn listed(&self, lease: &Lease, pods: &Pods, now: Timestamp) -> Option<Listed> {
        inventory::listed(lease, self.phase_of(lease, pods.named_by(lease), now), &self.config.label_prefix)
    }

    /// A pod that waits in a pool, as lists show it.
    pub(super) fn listed_pod(&self, pod: &Pod) -> Option<Listed> {
        let (labels, annotations) = (pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
        Some(Listed {
            id: pod.metadata.name.clone()?,
            namespace: pod.metadata.namespace.clone(),
            labels: inventory::user_labels(&self.config.label_prefix, labels, annotations),
            phase: match ending(pod, CONTAINER) {
                Some(_) => Phase::Terminated,
                None if label(pod, STATE) == Some(WARM) => Phase::Warm,
                None => Phase::Pending,
            },
            created_ms: millis(pod.metadata.creation_timestamp.as_ref()?.0),
            active_ms: None,
            expires_ms: None,
            ttl_ms: None,
            idle_ttl_ms: None,
        })
    }

    pub(super) async fn count(&self, idle: Duration) -> Result<Stats> {
        let now = self.home.cluster.now().await?;
        inventory::count(now, idle, |query| async move { self.page(&query).await }).await
    }
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The pods of sandboxes, by the sandboxes' names.
#[derive(Default)]
pub(super) struct Pods(HashMap<String, Vec<Pod>>);

impl Pods {
    pub(super) fn of(list: Vec<Pod>) -> Self {
        let mut pods = Self::default();
        for pod in list {
            let Some(sandbox) = label(&pod, SANDBOX).map(str::to_owned) else { continue };
            pods.0.entry(sandbox).or_default().push(pod);
        }
        pods
    }

    /// All pods that belong to a Lease's sandbox.
    pub(super) fn of_lease(&self, lease: &Lease) -> &[Pod] {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pod that the Lease names.
    pub(super) fn named_by(&self, lease: &Lease) -> Option<&Pod> {
        let holder = Holder::of(lease)?;
        self.of_lease(lease).iter().find(|pod| pod.metadata.name.as_deref() == Some(holder.pod.as_str()))
    }
}
