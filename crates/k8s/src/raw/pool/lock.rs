//! The Lease of a pool: who has it may change the pool.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Shared;
use crate::error::{Error, Result};
use crate::names::{MANAGED_BY, PODBAY, POOL, TEMPLATE};
use crate::raw::lease;
use crate::retry::patiently;

/// How long a holder that says nothing is taken to be alive.
const HELD: Duration = Duration::from_secs(15);

/// How often it has to say something.
const RENEW: Duration = Duration::from_secs(4);

/// How long saying it may take. Renewals later than this are none: others may have the Lease by the time they are heard.
const SAYING: Duration = Duration::from_secs(8);

/// How often a client that has a pool says so in the pool's Lease, unless another one has.
pub(super) const ALIVE: Duration = Duration::from_secs(300);

/// How long nobody may say so before a pool is an orphan's, however soon someone wants it gone.
pub(crate) const ORPHANED: Duration = Duration::from_secs(3 * 300);

/// What this client has seen of the Lease.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Its version when another had it, and since when it is like that. Clocks of different machines aren't compared.
    other: Option<(String, Instant)>,
    /// Whether this client has it.
    held: bool,
    /// Whether the pool was made as this client wants it, at some time.
    adopted: bool,
}

/// How an attempt to get the Lease ended.
pub(super) enum Attempt {
    /// This client has it.
    Held(Box<Lease>),
    /// Another has it.
    Busy,
    /// The pool belongs to clients with another configuration, which came later.
    Superseded,
}

impl Shared {
    pub(super) fn lock_name(&self) -> String {
        format!("pb-pool-{}", self.config.warm_pool_name)
    }

    /// Tries to get the pool's Lease. With `insist`, the pool is made as this client wants it, whoever came later.
    pub(super) async fn lock(&self, insist: bool) -> Result<Attempt> {
        let name = self.lock_name();
        let leases = &self.place.leases.api;
        let found = patiently(|| leases.get_opt(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        let Some(found) = found else {
            let new = self.new_lock().await;
            return match patiently(|| async { leases.create(&PostParams::default(), &new).await }).await {
                Ok(lease) => Ok(self.got(lease)),
                Err(error) if Error::code(&error) == Some(409) => Ok(Attempt::Busy),
                Err(error) => Err(Error::api("make the pool's Lease")(error)),
            };
        };
        let labels = found.metadata.labels.as_ref();
        if labels.and_then(|labels| labels.get(MANAGED_BY)).is_none_or(|by| by != PODBAY) {
            return Err(Error::NotOurs(format!("the Lease {name}")));
        }
        let theirs = found.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TEMPLATE));
        {
            let mut seen = self.seen();
            if theirs == Some(&self.template) {
                seen.adopted = true;
            } else if seen.adopted && !insist {
                // Two kinds of clients would replace each other's pods for ever; the later one is the newer release.
                return Ok(Attempt::Superseded);
            }
            if self.is_held(&found, &mut seen) {
                return Ok(Attempt::Busy);
            }
        }
        let change = json!({
            "metadata": {
                "resourceVersion": found.metadata.resource_version,
                "annotations": {TEMPLATE: self.template},
            },
            "spec": self.held_by_us().await,
        });
        let patch = Patch::Merge(change);
        match patiently(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Ok(lease) => Ok(self.got(lease)),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(Attempt::Busy),
            Err(error) => Err(Error::api("take the pool's Lease")(error)),
        }
    }

    fn got(&self, lease: Lease) -> Attempt {
        let mut seen = self.seen();
        (seen.held, seen.adopted) = (true, true);
        Attempt::Held(Box::new(lease))
    }

    /// Whether this client has the Lease, as far as it knows.
    pub(super) fn has_lock(&self) -> bool {
        self.seen().held
    }

    fn is_held(&self, lease: &Lease, seen: &mut Seen) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            seen.other = None;
            return false;
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        match &seen.other {
            Some((before, since)) if *before == version => since.elapsed() < HELD,
            _ => {
                seen.other = Some((version, Instant::now()));
                true
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn held_by_us(&self) -> Value {
        json!({
            "holderIdentity": self.identity,
            "renewTime": self.place.leases.now().await,
            "leaseDurationSeconds": HELD.as_secs(),
        })
    }

    async fn new_lock(&self) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lock_name()),
                labels: Some(
                    [(MANAGED_BY.into(), PODBAY.into()), (POOL.into(), self.config.warm_pool_name.clone())].into(),
                ),
                annotations: Some([(TEMPLATE.into(), self.template.clone())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                renew_time: Some(self.place.leases.now().await),
                lease_duration_seconds: i32::try_from(HELD.as_secs()).ok(),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Works while the Lease is renewed; what is under way is dropped when it is lost.
    pub(super) async fn while_held<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let renew = async {
            loop {
                tokio::time::sleep(RENEW).await;
                match tokio::time::timeout(SAYING, self.renew_lock()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => {
                        return Error::Config(format!(
                            "the Lease {} of the pool couldn't be renewed within {SAYING:?}, so that another client may have it",
                            self.lock_name()
                        ));
                    }
                }
            }
        };
        tokio::select! {
            done = work => done,
            error = renew => Err(error),
        }
    }

    async fn renew_lock(&self) -> Result<()> {
        let (name, leases) = (self.lock_name(), &self.place.leases.api);
        let lost = || Error::Config(format!("the Lease {name} of the pool was taken by another client"));
        let lease = patiently(|| leases.get(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        if lease.spec.and_then(|spec| spec.holder_identity).as_ref() != Some(&self.identity) {
            return Err(lost());
        }
        let version = lease.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": self.held_by_us().await}));
        match patiently(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Err(error) if Error::code(&error) == Some(409) => Err(lost()),
            Err(error) => Err(Error::api("renew the pool's Lease")(error)),
            Ok(_) => Ok(()),
        }
    }

    /// Says that somebody looks after the pool, unless that was said a short while ago. Whoever holds the Lease goes on
    /// holding it.
    pub(super) async fn say_alive(&self) -> Result<()> {
        let (name, leases) = (self.lock_name(), &self.place.leases.api);
        let found = patiently(|| leases.get_opt(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        let now = self.place.leases.now().await;
        let said = found.as_ref().and_then(lease::used);
        if found.is_none() || said.is_some_and(|said| lease::age(said, now.0) < ALIVE / 2) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
        match patiently(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Err(error) if Error::code(&error) != Some(404) => Err(Error::api("renew the pool's Lease")(error)),
            _ => Ok(()),
        }
    }

    /// Lets others have the Lease.
    pub(super) async fn unlock(&self) {
        self.seen().held = false;
        let (name, leases) = (self.lock_name(), &self.place.leases.api);
        let work = async {
            let lease = patiently(|| leases.get(&name)).await?;
            if lease.spec.and_then(|spec| spec.holder_identity).as_ref() != Some(&self.identity) {
                return Ok(());
            }
            let version = lease.metadata.resource_version;
            let patch =
                Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": null}}));
            leases.patch(&name, &PatchParams::default(), &patch).await.map(drop)
        };
        if let Err(error) = work.await {
            // Others get it when it wasn't renewed for a while.
            tracing::debug!(%error, name, "the pool's Lease couldn't be given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::cluster::Cluster;
    use crate::raw::Config;
    use crate::raw::place::Place;
    use crate::raw::pool::Pool;

    /// A full pool was written to by nobody, so that nothing told it from one whose programs are gone.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_pool_that_is_looked_after_says_so_and_stays_with_its_holder() -> anyhow::Result<()> {
        let Some(cluster) = rig::cluster().await? else { return Ok(()) };
        let rules = vec![rig::rule("coordination.k8s.io", ["leases"], ["create", "get", "patch"])];
        let namespace = cluster.namespace(rules).await?;
        let config = Arc::new(Config { warm_pool_size: 1, ..Config::default() });
        let pool = || {
            let place = Place::new(Cluster::with_client(namespace.client(), namespace.name()));
            Pool::new(place, config.clone())
        };
        let (filler, other) = (pool()?, pool()?);
        // There is nothing to say about a pool that nobody has made.
        other.shared.say_alive().await?;
        anyhow::ensure!(matches!(filler.shared.lock(false).await?, Attempt::Held(_)));
        let leases = &filler.shared.place.leases;
        let name = filler.shared.lock_name();
        let day = MicroTime(leases.now().await.0 - Duration::from_secs(86_400));
        let patch = Patch::Merge(json!({"spec": {"renewTime": day}}));
        leases.api.patch(&name, &PatchParams::default(), &patch).await?;
        other.shared.say_alive().await?;
        let lease = leases.api.get(&name).await?;
        let now = leases.now().await.0;
        let age = lease::used(&lease).map(|used| lease::age(used, now));
        anyhow::ensure!(age.is_some_and(|age| age < Duration::from_secs(60)), "{age:?}");
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        anyhow::ensure!(holder.as_ref() == Some(&filler.shared.identity), "{holder:?}");
        // Said once is enough for a while.
        let version = lease.metadata.resource_version;
        other.shared.say_alive().await?;
        anyhow::ensure!(leases.api.get(&name).await?.metadata.resource_version == version);
        Ok(())
    }
}
