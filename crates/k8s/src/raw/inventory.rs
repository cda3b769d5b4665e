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
use super::occupant::ending;
use crate::bootstrap::Limits;
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE, TENANT, THREAD, WARM};
use crate::retry::patiently;

/// How many sandboxes are on a page when nobody says: their names have to fit into one request.
const PAGE: usize = 100;

/// What the cursor begins with where sandboxes are listed, and where pods that wait are. The rest is the API server's.
const SANDBOXES: &str = "s:";
const WAITING: &str = "w:";

/// How long a sandbox may be without the pod that it names: between the two it is being made.
const CLAIMING: Duration = Duration::from_secs(30);

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
                let pods = self.pods_of(&leases).await?;
                page.sandboxes.extend(leases.iter().filter_map(|lease| self.listed(lease, &pods)));
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

    /// Some of the sandboxes' Leases, and where the next ones begin.
    pub(super) async fn leases(
        &self,
        labels: &BTreeMap<String, String>,
        limit: usize,
        token: &str,
    ) -> Result<(Vec<Lease>, Option<String>)> {
        let mut base = names::ours() + "," + SANDBOX;
        let api = match self.config.namespace_per_sandbox {
            true => {
                base += &format!(",{HOME}={}", self.home.cluster.namespace);
                Api::all(self.home.cluster.client.clone())
            }
            false => self.home.leases.api.clone(),
        };
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

    /// The pods of sandboxes, by the sandboxes' names.
    pub(super) async fn pods_of(&self, leases: &[Lease]) -> Result<HashMap<String, Vec<Pod>>> {
        let mut pods: HashMap<String, Vec<Pod>> = HashMap::new();
        for leases in leases.chunks(PAGE) {
            let ids: Vec<&str> = leases.iter().filter_map(|lease| lease.metadata.name.as_deref()).collect();
            let mut about = format!("{},{SANDBOX} in ({})", names::ours(), ids.join(","));
            let api = match self.config.namespace_per_sandbox {
                true => {
                    about += &format!(",{HOME}={}", self.home.cluster.namespace);
                    Api::all(self.home.cluster.client.clone())
                }
                false => self.home.pods.clone(),
            };
            let parameters = ListParams::default().labels(&about);
            let list = patiently(|| api.list(&parameters)).await.map_err(Error::api("list the sandboxes' pods"))?;
            for pod in list.items {
                let Some(sandbox) = label(&pod, SANDBOX).map(str::to_owned) else { continue };
                pods.entry(sandbox).or_default().push(pod);
            }
        }
        Ok(pods)
    }

    pub(super) fn listed(&self, lease: &Lease, pods: &HashMap<String, Vec<Pod>>) -> Option<Listed> {
        let id = lease.metadata.name.clone()?;
        let created_ms = millis(lease::begun(lease)?);
        let holder = Holder::of(lease);
        let pod = holder.as_ref().and_then(|holder| {
            pods.get(&id)?.iter().find(|pod| pod.metadata.name.as_deref() == Some(holder.pod.as_str()))
        });
        // A Lease whose pod doesn't exist is being completed, or was left behind by a creator that was killed.
        let age = Duration::from_millis(millis(Timestamp::now()).saturating_sub(created_ms));
        let time = match holder.is_some_and(|holder| holder.uid.is_some()) {
            true => CLAIMING,
            false => Duration::from_secs(self.config.startup_timeout),
        };
        let phase = match pod {
            Some(pod) => phase(pod),
            None if age < time => Phase::Pending,
            None => Phase::Terminated,
        };
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

    fn listed_pod(&self, pod: &Pod) -> Option<Listed> {
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        Some(Listed {
            id: pod.metadata.name.clone()?,
            labels: self.labels_of(pod.metadata.labels.as_ref(), &annotations),
            phase: match ending(pod) {
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
        let now = millis(Timestamp::now());
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

fn phase(pod: &Pod) -> Phase {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase {
        _ if ending(pod).is_some() => Phase::Terminated,
        Some("Running") => Phase::Running,
        _ => Phase::Pending,
    }
}

pub(super) fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}
