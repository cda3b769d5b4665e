//! Lists sandboxes, counts them, and removes those that are over.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use podbay_client::provider::{Cleaned, Listed, Page, Phase, Query, Stats};

use super::Raw;
use super::lease::Holder;
use crate::error::{Error, Result};
use crate::names::{self, IDLE_TTL, SANDBOX, TTL};

/// How many sandboxes are on a page when nobody says: their names have to fit into one request.
const PAGE: usize = 100;

impl Raw {
    /// One page. The API server keeps them sorted by name, and its own mark is the cursor.
    pub(super) async fn page(&self, query: &Query) -> Result<Page> {
        let mut selector = names::ours() + "," + SANDBOX;
        for (key, value) in &query.labels {
            let key = names::prefixed(&self.config.label_prefix, key)?;
            selector += &format!(",{key}={}", names::label_value(value));
        }
        let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE);
        let mut parameters = ListParams::default().labels(&selector).limit(limit as u32);
        if let Some(cursor) = &query.cursor {
            parameters = parameters.continue_token(cursor);
        }
        let leases = self.leases.api.list(&parameters).await.map_err(|error| match Error::code(&error) {
            Some(410) => Error::Config("the list's cursor is too old: begin again without it".into()),
            _ => Error::api("list the sandboxes' Leases")(error),
        })?;
        let pods = self.pods_of(&leases.items).await?;
        let mut sandboxes: Vec<Listed> = leases.items.iter().filter_map(|lease| self.listed(lease, &pods)).collect();
        sandboxes.retain(|listed| query.phase.is_none_or(|phase| phase == listed.phase));
        Ok(Page { sandboxes, cursor: leases.metadata.continue_.filter(|cursor| !cursor.is_empty()) })
    }

    async fn pods_of(&self, leases: &[Lease]) -> Result<HashMap<String, Pod>> {
        if leases.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<&str> = leases.iter().filter_map(|lease| lease.metadata.name.as_deref()).collect();
        let about = ListParams::default().labels(&format!("{},{SANDBOX} in ({})", names::ours(), ids.join(",")));
        let pods = self.pods.list(&about).await.map_err(Error::api("list the sandboxes' pods"))?;
        Ok(pods.items.into_iter().filter_map(|pod| Some((pod.metadata.name.clone()?, pod))).collect())
    }

    fn listed(&self, lease: &Lease, pods: &HashMap<String, Pod>) -> Option<Listed> {
        let created_ms = millis(lease.metadata.creation_timestamp.as_ref()?.0);
        let holder = Holder::of(lease);
        let pod = holder.as_ref().and_then(|holder| pods.get(&holder.pod));
        // A Lease whose pod doesn't exist is being completed, or was left behind by a creator that was killed.
        let age = Duration::from_millis(millis(Timestamp::now()).saturating_sub(created_ms));
        let young = age < Duration::from_secs(self.config.startup_timeout);
        let phase = match pod {
            Some(pod) => phase(pod),
            None if young && holder.is_some_and(|holder| holder.uid.is_none()) => Phase::Pending,
            None => Phase::Terminated,
        };
        let annotations = lease.metadata.annotations.clone().unwrap_or_default();
        let seconds = |key: &str| annotations.get(key).and_then(|text| text.parse::<u64>().ok());
        let active_ms = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| millis(time.0));
        let absolute = seconds(TTL).map(|ttl| created_ms.saturating_add(ttl.saturating_mul(1000)));
        let idle =
            seconds(IDLE_TTL).zip(active_ms).map(|(ttl, active)| active.saturating_add(ttl.saturating_mul(1000)));
        Some(Listed {
            id: lease.metadata.name.clone()?,
            labels: self.labels_of(lease, &annotations),
            phase,
            created_ms,
            active_ms,
            expires_ms: absolute.into_iter().chain(idle).min(),
        })
    }

    /// The labels as their user gave them.
    fn labels_of(&self, lease: &Lease, annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let labels = lease.metadata.labels.iter().flatten();
        labels
            .filter_map(|(key, value)| {
                let short = key.strip_prefix(&self.config.label_prefix)?;
                Some((short.to_owned(), annotations.get(key).unwrap_or(value).clone()))
            })
            .collect()
    }

    async fn all(&self) -> Result<Vec<Listed>> {
        let mut all = Vec::new();
        let mut query = Query::default();
        loop {
            let page = self.page(&query).await?;
            all.extend(page.sandboxes);
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        for listed in self.all().await? {
            let now = millis(Timestamp::now());
            let idle = listed.active_ms.map(|active| Duration::from_millis(now.saturating_sub(active)));
            let over = listed.phase == Phase::Terminated
                || listed.expires_ms.is_some_and(|end| end <= now)
                || max_idle.zip(idle).is_some_and(|(most, idle)| idle > most);
            if !over {
                cleaned.kept += 1;
                continue;
            }
            match self.remove(&listed.id).await {
                Ok(_) => cleaned.deleted.push(listed.id),
                Err(error) => cleaned.failed.push((listed.id, error.to_string())),
            }
        }
        Ok(cleaned)
    }

    pub(super) async fn count(&self, idle: Duration) -> Result<Stats> {
        let now = millis(Timestamp::now());
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut stats = Stats::default();
        for listed in self.all().await? {
            stats.total += 1;
            stats.running += usize::from(listed.phase == Phase::Running);
            stats.warm += usize::from(listed.phase == Phase::Warm);
            stats.idle += usize::from(listed.active_ms.is_some_and(|active| now.saturating_sub(active) >= idle));
        }
        Ok(stats)
    }
}

fn phase(pod: &Pod) -> Phase {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase {
        _ if pod.metadata.deletion_timestamp.is_some() => Phase::Terminated,
        Some("Running") => Phase::Running,
        Some("Failed" | "Succeeded") => Phase::Terminated,
        _ => Phase::Pending,
    }
}

fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}
