//! What the reaper removes in raw mode: sandboxes, and what they and pools have left behind.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use podbay_client::Sandbox;
use podbay_client::provider::{Cleaned, Phase};

use super::inventory::Pods;
use super::lease::{self, Holder};
use super::manifest::CONTAINER;
use super::namespace::is_being_reused;
use super::pod_state::{holder, holder_of};
use super::pool::ORPHANED;
use super::{Raw, network};
use crate::api::list::list_all;
use crate::cleanup::{Reaped, Run};
use crate::error::{Error, Result};
use crate::lifetime::{DEFAULT_IDLE_TTL, age};
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE};
use crate::pod::health::ending;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, unchanged};

impl Reaped for Raw {
    type Object = Lease;

    fn container(&self, _: &Pod) -> String {
        CONTAINER.to_owned()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.home.cluster.now().await
    }

    async fn find(&self, id: &str) -> Result<Lease> {
        self.namespace_of(id).leases.find(id).await
    }

    async fn pod(&self, lease: &Lease) -> Result<Option<Pod>> {
        let state = self.namespace_of(lease.id()).pod_state(lease, &holder(lease)?).await?;
        Ok(state.owned().cloned())
    }

    fn phase(&self, lease: &Lease, pod: Option<&Pod>, now: Timestamp) -> Phase {
        self.phase_of(lease, pod, now)
    }

    fn is_starting(&self, lease: &Lease, pod: Option<&Pod>, now: Timestamp) -> bool {
        match lease::is_unfinished(lease) {
            true => !lease::startup_is_over(lease, now, self.startup()),
            // Whoever claims a pod of a pool doesn't write to the Lease again.
            false => pod.is_none() && lease::is_being_claimed(lease, now, self.timing.claiming),
        }
    }

    fn sandbox(&self, lease: &Lease, pod: &Pod) -> Result<Sandbox> {
        Ok(self.open(&self.namespace_of(lease.id()), lease, pod))
    }

    fn silent_since(&self, lease: &Lease) -> Option<Timestamp> {
        lease::silent_since(lease)
    }

    fn silence(&self) -> Duration {
        self.timing.reaper_silence
    }

    async fn note_silence(&self, lease: &Lease) -> Result<()> {
        self.namespace_of(lease.id()).leases.note_silence(lease).await
    }

    async fn renew(&self, lease: &Lease) {
        self.namespace_of(lease.id()).leases.renew(lease.id()).await;
    }

    async fn delete_unchanged(&self, lease: &Lease, pod: Option<&Pod>) -> Result<Deletion> {
        self.delete_sandbox(&self.namespace_of(lease.id()), lease, unchanged(lease), pod).await
    }
}

impl Raw {
    pub(super) async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let run = Run::new(self, max_idle, self.timing.reaper_run);
        let mut cleaned = Cleaned::default();
        // Pods first: a pod that a Lease read later doesn't name is none of its sandbox any more.
        let (pods, selector) = self.all_pods();
        let pods = Pods::of(list_all(&pods, &selector, "list the sandboxes' pods").await?);
        let (leases, selector) = self.all_leases();
        let leases = list_all(&leases, &selector, "list the sandboxes' Leases").await?;
        let all = leases.iter().map(|lease| (lease.clone(), pods.named_by(lease).cloned())).collect();
        run.sandboxes(all, &mut cleaned).await?;
        self.clean_replaced_pods(&run, &leases, &pods, &mut cleaned).await;
        // A failure here mustn't lose what was done before.
        let note = |what: &str, done: Result<()>, cleaned: &mut Cleaned| {
            if let Err(error) = done {
                cleaned.failed.push((what.into(), error.to_string()));
            }
        };
        if self.config.namespace_per_sandbox {
            let done = self.clean_namespaces(&run, &mut cleaned).await;
            note("namespaces", done, &mut cleaned);
        } else {
            let done = self.clean_pools(&run, max_idle, &mut cleaned).await;
            note("pools", done, &mut cleaned);
            let done = self.clean_policies(&run, &mut cleaned).await;
            note("network policies", done, &mut cleaned);
        }
        cleaned.deleted.sort();
        Ok(cleaned)
    }

    /// Pods that sandboxes had before they were revived. Whoever revives a sandbox deletes its old pod, unless it is killed
    /// in between.
    async fn clean_replaced_pods(&self, run: &Run<'_, Self>, leases: &[Lease], pods: &Pods, cleaned: &mut Cleaned) {
        let is_replaced = |lease: &Lease, pod: &Pod| {
            let named = Holder::of(lease).is_some_and(|holder| pod.metadata.name.as_ref() == Some(&holder.pod));
            let owners = pod.metadata.owner_references.iter().flatten();
            let owned = owners.into_iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref());
            owned && !named && pod.metadata.deletion_timestamp.is_none()
        };
        for lease in leases {
            for pod in pods.of_lease(lease).iter().filter(|pod| is_replaced(lease, pod)) {
                if run.must_end("pods of revived sandboxes", cleaned) {
                    return;
                }
                let name = pod.metadata.name.clone().unwrap_or_default();
                match self.namespace_of(lease.id()).delete_pod(&holder_of(pod)).await {
                    Ok(()) => cleaned.deleted.push(name),
                    Err(error) => cleaned.failed.push((name, error.to_string())),
                }
            }
        }
    }

    /// Pools that no client uses any more, and pods of pools that have ended.
    ///
    /// The pods of a pool that nobody has claimed belong to its Lease, and are deleted with it. The garbage collector, too,
    /// deletes only what is unchanged, so a pod that is being claimed stays.
    async fn clean_pools(&self, run: &Run<'_, Self>, max_idle: Option<Duration>, cleaned: &mut Cleaned) -> Result<()> {
        let home = &self.home;
        let ours = format!("{},{POOL},!{SANDBOX}", names::ours());
        let most = self.config.idle_ttl.unwrap_or(DEFAULT_IDLE_TTL);
        let most = max_idle.unwrap_or(Duration::MAX).min(Duration::from_secs(most)).max(ORPHANED);
        for pool in list_all(&home.leases.api, &ours, "list the pools' Leases").await? {
            let now = home.cluster.now().await?;
            let created = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
            if pool.last_used().or(created).is_none_or(|used| age(used, now) <= most) {
                continue;
            }
            if run.must_end("pools", cleaned) {
                return Ok(());
            }
            match home.leases.delete(pool.id(), unchanged(&pool)).await {
                Ok(Deletion::Done) => cleaned.deleted.push(pool.id().to_owned()),
                Ok(Deletion::Absent | Deletion::Changed) => {}
                Err(error) => cleaned.failed.push((pool.id().to_owned(), error.to_string())),
            }
        }
        let unclaimed = format!("{},{POOL},{STATE}!={CLAIMED}", names::ours());
        let pods = list_all(&home.pods, &unclaimed, "list the pods of pools").await?;
        let ended = |pod: &&Pod| ending(pod, CONTAINER).is_some() && pod.metadata.deletion_timestamp.is_none();
        for pod in pods.iter().filter(ended) {
            if run.must_end("pods of pools", cleaned) {
                return Ok(());
            }
            let name = pod.metadata.name.clone().unwrap_or_default();
            match home.delete_pod(&holder_of(pod)).await {
                Ok(()) => cleaned.deleted.push(name),
                Err(error) => cleaned.failed.push((name, error.to_string())),
            }
        }
        Ok(())
    }

    /// Network policies that no pod is under.
    async fn clean_policies(&self, run: &Run<'_, Self>, cleaned: &mut Cleaned) -> Result<()> {
        if run.must_end("network policies", cleaned) {
            return Ok(());
        }
        match network::clean(&self.home.cluster, &self.home.pods).await {
            // An account that blocks no networks doesn't need that right.
            Err(Error::PermissionDenied { .. }) if !self.config.block_network => Ok(()),
            done => done.map(drop),
        }
    }

    /// Namespaces of sandboxes that were never completed, or whose deletion was interrupted.
    async fn clean_namespaces(&self, run: &Run<'_, Self>, cleaned: &mut Cleaned) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.home.cluster.client.clone());
        let home = self.home.cluster.namespace();
        let ours = format!("{},{HOME}={home},{SANDBOX}", names::ours());
        for read in list_all(&namespaces, &ours, "list the sandboxes' namespaces").await? {
            let now = self.home.cluster.now().await?;
            let least = Duration::from_secs(self.config.startup_timeout);
            let young = read.metadata.creation_timestamp.as_ref().is_none_or(|time| age(time.0, now) < least);
            let Some(sandbox) = read.metadata.labels.as_ref().and_then(|labels| labels.get(SANDBOX)) else { continue };
            let namespace = self.namespace_of(sandbox);
            let theirs = read.metadata.name.as_deref() == Some(namespace.cluster.namespace());
            if !theirs || young || read.metadata.deletion_timestamp.is_some() || is_being_reused(&read, None, now) {
                continue;
            }
            if run.must_end("namespaces", cleaned) {
                return Ok(());
            }
            let removed = match namespace.leases.find(sandbox).await {
                Err(Error::SandboxNotFound(_)) => namespace.delete_namespace(&read, None).await,
                found => found.map(|_| false),
            };
            match removed {
                Ok(true) => cleaned.deleted.push(sandbox.clone()),
                Ok(false) => {}
                Err(error) => cleaned.failed.push((sandbox.clone(), error.to_string())),
            }
        }
        Ok(())
    }
}
