//! Removes what is over, and what nobody needs any more.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use podbay_client::provider::{Cleaned, Listed, Phase};

use super::inventory::millis;
use super::occupant::{Occupant, ending, holder, holder_of};
use super::{Raw, lease, network};
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE};
use crate::retry::patiently;

/// How many Leases are read at once, and how many sandboxes looked after.
const BATCH: usize = 500;
const AT_ONCE: usize = 8;

/// How long podbayd has for saying whether it is idle.
const ANSWER: Duration = Duration::from_secs(15);

impl Raw {
    pub(super) async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        let mut token = String::new();
        loop {
            let (leases, next) = self.leases(&BTreeMap::new(), BATCH, &token).await?;
            let pods = self.pods_of(&leases).await?;
            let listed: Vec<(Lease, Listed)> = leases
                .into_iter()
                .filter_map(|lease| self.listed(&lease, &pods).map(|listed| (lease, listed)))
                .collect();
            let work = futures_util::stream::iter(listed).map(|(lease, listed)| async move {
                let done = self.clean_one(&lease, &listed, max_idle).await;
                (listed.id, done)
            });
            let all: Vec<_> = work.buffer_unordered(AT_ONCE).collect().await;
            for (id, done) in all {
                match done {
                    Ok(true) => cleaned.deleted.push(id),
                    Ok(false) => cleaned.kept += 1,
                    Err(error) => cleaned.failed.push((id, error.to_string())),
                }
            }
            match next {
                Some(next) => token = next,
                None => break,
            }
        }
        cleaned.deleted.sort();
        let rest = match self.config.namespace_per_sandbox {
            true => ("namespaces", self.clean_namespaces(&mut cleaned).await),
            false => ("pools and network policies", self.clean_remains(&mut cleaned).await),
        };
        if let (what, Err(error)) = rest {
            cleaned.failed.push((what.into(), error.to_string()));
        }
        Ok(cleaned)
    }

    /// Removes a sandbox that is over or idle; whether it was.
    async fn clean_one(&self, lease: &Lease, listed: &Listed, max_idle: Option<Duration>) -> Result<bool> {
        let place = self.place(&listed.id);
        let now = millis(Timestamp::now());
        let limits = lease::limits(lease);
        if limits.ttl.is_some_and(|ttl| listed.created_ms.saturating_add(ttl.saturating_mul(1000)) <= now) {
            return self.remove_lease(&place, lease, lease::this(lease)).await;
        }
        // Whoever completes or uses it right now changes it, and then it isn't over any more.
        if listed.phase == Phase::Terminated {
            return self.remove_lease(&place, lease, lease::unchanged(lease)).await;
        }
        let Some(most) = max_idle.into_iter().chain(limits.idle_ttl.map(Duration::from_secs)).min() else {
            return Ok(false);
        };
        let idle = listed.active_ms.map(|active| Duration::from_millis(now.saturating_sub(active)));
        if idle.is_none_or(|idle| idle <= most) {
            return Ok(false);
        }
        // The Lease tells of activity once a minute, and only while a client is there; podbayd knows.
        if listed.phase == Phase::Running && self.is_busy(lease, most).await? {
            place.leases.renew(&listed.id).await;
            return Ok(false);
        }
        self.remove_lease(&place, lease, lease::unchanged(lease)).await
    }

    /// Whether a sandbox was used, or runs something, within a time.
    async fn is_busy(&self, lease: &Lease, most: Duration) -> Result<bool> {
        let place = self.place(lease.metadata.name.as_deref().unwrap_or_default());
        let Occupant::Live(pod) = place.occupant(lease, &holder(lease)?).await? else { return Ok(false) };
        let sandbox = self.sandbox(&place, lease, &pod);
        let welcome = match tokio::time::timeout(ANSWER, sandbox.hello()).await {
            Ok(welcome) => welcome,
            Err(_) => {
                let reason = format!("podbayd doesn't say within {ANSWER:?} whether it is idle");
                return Err(Error::Upgrade { what: "looking at the sandbox", reason });
            }
        };
        match welcome {
            Ok(welcome) => Ok(welcome.running > 0 || Duration::from_millis(welcome.idle_ms) < most),
            // It may have ended meanwhile.
            Err(error) => match place.occupant(lease, &holder(lease)?).await? {
                Occupant::Live(_) => Err(Error::Unusable(error)),
                _ => Ok(false),
            },
        }
    }

    /// Pods of pools that have ended, and network policies that no pod is under.
    async fn clean_remains(&self, cleaned: &mut Cleaned) -> Result<()> {
        let waiting = ListParams::default().labels(&format!("{},{POOL},{STATE}!={CLAIMED}", names::ours()));
        let pods = patiently(|| self.home.pods.list(&waiting)).await.map_err(Error::api("list the pods of pools"))?;
        for pod in pods.items.iter().filter(|pod: &&Pod| ending(pod).is_some()) {
            if pod.metadata.deletion_timestamp.is_none() {
                self.home.delete_pod(&holder_of(pod)).await?;
                cleaned.deleted.extend(pod.metadata.name.clone());
            }
        }
        match network::clean(&self.home.cluster, &self.home.pods).await {
            // An account that blocks no networks needn't have the right to.
            Err(Error::PermissionDenied { .. }) if !self.config.block_network => Ok(()),
            done => done.map(drop),
        }
    }

    /// Namespaces of sandboxes that were never completed, or whose deletion was interrupted.
    async fn clean_namespaces(&self, cleaned: &mut Cleaned) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.home.cluster.client.clone());
        let home = self.home.cluster.namespace();
        let ours = ListParams::default().labels(&format!("{},{HOME}={home},{SANDBOX}", names::ours()));
        let list = patiently(|| namespaces.list(&ours)).await.map_err(Error::api("list the sandboxes' namespaces"))?;
        for namespace in list.items {
            let age = namespace.metadata.creation_timestamp.map_or(0, |made| {
                Timestamp::now().as_second().saturating_sub(made.0.as_second()).max(0).unsigned_abs()
            });
            let labels = namespace.metadata.labels.unwrap_or_default();
            let Some(sandbox) = labels.get(SANDBOX) else { continue };
            let place = self.place(sandbox);
            let theirs = namespace.metadata.name.as_deref() == Some(place.cluster.namespace());
            if !theirs || namespace.metadata.deletion_timestamp.is_some() || age < self.config.startup_timeout {
                continue;
            }
            match place.leases.find(sandbox).await {
                Err(Error::SandboxNotFound(_)) => {
                    if place.delete_namespace(home).await? {
                        cleaned.deleted.push(sandbox.clone());
                    }
                }
                other => drop(other?),
            }
        }
        Ok(())
    }
}
