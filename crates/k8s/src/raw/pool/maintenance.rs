//! Maintains a pool for as long as its client lives: keeps a session open to the next pod that can be claimed, and has the
//! pool refilled. A watch tells it which pods there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::claim::Candidate;
use super::lock::ALIVE;
use super::refill::{RefillMode, RefillOutcome};
use crate::api::follow::{Change, Watch};
use crate::api::retry::Backoff;
use crate::pod::health::is_ready;
use crate::raw::manifest::CONTAINER;

/// How long to wait while another client fills the pool: it may be interrupted.
const WHILE_BUSY: Duration = Duration::from_secs(1);

/// How long to wait after a failure; each further one doubles it, up to five minutes. A pool that can't be filled, because
/// there is no room or the image is bad, mustn't keep the cluster busy.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// How long opening a session may take.
const OPENING: Duration = Duration::from_secs(20);

/// How long nothing is done after somebody has claimed a pod: opening sessions and creating pods would slow down the first
/// command.
const QUIET: Duration = Duration::from_millis(150);

/// Maintains a pool forever.
pub(super) async fn maintain(shared: Arc<Shared>) {
    let say_alive = async {
        loop {
            // Of many clients that began at once, the first one writes for all.
            tokio::time::sleep(ALIVE.mul_f64(rand::random_range(0.5..1.0))).await;
            if let Err(error) = shared.say_alive().await {
                tracing::warn!(%error, pool = shared.config.warm_pool_name, "can't record that the pool is in use");
            }
        }
    };
    let mut maintainer = Maintainer {
        shared: shared.clone(),
        warm: BTreeMap::new(),
        refill: JoinSet::new(),
        not_before: None,
        quiet: None,
        failures: 0,
    };
    let watch = async {
        let mut backoff = Backoff::default();
        loop {
            let error = maintainer.follow().await;
            tracing::warn!(%error, "can't watch the pool");
            tokio::time::sleep(backoff.next()).await;
        }
    };
    tokio::select! {
        () = watch => {}
        () = say_alive => {}
    }
}

struct Maintainer {
    shared: Arc<Shared>,
    /// The pods that can be claimed, by name.
    warm: BTreeMap<String, Warm>,
    refill: JoinSet<bool>,
    not_before: Option<Instant>,
    quiet: Option<Instant>,
    failures: u32,
}

struct Warm {
    pod: Pod,
    /// A session to it was opened already, or couldn't be.
    tried: bool,
}

impl Maintainer {
    /// Follows the pool's pods until the API server refuses.
    async fn follow(&mut self) -> kube::Error {
        let shared = self.shared.clone();
        let mut watch = Watch::labelled(shared.namespace.pods.clone(), &shared.warm_selector());
        loop {
            let (pause, quiet) = (self.not_before, self.quiet);
            tokio::select! {
                change = watch.next() => match change {
                    Ok(Change::Listed(pods)) => self.replace_all(pods),
                    Ok(Change::Applied(pod)) => self.add(pod),
                    // A pod that was claimed doesn't match the selector any more.
                    Ok(Change::Deleted(pod)) => {
                        self.remove(&pod);
                        self.hush();
                    }
                    Err(error) => return error,
                },
                () = shared.taken.notified() => self.hush(),
                Some(filled) = self.refill.join_next() => self.note(filled.unwrap_or(false)),
                () = until(pause) => self.not_before = None,
                () = until(quiet) => self.quiet = None,
            }
            self.tend().await;
        }
    }

    fn replace_all(&mut self, pods: Vec<Pod>) {
        let before = std::mem::take(&mut self.warm);
        for pod in pods {
            self.add(pod);
        }
        for (name, Warm { pod, tried }) in before {
            match self.warm.get_mut(&name) {
                Some(still) => still.tried = tried,
                None => self.remove(&pod),
            }
        }
    }

    fn add(&mut self, pod: Pod) {
        match is_ready(&pod, CONTAINER) {
            true => {
                let name = pod.metadata.name.clone().unwrap_or_default();
                let tried = self.warm.get(&name).is_some_and(|before| before.tried);
                self.warm.insert(name, Warm { pod, tried });
            }
            false => self.remove(&pod),
        }
    }

    fn remove(&mut self, pod: &Pod) {
        self.warm.remove(pod.metadata.name.as_deref().unwrap_or_default());
        let mut held = self.shared.held();
        // Somebody else has claimed it.
        if held.as_ref().is_some_and(|held| held.holder.uid == pod.metadata.uid) {
            *held = None;
        }
    }

    /// Does nothing for a moment. Not forever, however many pods are claimed.
    fn hush(&mut self) {
        self.quiet.get_or_insert(Instant::now() + QUIET);
    }

    async fn tend(&mut self) {
        if self.quiet.is_some() {
            return;
        }
        self.hold().await;
        let short = self.warm.len() < self.shared.target();
        if short && self.refill.is_empty() && self.not_before.is_none() {
            let shared = self.shared.clone();
            self.refill.spawn(async move {
                match shared.refill(RefillMode::AddMissing).await {
                    Ok(RefillOutcome::Superseded) => {
                        tracing::warn!(
                            pool = shared.config.warm_pool_name,
                            "a client with a newer configuration has taken over the pool: sandboxes of this client start \
                             cold. To keep both, give them different warm_pool_name settings"
                        );
                        false
                    }
                    Ok(_) => true,
                    Err(error) => {
                        tracing::warn!(%error, pool = shared.config.warm_pool_name, "can't fill the pool");
                        false
                    }
                }
            });
        }
    }

    fn note(&mut self, well: bool) {
        self.failures = if well { 0 } else { self.failures.saturating_add(1) };
        let pause = match self.failures {
            0 => WHILE_BUSY,
            n => (AFTER_FAILURE * 2_u32.saturating_pow(n.min(8) - 1)).min(Duration::from_secs(300)),
        };
        self.not_before = Some(Instant::now() + pause);
    }

    /// Opens a session to a pod that can be claimed, if none is open. Of several clients, each takes one at random.
    async fn hold(&mut self) {
        while self.shared.held().is_none() {
            let untried: Vec<&mut Warm> = self.warm.values_mut().filter(|warm| !warm.tried).collect();
            let chosen = rand::random_range(0..untried.len().max(1));
            let Some(warm) = untried.into_iter().nth(chosen) else { return };
            warm.tried = true;
            let pod = warm.pod.clone();
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let sandbox = self.shared.sandbox(&pod);
            match tokio::time::timeout(OPENING, sandbox.hello()).await {
                Ok(Ok(_)) => {
                    *self.shared.held() = Some(Candidate::of(&pod).with_session(sandbox));
                }
                Ok(Err(error)) => tracing::debug!(%error, name, "no session to a pod of the pool"),
                Err(_) => tracing::debug!(name, "no session to a pod of the pool in time"),
            }
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
