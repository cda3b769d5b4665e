//! The Lease of a pool: whoever holds it may change the pool.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Shared;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::lifetime::age;
use crate::names::{MANAGED_BY, PODBAY, POOL, TEMPLATE};
use crate::sandbox_object::SandboxObject;

/// How long a holder counts as alive after its last renewal.
const HELD: Duration = Duration::from_secs(15);

/// How often it renews.
const RENEW: Duration = Duration::from_secs(4);

/// How long a renewal may take. A later one doesn't count: others may have the Lease by then.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(8);

/// How often a client that uses a pool records that in the pool's Lease, unless another one has.
pub(super) const ALIVE: Duration = Duration::from_secs(300);

/// How long a pool stays at least when nobody records that.
pub(crate) const ORPHANED: Duration = Duration::from_secs(3 * 300);

/// What this client knows about the Lease.
#[derive(Debug, Default)]
pub(super) struct LockView {
    /// Its version while another client held it, and since when it hasn't changed. Clocks of different machines aren't
    /// compared.
    other: Option<(String, Instant)>,
    /// Whether this client holds it.
    held: bool,
    /// Whether the pool has had this client's configuration at some time.
    adopted: bool,
}

/// How an attempt to take the Lease ended.
pub(super) enum LockAttempt {
    /// This client holds it.
    Held(Box<Lease>),
    /// Another client holds it.
    Busy,
    /// Clients with a newer configuration have taken over the pool.
    Superseded,
}

impl Shared {
    pub(super) fn lock_name(&self) -> String {
        format!("pb-pool-{}", self.config.warm_pool_name)
    }

    /// Tries to take the pool's Lease. With `insist`, this client's configuration wins, whoever came later.
    pub(super) async fn lock(&self, insist: bool) -> Result<LockAttempt> {
        let name = self.lock_name();
        let leases = &self.namespace.leases.api;
        let found = with_retry(|| leases.get_opt(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        let Some(found) = found else {
            let new = self.new_lock().await?;
            return match with_retry(|| async { leases.create(&PostParams::default(), &new).await }).await {
                Ok(lease) => Ok(self.got(lease)),
                Err(error) if Error::code(&error) == Some(409) => Ok(LockAttempt::Busy),
                Err(error) => Err(Error::api("create the pool's Lease")(error)),
            };
        };
        let labels = found.metadata.labels.as_ref();
        if labels.and_then(|labels| labels.get(MANAGED_BY)).is_none_or(|by| by != PODBAY) {
            return Err(Error::not_ours(format_args!("the Lease {name}")));
        }
        let theirs = found.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TEMPLATE));
        {
            let mut seen = self.seen();
            if theirs == Some(&self.template) {
                seen.adopted = true;
            } else if seen.adopted && !insist {
                // Otherwise two kinds of clients would replace each other's pods forever. The later one is the newer release.
                return Ok(LockAttempt::Superseded);
            }
            if self.is_held(&found, &mut seen) {
                return Ok(LockAttempt::Busy);
            }
        }
        let change = json!({
            "metadata": {
                "resourceVersion": found.metadata.resource_version,
                "annotations": {TEMPLATE: self.template},
            },
            "spec": self.held_by_us().await?,
        });
        let patch = Patch::Merge(change);
        match with_retry(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Ok(lease) => Ok(self.got(lease)),
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(LockAttempt::Busy),
            Err(error) => Err(Error::api("take the pool's Lease")(error)),
        }
    }

    fn got(&self, lease: Lease) -> LockAttempt {
        let mut seen = self.seen();
        (seen.held, seen.adopted) = (true, true);
        LockAttempt::Held(Box::new(lease))
    }

    /// Whether this client holds the Lease, as far as it knows.
    pub(super) fn has_lock(&self) -> bool {
        self.seen().held
    }

    fn is_held(&self, lease: &Lease, seen: &mut LockView) -> bool {
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

    fn seen(&self) -> std::sync::MutexGuard<'_, LockView> {
        self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn held_by_us(&self) -> Result<Value> {
        Ok(json!({
            "holderIdentity": self.identity,
            "renewTime": self.namespace.leases.now().await?,
            "leaseDurationSeconds": HELD.as_secs(),
        }))
    }

    async fn new_lock(&self) -> Result<Lease> {
        Ok(Lease {
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
                renew_time: Some(self.namespace.leases.now().await?),
                lease_duration_seconds: i32::try_from(HELD.as_secs()).ok(),
                ..LeaseSpec::default()
            }),
        })
    }

    /// Works while the Lease is renewed. The work is dropped when the Lease is lost.
    pub(super) async fn while_held<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let renew = async {
            loop {
                tokio::time::sleep(RENEW).await;
                match tokio::time::timeout(RENEWAL_TIMEOUT, self.renew_lock()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => {
                        let how =
                            format!("couldn't be renewed within {RENEWAL_TIMEOUT:?}; another client may hold it now");
                        return Error::PoolLockLost { lease: self.lock_name(), how };
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
        let (name, leases) = (self.lock_name(), &self.namespace.leases.api);
        let lost = || Error::PoolLockLost { lease: name.clone(), how: "was taken by another client".into() };
        let lease = with_retry(|| leases.get(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        if lease.spec.and_then(|spec| spec.holder_identity).as_ref() != Some(&self.identity) {
            return Err(lost());
        }
        let version = lease.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": self.held_by_us().await?}));
        match with_retry(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Err(error) if Error::code(&error) == Some(409) => Err(lost()),
            Err(error) => Err(Error::api("renew the pool's Lease")(error)),
            Ok(_) => Ok(()),
        }
    }

    /// Records that the pool is in use, unless somebody did a short while ago. Whoever holds the Lease keeps it.
    pub(super) async fn say_alive(&self) -> Result<()> {
        let (name, leases) = (self.lock_name(), &self.namespace.leases.api);
        let found = with_retry(|| leases.get_opt(&name)).await.map_err(Error::api("get the pool's Lease"))?;
        let now = self.namespace.leases.now().await?;
        let said = found.as_ref().and_then(SandboxObject::last_used);
        if found.is_none() || said.is_some_and(|said| age(said, now.0) < ALIVE / 2) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
        match with_retry(|| async { leases.patch(&name, &PatchParams::default(), &patch).await }).await {
            Err(error) if Error::code(&error) != Some(404) => Err(Error::api("renew the pool's Lease")(error)),
            _ => Ok(()),
        }
    }

    /// Gives up the Lease.
    pub(super) async fn unlock(&self) {
        self.seen().held = false;
        let (name, leases) = (self.lock_name(), &self.namespace.leases.api);
        let work = async {
            let lease = with_retry(|| leases.get(&name)).await?;
            if lease.spec.and_then(|spec| spec.holder_identity).as_ref() != Some(&self.identity) {
                return Ok(());
            }
            let version = lease.metadata.resource_version;
            let patch =
                Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": null}}));
            leases.patch(&name, &PatchParams::default(), &patch).await.map(drop)
        };
        if let Err(error) = work.await {
            // Others get it when it hasn't been renewed for a while.
            tracing::debug!(%error, name, "can't give up the pool's Lease");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::cluster::Cluster;
    use crate::raw::namespace::SandboxNamespace;
    use crate::raw::pool::Pool;
    use crate::raw::{Config, Features};

    /// A full pool was written to by nobody, so that nothing told it from one whose programs are gone.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_pool_that_is_looked_after_says_so_and_stays_with_its_holder() -> anyhow::Result<()> {
        let Some(cluster) = rig::cluster().await? else { return Ok(()) };
        let needs = Features { pool: true, ..Features::default() }.needs();
        let namespace = cluster.namespace(needs.policy_rules()).await?;
        let config = Arc::new(Config { warm_pool_size: 1, ..Config::default() });
        let pool = || {
            let namespace = SandboxNamespace::new(Cluster::with_client(namespace.client(), namespace.name()));
            Pool::new(namespace, config.clone(), None)
        };
        let (filler, other) = (pool()?, pool()?);
        // There is nothing to say about a pool that nobody has made.
        other.shared.say_alive().await?;
        anyhow::ensure!(matches!(filler.shared.lock(false).await?, LockAttempt::Held(_)));
        let leases = &filler.shared.namespace.leases;
        let name = filler.shared.lock_name();
        let day = MicroTime(leases.now().await?.0 - Duration::from_secs(86_400));
        let patch = Patch::Merge(json!({"spec": {"renewTime": day}}));
        leases.api.patch(&name, &PatchParams::default(), &patch).await?;
        other.shared.say_alive().await?;
        let lease = leases.api.get(&name).await?;
        let now = leases.now().await?.0;
        let since = lease.last_used().map(|used| age(used, now));
        anyhow::ensure!(since.is_some_and(|since| since < Duration::from_secs(60)), "{since:?}");
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        anyhow::ensure!(holder.as_ref() == Some(&filler.shared.identity), "{holder:?}");
        // Said once is enough for a while.
        let version = lease.metadata.resource_version;
        other.shared.say_alive().await?;
        anyhow::ensure!(leases.api.get(&name).await?.metadata.resource_version == version);
        Ok(())
    }
}
