//! Lists sandboxes and counts them.

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
use crate::bootstrap::Limits;
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE, TENANT, THREAD, WARM};
use crate::pod::health::ending;
use crate::retry::patiently;

/// How many sandboxes are on a page when nobody says: their names have to fit into one request.
const PAGE: usize = 100;

/// What the cursor begins with where sandboxes are listed, and where pods that wait are. The rest is the API server's.
const SANDBOXES: &str = "s:";
const WAITING: &str = "w:";

impl Raw {
    /// One page: first the sandboxes, then the pods that wait to become some.
    pub(super) async fn page(&self, query: &Query) -> Result<Page> {
        let bad = || Error::Config("the list's cursor isn't one of this mode: begin again without it".into());
        let pooled = !self.config.namespace_per_sandbox;
        // Those that wait are warm or being made, and all others are not warm.
        let skip = query.phase == Some(Phase::Warm) && pooled;
        let waiting = pooled && matches!(query.phase, None | Some(Phase::Warm | Phase::Pending));
        let mut limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE);
        let mut page = Page::default();
        let cursor = query.cursor.as_deref().unwrap_or(if skip { WAITING } else { SANDBOXES });
        let mut rest = match cursor.strip_prefix(SANDBOXES) {
            Some(token) => {
                let (leases, next) = self.leases(&query.labels, limit, token).await?;
                let (pods, now) = (self.pods_of(&leases).await?, self.home.cluster.now().await);
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
            None => Some(cursor.strip_prefix(WAITING).ok_or_else(bad)?.to_owned()),
        };
        if let Some(token) = rest.take().filter(|_| waiting) {
            page.cursor = match limit {
                // There may be nothing there, which the next page tells.
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

    fn selector(&self, base: String, labels: &BTreeMap<String, String>) -> Result<String> {
        let mut selector = base;
        for (key, value) in labels {
            let key = names::prefixed(&self.config.label_prefix, key)?;
            selector += &format!(",{key}={}", names::label_value(value));
        }
        Ok(selector)
    }

    /// Where all sandboxes' Leases are, and what selects them.
    pub(super) fn all_leases(&self) -> (Api<Lease>, String) {
        match self.config.namespace_per_sandbox {
            true => (Api::all(self.home.cluster.client.clone()), self.of_sandboxes()),
            false => (self.home.leases.api.clone(), self.of_sandboxes()),
        }
    }

    /// Where all sandboxes' pods are, and what selects them.
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

    /// Some of the sandboxes' Leases, and where the next ones begin.
    async fn leases(
        &self,
        labels: &BTreeMap<String, String>,
        limit: usize,
        token: &str,
    ) -> Result<(Vec<Lease>, Option<String>)> {
        let (api, base) = self.all_leases();
        let parameters = parameters(self.selector(base, labels)?, limit, token);
        let list = patiently(|| api.list(&parameters)).await.map_err(too_old("list the sandboxes' Leases"))?;
        Ok((list.items, list.metadata.continue_.filter(|token| !token.is_empty())))
    }

    async fn waiting_pods(
        &self,
        labels: &BTreeMap<String, String>,
        limit: usize,
        token: &str,
    ) -> Result<(Vec<Pod>, Option<String>)> {
        let base = format!("{},{POOL},{STATE}!={CLAIMED}", names::ours());
        let parameters = parameters(self.selector(base, labels)?, limit, token);
        let list = patiently(|| self.home.pods.list(&parameters)).await.map_err(too_old("list the pods of pools"))?;
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
        let list = patiently(|| api.list(&parameters)).await.map_err(Error::api("list the sandboxes' pods"))?;
        Ok(Pods::of(list.items))
    }

    /// What a sandbox is doing.
    pub(super) fn phase(&self, lease: &Lease, pod: Option<&Pod>, now: Timestamp) -> Phase {
        let unfinished = lease::is_unfinished(lease);
        match pod {
            Some(pod) if ending(pod, CONTAINER).is_some() => Phase::Terminated,
            // Whoever made it was killed, and nobody has got it since.
            _ if unfinished && lease::startup_is_over(lease, now, self.startup()) => Phase::Terminated,
            Some(pod) if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") => {
                Phase::Running
            }
            Some(_) => Phase::Pending,
            None if unfinished || is_being_claimed(lease, now) => Phase::Pending,
            None => Phase::Terminated,
        }
    }

    pub(super) fn listed(&self, lease: &Lease, pods: &Pods, now: Timestamp) -> Option<Listed> {
        let id = lease.metadata.name.clone()?;
        let created_ms = millis(lease::begun(lease)?);
        let phase = self.phase(lease, pods.named_by(lease), now);
        let annotations = lease.metadata.annotations.clone().unwrap_or_default();
        let active_ms = lease::used(lease).map(millis);
        let Limits { ttl, idle_ttl } = lease::limits(lease);
        let after = |start: u64, seconds: u64| start.saturating_add(seconds.saturating_mul(1000));
        let absolute = ttl.map(|ttl| after(created_ms, ttl));
        let idle = idle_ttl.zip(active_ms).map(|(ttl, active)| after(active, ttl));
        Some(Listed {
            id,
            labels: self.labels_of(lease.metadata.labels.as_ref(), &annotations),
            phase,
            created_ms,
            active_ms,
            expires_ms: absolute.into_iter().chain(idle).min(),
        })
    }

    pub(super) fn listed_pod(&self, pod: &Pod) -> Option<Listed> {
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        Some(Listed {
            id: pod.metadata.name.clone()?,
            labels: self.labels_of(pod.metadata.labels.as_ref(), &annotations),
            phase: match ending(pod, CONTAINER) {
                Some(_) => Phase::Terminated,
                None if label(pod, STATE) == Some(WARM) => Phase::Warm,
                None => Phase::Pending,
            },
            created_ms: millis(pod.metadata.creation_timestamp.as_ref()?.0),
            active_ms: None,
            expires_ms: None,
        })
    }

    /// The labels as their user gave them.
    fn labels_of(
        &self,
        labels: Option<&BTreeMap<String, String>>,
        annotations: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let labels = labels.into_iter().flatten();
        labels
            .filter_map(|(key, value)| {
                let short = match key.as_str() {
                    THREAD | TENANT => key,
                    key => key.strip_prefix(&self.config.label_prefix)?,
                };
                Some((short.to_owned(), annotations.get(key).unwrap_or(value).clone()))
            })
            .collect()
    }

    pub(super) async fn count(&self, idle: Duration) -> Result<Stats> {
        let now = millis(self.home.cluster.now().await);
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let (mut stats, mut query) = (Stats::default(), Query::default());
        loop {
            let page = self.page(&query).await?;
            for listed in page.sandboxes {
                stats.total += 1;
                stats.running += usize::from(listed.phase == Phase::Running);
                stats.warm += usize::from(listed.phase == Phase::Warm);
                stats.idle += usize::from(listed.active_ms.is_some_and(|active| now.saturating_sub(active) >= idle));
            }
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(stats),
            }
        }
    }
}

fn parameters(selector: String, limit: usize, token: &str) -> ListParams {
    let parameters = ListParams::default().labels(&selector).limit(u32::try_from(limit).unwrap_or(u32::MAX));
    if token.is_empty() { parameters } else { parameters.continue_token(token) }
}

fn too_old(what: &'static str) -> impl Fn(kube::Error) -> Error {
    move |error| match Error::code(&error) {
        Some(410) => Error::Config("the list's cursor is too old: begin again without it".into()),
        _ => Error::api(what)(error),
    }
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether a Lease that names a pod of a pool, and doesn't have it, may get it yet.
pub(super) fn is_being_claimed(lease: &Lease, now: Timestamp) -> bool {
    lease::written(lease).is_some_and(|written| lease::age(written, now) < lease::CLAIMING)
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

    /// All that belong to the sandbox that a Lease is.
    pub(super) fn of_lease(&self, lease: &Lease) -> &[Pod] {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The one that the Lease names.
    pub(super) fn named_by(&self, lease: &Lease) -> Option<&Pod> {
        let holder = Holder::of(lease)?;
        self.of_lease(lease).iter().find(|pod| pod.metadata.name.as_deref() == Some(holder.pod.as_str()))
    }
}

pub(super) fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}
