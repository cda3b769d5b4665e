//! Pods that wait to become sandboxes, with podbayd running in them.
//!
//! A label holds the state of a pool's pod: it is *warming* until podbayd answers in it and the setup script has run, then
//! *warm*, and *claimed* once it belongs to a sandbox. Any number of clients share a pool: of those that want one pod, the
//! API server lets one have it, and only whoever holds the pool's Lease creates new ones.
//!
//! Every client writes to the pool's Lease now and then, also while the pool is full. The reaper removes a pool that nobody
//! writes to.

pub(crate) mod claim;
mod lock;
mod maintenance;
mod refill;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use podbay_client::provider::PoolStatus;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::config::Config;
use super::manifest::CONTAINER;
use super::namespace::SandboxNamespace;
use super::{manifest, network};
use crate::api::retry::with_retry;
use crate::channel::in_cluster::PodAddresses;
use crate::error::{Error, Result};
use crate::names::{self, CLAIMED, MANAGED_BY, Metadata, PODBAY, POOL, STATE, TEMPLATE, WARM, WARMING};
use crate::pod::health::{ending, is_ready};
use claim::Candidate;
pub(crate) use lock::ORPHANED;

/// A pool, as one client sees it.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Maintains the pool while this client lives.
    maintenance: Mutex<Option<JoinHandle<()>>>,
}

/// What maintenance knows as well.
struct Shared {
    namespace: SandboxNamespace,
    config: Arc<Config>,
    addresses: Option<Arc<PodAddresses>>,
    /// The hash of everything that defines a pod: pods with another hash are outdated.
    template: String,
    /// This client's name in the pool's Lease.
    identity: String,
    /// A pod to which a session is open: the next to be claimed.
    held: Mutex<Option<Candidate>>,
    /// Notified when that pod was claimed.
    taken: Notify,
    lock: Mutex<lock::LockView>,
    /// Held by whoever fills the pool in this process: the Lease doesn't tell maintenance from a caller of `refill`.
    filling: tokio::sync::Mutex<()>,
}

impl Pool {
    pub(crate) fn new(
        namespace: SandboxNamespace,
        config: Arc<Config>,
        addresses: Option<Arc<PodAddresses>>,
    ) -> Result<Self> {
        let template = template(&config)?;
        let shared = Shared {
            namespace,
            config,
            addresses,
            template,
            identity: names::random(),
            held: Mutex::default(),
            taken: Notify::new(),
            lock: Mutex::default(),
            filling: tokio::sync::Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), maintenance: Mutex::default() })
    }

    /// Maintains the pool in the background until this is dropped.
    pub(crate) fn maintain(&self) {
        let mut maintenance = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        // The runtime in which it ran may be gone.
        if maintenance.as_ref().is_none_or(JoinHandle::is_finished) {
            *maintenance = Some(tokio::spawn(maintenance::maintain(self.shared.clone())));
        }
    }

    /// The pod that a session is open to, if there is one. Whoever takes it claims it or puts it back.
    pub(crate) fn take(&self) -> Option<Candidate> {
        self.shared.held().take()
    }

    /// Says that the pod was claimed, so that another session is opened.
    pub(crate) fn used(&self) {
        self.shared.taken.notify_one();
    }

    /// Gives back a pod that wasn't needed.
    pub(crate) fn put_back(&self, candidate: Candidate) {
        let mut held = self.shared.held();
        if held.is_none() && candidate.sandbox.is_some() {
            *held = Some(candidate);
        }
    }

    /// The pods that can be claimed, in random order, so that callers at the same time don't all want the same one.
    pub(crate) async fn candidates(&self) -> Result<Vec<Candidate>> {
        // From the API server's cache: a list that must be current waits there for up to 100 ms, and the claim of a pod that
        // isn't warm any more is refused.
        let warm = self.shared.list(ListParams::default().labels(&self.shared.warm_selector()).match_any()).await?;
        let mut candidates: Vec<Candidate> =
            warm.iter().filter(|pod| is_ready(pod, CONTAINER)).map(Candidate::of).collect();
        candidates.sort_by_cached_key(|_| rand::random::<u64>());
        Ok(candidates)
    }

    /// Brings the pool to its size, and maintains it from then on.
    pub(crate) async fn fill(&self) -> Result<PoolStatus> {
        let patience = Duration::from_secs(self.shared.config.startup_timeout);
        let begun = Instant::now();
        loop {
            match self.shared.refill(refill::RefillMode::Exact).await? {
                refill::RefillOutcome::Full => break,
                refill::RefillOutcome::Busy if begun.elapsed() > patience => {
                    return Err(Error::PoolBusy {
                        pool: self.shared.config.warm_pool_name.clone(),
                        seconds: patience.as_secs(),
                    });
                }
                _ => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
        if self.shared.config.warm_pool_size > 0 {
            self.maintain();
        }
        self.status().await
    }

    pub(crate) async fn status(&self) -> Result<PoolStatus> {
        let all = self.shared.list(ListParams::default().labels(&self.shared.pool_selector())).await?;
        let live: Vec<&Pod> = all.iter().filter(|pod| ending(pod, CONTAINER).is_none()).collect();
        let fresh = |pod: &&&Pod| label(pod, TEMPLATE) == Some(&self.shared.template);
        Ok(PoolStatus {
            available: live.iter().filter(|pod| label(pod, STATE) == Some(WARM)).filter(fresh).count(),
            active: live.iter().filter(|pod| label(pod, STATE) == Some(CLAIMED)).count(),
            total: live.len(),
            target: self.shared.target(),
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(maintenance) = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner).take() {
            maintenance.abort();
        }
        // So that others needn't wait until the Lease expires.
        if self.shared.has_lock()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let shared = self.shared.clone();
            runtime.spawn(async move { shared.unlock().await });
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Candidate>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> usize {
        self.config.warm_pool_size as usize
    }

    fn pool_selector(&self) -> String {
        format!("{},{POOL}={}", names::ours(), self.config.warm_pool_name)
    }

    /// Selects the pods that nobody has claimed. There may be thousands that somebody has.
    fn waiting_selector(&self) -> String {
        format!("{},{STATE}!={CLAIMED}", self.pool_selector())
    }

    fn warm_selector(&self) -> String {
        format!("{},{STATE}={WARM},{TEMPLATE}={}", self.pool_selector(), self.template)
    }

    async fn list(&self, parameters: ListParams) -> Result<Vec<Pod>> {
        let list = with_retry(|| self.namespace.pods.list(&parameters)).await;
        Ok(list.map_err(Error::api("list the pods of the pool"))?.items)
    }

    /// The labels of a pod that is made for the pool.
    fn metadata(&self) -> Result<Metadata> {
        let mut metadata = metadata(&self.config)?;
        metadata.labels.extend([(STATE.into(), WARMING.into()), (TEMPLATE.into(), self.template.clone())]);
        Ok(metadata)
    }
}

fn metadata(config: &Config) -> Result<Metadata> {
    let mut metadata = Metadata::new("", &config.label_prefix, &config.default_labels)?;
    metadata.labels.remove(names::SANDBOX);
    metadata.labels.extend([(MANAGED_BY.into(), PODBAY.into()), (POOL.into(), config.warm_pool_name.clone())]);
    // A claim adds to the pod's annotations, so there have to be some.
    metadata.annotations.insert(names::MADE_BY.into(), env!("CARGO_PKG_VERSION").into());
    Ok(metadata)
}

/// The hash of everything that defines a pod of the pool.
fn template(config: &Config) -> Result<String> {
    let network = network::label(config)?;
    let pod = manifest::pod(config, "", &metadata(config)?, Default::default(), network.as_deref(), None)?;
    let text = serde_json::to_vec(&(&pod, &config.setup_script)).map_err(Error::manifest("a pod of the pool"))?;
    Ok(names::hash(&text))
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_makes_a_pod_changes_the_template() {
        let plain = template(&Config::default()).unwrap();
        assert_eq!(plain, template(&Config { warm_pool_size: 7, ttl: Some(5), ..Config::default() }).unwrap());
        let others = [
            Config { image: "other:1".into(), ..Config::default() },
            Config { setup_script: Some("true".into()), ..Config::default() },
            Config { block_network: false, ..Config::default() },
            Config { memory_limit: "2Gi".into(), ..Config::default() },
        ];
        for other in others {
            assert_ne!(plain, template(&other).unwrap());
        }
    }

    #[tokio::test]
    async fn pools_of_different_names_share_neither_pods_nor_a_lease() {
        let pool = |name: &str| {
            let config = Arc::new(Config { warm_pool_name: name.into(), ..Config::default() });
            let namespace = SandboxNamespace::new(crate::cluster::Cluster::without_api("agents"));
            Pool::new(namespace, config, None).unwrap().shared.clone()
        };
        let (one, other) = (pool("one"), pool("other"));
        assert_eq!(one.metadata().unwrap().labels[POOL], "one");
        for (selector, of_other) in
            [(one.waiting_selector(), other.waiting_selector()), (one.warm_selector(), other.warm_selector())]
        {
            assert!(selector.contains(&format!("{POOL}=one,")) && selector != of_other, "{selector}");
        }
        assert_eq!((one.lock_name().as_str(), other.lock_name().as_str()), ("pb-pool-one", "pb-pool-other"));
    }
}
