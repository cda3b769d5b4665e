//! Removes what is over, and what nobody needs any more.
//!
//! A run lists everything first, then removes what is over by what the cluster says, then asks the podbayd of each sandbox
//! that looks idle. Both kinds of work take what is next in no order, and end after a time: what a run doesn't get to, or
//! can't reach, is left to the next one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use podbay_client::provider::{Cleaned, Phase};

use super::inventory::{Pods, is_being_claimed};
use super::lease::{Deletion, Holder};
use super::manifest::CONTAINER;
use super::occupant::{Occupant, holder, holder_of};
use super::place::Place;
use super::pool::ORPHANED;
use super::{DAY, Raw, lease, network};
use crate::error::{Error, Result};
use crate::listing;
use crate::names::{self, CLAIMED, HOME, POOL, SANDBOX, STATE};
use crate::pod::health::{ending, lost_node};
use crate::retry::patiently;

/// How long a run may take: less than the CronJob of `podbay install` gives it. The next one goes on.
const RUN: Duration = Duration::from_secs(480);

/// How many sandboxes are looked after at once.
const AT_ONCE: usize = 16;

/// How long podbayd has for saying whether it is idle.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a sandbox is looked at again that somebody writes to just then.
const LOOKS: usize = 3;

/// What is to become of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// It is over: nobody has to be asked.
    Over,
    /// It looks idle for longer than this. podbayd knows better.
    Idle(Duration),
}

/// A run of the reaper.
struct Run<'a> {
    raw: &'a Raw,
    max_idle: Option<Duration>,
    until: Instant,
    /// Whether any sandbox on a node has answered, of nodes that have sandboxes which were asked.
    answers: Mutex<HashMap<String, bool>>,
}

impl Raw {
    pub(super) async fn clean(&self, max_idle: Option<Duration>) -> Result<Cleaned> {
        let run = Run { raw: self, max_idle, until: Instant::now() + RUN, answers: Mutex::default() };
        let mut cleaned = Cleaned::default();
        run.sandboxes(&mut cleaned).await?;
        let rest = match self.config.namespace_per_sandbox {
            true => ("namespaces", self.clean_namespaces(&mut cleaned).await),
            false => ("pools and network policies", run.remains(&mut cleaned).await),
        };
        if let (what, Err(error)) = rest {
            cleaned.failed.push((what.into(), error.to_string()));
        }
        cleaned.deleted.sort();
        Ok(cleaned)
    }

    /// Whether a sandbox was used, or runs something, within a time.
    async fn is_busy(&self, place: &Place, lease: &Lease, most: Duration) -> Result<bool> {
        let Occupant::Live(pod) = place.occupant(lease, &holder(lease)?).await? else { return Ok(false) };
        let sandbox = self.sandbox(place, lease, &pod);
        let welcome = match tokio::time::timeout(ANSWER, sandbox.hello()).await {
            Ok(welcome) => welcome,
            Err(_) => {
                let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
                return Err(unasked(&format!("no answer from node {node} within {ANSWER:?}")));
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
}

impl Run<'_> {
    async fn sandboxes(&self, cleaned: &mut Cleaned) -> Result<()> {
        let (leases, selector) = self.raw.all_leases();
        let leases = listing::all(&leases, &selector, "list the sandboxes' Leases").await?;
        let (pods, selector) = self.raw.all_pods();
        let pods = Pods::of(listing::all(&pods, &selector, "list the sandboxes' pods").await?);
        let now = self.raw.home.cluster.now().await;
        let (mut over, mut idle) = (Vec::new(), Vec::new());
        for lease in &leases {
            match self.verdict(lease, pods.named_by(lease), now) {
                Verdict::Stays => cleaned.kept += 1,
                Verdict::Over => over.push((lease.clone(), pods.named_by(lease).cloned())),
                Verdict::Idle(_) => idle.push((lease.clone(), pods.named_by(lease).cloned())),
            }
        }
        // A run that isn't finished begins elsewhere the next time.
        idle.sort_by_cached_key(|_| rand::random::<u64>());
        let mut late = 0;
        let work = futures_util::stream::iter(over.into_iter().chain(idle)).map(|(lease, pod)| async {
            let id = lease.metadata.name.clone().unwrap_or_default();
            match Instant::now() < self.until {
                true => Some((id, self.remove_if_over(lease, pod).await)),
                false => None,
            }
        });
        let all: Vec<_> = work.buffer_unordered(AT_ONCE).collect().await;
        for done in all {
            match done {
                Some((id, Ok(true))) => cleaned.deleted.push(id),
                Some((_, Ok(false))) => cleaned.kept += 1,
                Some((id, Err(error))) => cleaned.failed.push((id, error.to_string())),
                None => late += 1,
            }
        }
        if late > 0 {
            let why = format!("{late} weren't looked at within {} minutes; the next run does", RUN.as_secs() / 60);
            cleaned.failed.push(("sandboxes".into(), why));
        }
        self.pods_before(&leases, &pods, cleaned).await
    }

    fn verdict(&self, lease: &Lease, pod: Option<&Pod>, now: Timestamp) -> Verdict {
        let limits = lease::limits(lease);
        let over = |since: Option<Timestamp>, most: Duration| since.is_some_and(|since| lease::age(since, now) >= most);
        if limits.ttl.is_some_and(|ttl| over(lease::begun(lease), Duration::from_secs(ttl))) {
            return Verdict::Over;
        }
        let phase = self.raw.phase(lease, pod, now);
        if phase == Phase::Terminated {
            return Verdict::Over;
        }
        // Whoever claims a pod for it doesn't write to it again.
        if pod.is_none() && !lease::is_unfinished(lease) && is_being_claimed(lease, now) {
            return Verdict::Stays;
        }
        let most = self.max_idle.into_iter().chain(limits.idle_ttl.map(Duration::from_secs)).min();
        match most {
            Some(most) if over(lease::used(lease), most) => match phase {
                Phase::Running => Verdict::Idle(most),
                _ => Verdict::Over,
            },
            _ => Verdict::Stays,
        }
    }

    /// Removes a sandbox that is over or idle, unless somebody writes to its Lease first; whether it did.
    async fn remove_if_over(&self, mut lease: Lease, mut pod: Option<Pod>) -> Result<bool> {
        let name = &lease.metadata.name.clone().unwrap_or_default();
        let place = self.raw.place(name);
        for _ in 0..LOOKS {
            match self.verdict(&lease, pod.as_ref(), place.cluster.now().await) {
                Verdict::Stays => return Ok(false),
                Verdict::Over => {}
                // The Lease tells of activity once a minute, and only while a client is there; podbayd knows.
                Verdict::Idle(most) => {
                    if self.ask(&place, &lease, pod.as_ref(), most).await? {
                        place.leases.renew(name).await;
                        return Ok(false);
                    }
                }
            }
            match self.raw.remove_lease(&place, &lease, lease::unchanged(&lease)).await? {
                Deletion::Done => return Ok(true),
                Deletion::Absent => return Ok(false),
                Deletion::Changed => {}
            }
            lease = match place.leases.find(name).await {
                Err(Error::SandboxNotFound(_)) => return Ok(false),
                found => found?,
            };
            let named = holder(&lease)?.pod;
            pod = patiently(|| place.pods.get_opt(&named)).await.map_err(Error::api("get the sandbox's pod"))?;
        }
        // It is in use.
        Ok(false)
    }

    /// Whether a sandbox is in use, by what its podbayd says. Of a node that is silent not every sandbox is asked.
    async fn ask(&self, place: &Place, lease: &Lease, pod: Option<&Pod>, most: Duration) -> Result<bool> {
        let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone()).unwrap_or_default();
        if pod.is_some_and(|pod| lost_node(pod, CONTAINER).is_some()) {
            return Err(unasked(&format!("its node {node} doesn't answer the cluster")));
        }
        if self.answers().get(&node) == Some(&false) {
            return Err(unasked(&format!("others on node {node} didn't answer; the next run asks again")));
        }
        let asked = self.raw.is_busy(place, lease, most).await;
        let mut answers = self.answers();
        let answers = answers.entry(node).or_default();
        *answers |= asked.is_ok();
        asked
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pods that sandboxes had before they were revived. Whoever revives one deletes its old pod, unless it is killed in
    /// between.
    async fn pods_before(&self, leases: &[Lease], pods: &Pods, cleaned: &mut Cleaned) -> Result<()> {
        for lease in leases {
            let stray = |lease: &Lease, pod: &Pod| {
                let named = Holder::of(lease).is_some_and(|holder| pod.metadata.name.as_ref() == Some(&holder.pod));
                let owners = pod.metadata.owner_references.iter().flatten();
                let owned = owners.into_iter().any(|owner| Some(&owner.uid) == lease.metadata.uid.as_ref());
                owned && !named && pod.metadata.deletion_timestamp.is_none()
            };
            for pod in pods.of_lease(lease).iter().filter(|pod| stray(lease, pod)) {
                let name = lease.metadata.name.as_deref().unwrap_or_default();
                let place = self.raw.place(name);
                // The pods were listed after the Leases, so that this may be a new one.
                match place.leases.find(name).await {
                    Ok(newer) if stray(&newer, pod) => {
                        place.delete_pod(&holder_of(pod)).await?;
                        cleaned.deleted.extend(pod.metadata.name.clone());
                    }
                    Ok(_) | Err(Error::SandboxNotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Pools that nobody looks after, pods of pools that have ended, and network policies that no pod is under.
    async fn remains(&self, cleaned: &mut Cleaned) -> Result<()> {
        self.pools(cleaned).await?;
        let home = &self.raw.home;
        let waiting = format!("{},{POOL},{STATE}!={CLAIMED}", names::ours());
        let pods = listing::all(&home.pods, &waiting, "list the pods of pools").await?;
        for pod in pods.iter().filter(|pod| ending(pod, CONTAINER).is_some()) {
            if pod.metadata.deletion_timestamp.is_none() {
                home.delete_pod(&holder_of(pod)).await?;
                cleaned.deleted.extend(pod.metadata.name.clone());
            }
        }
        match network::clean(&home.cluster, &home.pods).await {
            // An account that blocks no networks needn't have the right to.
            Err(Error::PermissionDenied { .. }) if !self.raw.config.block_network => Ok(()),
            done => done.map(drop),
        }
    }

    /// A pool's pods that nobody has claimed belong to its Lease, and go with it. The garbage collector, too, deletes only
    /// what is as it saw it, so one that is being claimed stays.
    async fn pools(&self, cleaned: &mut Cleaned) -> Result<()> {
        let home = &self.raw.home;
        let ours = format!("{},{POOL},!{SANDBOX}", names::ours());
        let most = self.raw.config.idle_ttl.unwrap_or(DAY);
        let most = self.max_idle.unwrap_or(Duration::MAX).min(Duration::from_secs(most)).max(ORPHANED);
        for pool in listing::all(&home.leases.api, &ours, "list the pools' Leases").await? {
            let now = home.cluster.now().await;
            let made = pool.metadata.creation_timestamp.as_ref().map(|made| made.0);
            let used = lease::used(&pool).or(made);
            if used.is_none_or(|used| lease::age(used, now) <= most) {
                continue;
            }
            let name = pool.metadata.name.clone().unwrap_or_default();
            if home.leases.delete(&name, lease::unchanged(&pool)).await? == Deletion::Done {
                cleaned.deleted.push(name);
            }
        }
        Ok(())
    }
}

impl Raw {
    /// Namespaces of sandboxes that were never completed, or whose deletion was interrupted.
    async fn clean_namespaces(&self, cleaned: &mut Cleaned) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.home.cluster.client.clone());
        let home = self.home.cluster.namespace();
        let ours = format!("{},{HOME}={home},{SANDBOX}", names::ours());
        let now = self.home.cluster.now().await;
        for namespace in listing::all(&namespaces, &ours, "list the sandboxes' namespaces").await? {
            let age = namespace.metadata.creation_timestamp.map_or(0, |made| lease::age(made.0, now).as_secs());
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

fn unasked(why: &str) -> Error {
    Error::Config(format!("podbayd can't be asked whether it is idle: {why}"))
}
