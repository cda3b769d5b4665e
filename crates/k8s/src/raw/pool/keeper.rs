//! Looks after a pool for as long as its client lives: keeps a session open to the next pod that can be claimed, and has
//! the pool refilled. What it knows comes from a watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::claim::Candidate;
use super::lock::ALIVE;
use super::refill::{Outcome, Zeal};
use crate::error::Error;
use crate::pod::health::is_ready;
use crate::raw::manifest::CONTAINER;
use crate::retry::{Pauses, passes};

/// How long to wait when another client fills the pool: it may be interrupted.
const WHILE_BUSY: Duration = Duration::from_secs(1);

/// How long to wait after a failure; each further one doubles it, up to five minutes. A pool that can't be filled, because
/// there is no room or the image is bad, mustn't keep the cluster busy.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// How long opening a session may take.
const OPENING: Duration = Duration::from_secs(20);

/// How long whoever got a pod is left alone with it: opening sessions and making pods would be in the way of the first
/// command.
const QUIET: Duration = Duration::from_millis(150);

/// Looks after a pool, for ever.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut keeper = Keeper {
        shared: shared.clone(),
        warm: BTreeMap::new(),
        refill: JoinSet::new(),
        not_before: None,
        quiet: None,
        failures: 0,
    };
    let mut pauses = Pauses::default();
    let say_alive = async {
        loop {
            // Of many clients that began at once, the first to say it says it for all.
            tokio::time::sleep(ALIVE.mul_f64(rand::random_range(0.5..1.0))).await;
            if let Err(error) = shared.say_alive().await {
                tracing::warn!(%error, pool = shared.config.warm_pool_name, "nobody may know that this pool is used");
            }
        }
    };
    let watch = async {
        loop {
            match keeper.follow().await {
                Ok(()) => pauses = Pauses::default(),
                // A version that is too old is nothing to speak of.
                Err(error) if passes(&error) || Error::code(&error) == Some(410) => {
                    tracing::debug!(%error, "watching the pool again");
                }
                Err(error) => tracing::warn!(%error, "the pool can't be watched"),
            }
            tokio::time::sleep(pauses.next()).await;
        }
    };
    tokio::select! {
        () = watch => {}
        () = say_alive => {}
    }
}

struct Keeper {
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

impl Keeper {
    /// Lists, then watches, until the watch ends.
    async fn follow(&mut self) -> Result<(), kube::Error> {
        let pods = self.shared.place.pods.clone();
        let selector = self.shared.warm_selector();
        let list = pods.list(&ListParams::default().labels(&selector)).await?;
        let before = std::mem::take(&mut self.warm);
        for pod in list.items {
            self.add(pod);
        }
        for (name, Warm { pod, tried }) in before {
            match self.warm.get_mut(&name) {
                Some(still) => still.tried = tried,
                None => self.remove(&pod),
            }
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = Box::pin(pods.watch(&WatchParams::default().labels(&selector), &version).await?);
        let shared = self.shared.clone();
        loop {
            self.tend().await;
            let (pause, quiet) = (self.not_before, self.quiet);
            tokio::select! {
                event = events.try_next() => match event? {
                    Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => self.add(pod),
                    // One that was claimed is out of the selection.
                    Some(WatchEvent::Deleted(pod)) => {
                        self.remove(&pod);
                        self.hush();
                    }
                    Some(WatchEvent::Bookmark(_)) => {}
                    Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
                    None => return Ok(()),
                },
                () = shared.taken.notified() => self.hush(),
                Some(filled) = self.refill.join_next() => self.note(filled.unwrap_or(false)),
                () = until(pause) => self.not_before = None,
                () = until(quiet) => self.quiet = None,
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
        // Another has it now: it is none of our business any more.
        if held.as_ref().is_some_and(|held| held.holder.uid == pod.metadata.uid) {
            *held = None;
        }
    }

    /// Leaves whoever got a pod alone. Not for ever, however many get one.
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
                match shared.refill(Zeal::Missing).await {
                    Ok(Outcome::Superseded) => {
                        tracing::warn!(
                            pool = shared.config.warm_pool_name,
                            "the pool belongs to clients with another configuration, which came later: sandboxes start \
                             cold here. Set warm_pool_name where both are meant to stay"
                        );
                        false
                    }
                    Ok(_) => true,
                    Err(error) => {
                        tracing::warn!(%error, pool = shared.config.warm_pool_name, "the pool can't be filled");
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
