//! Finds a sandbox or makes it.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use podbay_client::Sandbox;
use podbay_client::provider::{Provided, Wanted};

use super::config::Config;
use super::lease::{self, Deletion, Holder};
use super::manifest::{self, CONTAINER};
use super::occupant::{Occupant, holder, holder_of};
use super::place::Place;
use super::pool::claim::{self, Candidate};
use super::{Raw, network, pulse, setup};
use crate::bootstrap::Limits;
use crate::channel::exec::{Container, ExecChannel};
use crate::error::{Error, Result};
use crate::names::{self, HOME, IDLE_TTL, Marks, POOL, TTL};
use crate::pod::health::{is_running, lost_node};
use crate::pod::startup::{Patience, Waiting};

/// How often a sandbox whose pod is replaced meanwhile is looked at again.
const ATTEMPTS: usize = 20;

/// How long to wait for pods that are about to go when a quota is full. They have two seconds to end, and are still counted
/// for a while after that.
const QUOTA_PATIENCE: Duration = Duration::from_secs(8);

/// How a sandbox is wanted.
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) marks: Marks,
    pub(super) limits: Limits,
}

/// What became of an attempt to claim a pod.
enum Claimed {
    /// The caller has it.
    Ours(Provided),
    /// Somebody else has it.
    Taken,
    /// The Lease has it, and it doesn't answer this caller.
    Unusable(Holder),
}

/// How far this caller is with a Lease.
struct Progress {
    /// When it last wrote to it.
    written: Instant,
    /// Whether what has to be there before a pod is there.
    prepared: bool,
    /// Whether it has just named a pod that nobody can have made yet.
    new_pod: bool,
}

/// A sandbox that is being made. When its maker gives up in the middle, it is removed.
struct Unfinished<'a> {
    raw: &'a Raw,
    name: Option<String>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Outside a runtime nothing can be asked for any more; the reaper finds it.
        let (Some(name), Ok(runtime)) = (self.name.take(), tokio::runtime::Handle::try_current()) else { return };
        let raw = self.raw.clone();
        runtime.spawn(async move {
            // The request that makes it may be cut off here and be served all the same, a moment later.
            for pause in [Duration::ZERO, Duration::from_secs(2)] {
                tokio::time::sleep(pause).await;
                if let Err(error) = raw.remove(&name).await {
                    tracing::warn!(%error, name, "a sandbox that nobody waits for couldn't be removed");
                }
            }
        });
    }
}

impl Raw {
    pub(super) async fn provide(&self, wanted: &Wanted) -> Result<Provided> {
        if wanted.leashed {
            // A cluster doesn't see the end of a process, so the promise couldn't be kept.
            return Err(Error::Config(
                "a sandbox on a cluster can't be leashed to a process: set idle_ttl instead".into(),
            ));
        }
        let wish = self.wish(wanted)?;
        // What can be refused is refused before anything exists, and what protects a pod exists before the pod.
        manifest::pod(&self.config, &wish.name, &wish.marks, Default::default(), None, wish.limits.ttl)?;
        // Under a name that nobody else knows, what isn't handed over is lost.
        let mut unfinished = Unfinished { raw: self, name: wanted.id.is_none().then(|| wish.name.clone()) };
        for _ in 0..ATTEMPTS {
            match self.settle(&wish, wanted.id.is_some()).await {
                // Somebody deleted it in the middle; it is wanted all the same.
                Err(Error::SandboxNotFound(name)) => tracing::debug!(name, "a sandbox was deleted while it was made"),
                settled => {
                    // Only now: it would be in the way of the first sandbox.
                    if let Some(pool) = &self.pool {
                        pool.tend();
                    }
                    if settled.is_ok() {
                        unfinished.name = None;
                    }
                    return settled;
                }
            }
        }
        Err(Error::Config(format!("the sandbox {} was deleted {ATTEMPTS} times while it was being made", wish.name)))
    }

    fn wish(&self, wanted: &Wanted) -> Result<Wish> {
        let name = match &wanted.id {
            Some(id) => names::of_id(id, self.home.cluster.namespace())?.to_owned(),
            None => names::random(),
        };
        let mut labels = self.config.default_labels.clone();
        labels.extend(wanted.labels.clone());
        let mut marks = Marks::new(&name, &self.config.label_prefix, &labels)?;
        if self.config.namespace_per_sandbox {
            marks.labels.insert(HOME.into(), self.home.cluster.namespace.clone());
        }
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs().max(1));
        let limits = Limits {
            ttl: seconds(wanted.ttl).or(self.config.ttl),
            idle_ttl: seconds(wanted.idle_ttl).or(self.config.idle_ttl),
        };
        for (key, seconds) in [(TTL, limits.ttl), (IDLE_TTL, limits.idle_ttl)] {
            if let Some(seconds) = seconds {
                marks.annotations.insert(key.into(), seconds.to_string());
            }
        }
        Ok(Wish { name, marks, limits })
    }

    async fn settle(&self, wish: &Wish, may_exist: bool) -> Result<Provided> {
        let place = self.place(&wish.name);
        let mut candidate = self.pool.as_ref().and_then(|pool| pool.take());
        let mut prepared = false;
        if candidate.is_none() {
            // What there is costs neither a session nor a policy, and what has to be made loses no time by the question.
            let find = async {
                match may_exist {
                    true => place.leases.attach(&wish.name).await,
                    false => Err(Error::SandboxNotFound(wish.name.clone())),
                }
            };
            let written = Instant::now();
            let (found, free, ready) = match (&self.pool, self.config.namespace_per_sandbox) {
                (Some(_), _) => {
                    let (found, free) = futures_util::future::join(find, self.candidate(&[])).await;
                    (found, free, None)
                }
                (None, true) => (find.await, None, None),
                (None, false) => {
                    let (found, ready) = futures_util::future::join(find, self.prepare(wish, &place)).await;
                    (found, None, Some(ready))
                }
            };
            match found {
                Err(Error::SandboxNotFound(_)) => {}
                found => {
                    let prepared = ready.is_some_and(|ready| ready.is_ok());
                    let progress = Progress { written, prepared, new_pod: false };
                    return self.complete(wish, &place, found?, progress).await;
                }
            }
            prepared = ready.transpose()?.is_some();
            candidate = free.map(|candidate| self.approach(&place, candidate));
        }
        if candidate.is_none() && !prepared {
            self.prepare(wish, &place).await?;
            prepared = true;
        }
        let named =
            candidate.as_ref().map_or_else(|| Holder::new_for(&wish.name), |candidate| candidate.holder.clone());
        let written = Instant::now();
        let made = place.leases.make(&wish.name, &wish.marks, &named, self.startup()).await;
        let (mut lease, ours) = match made {
            Ok(made) => made,
            Err(error) => {
                self.put_back(candidate);
                return Err(error);
            }
        };
        let new_pod = ours && candidate.is_none();
        match candidate {
            Some(candidate) if ours => {
                let claimed = self.claim(wish, &place, &lease, written, candidate).await;
                if let Some(pool) = &self.pool {
                    pool.used();
                }
                match claimed {
                    Ok(Claimed::Ours(provided)) => return Ok(provided),
                    Ok(Claimed::Taken) => {}
                    Ok(Claimed::Unusable(pod)) => {
                        let lost = [pod.pod.clone()];
                        lease = self.next_pod(wish, &place, &lease, Some(pod), &lost).await?;
                    }
                    Err(error) => return Err(self.undo(&lease, None, error).await),
                }
            }
            candidate => self.put_back(candidate),
        }
        self.complete(wish, &place, lease, Progress { written, prepared, new_pod }).await
    }

    fn put_back(&self, candidate: Option<Candidate>) {
        if let (Some(candidate), Some(pool)) = (candidate, &self.pool) {
            pool.put_back(candidate);
        }
    }

    /// How long a creator may take. The reaper, which may be configured otherwise, has to know.
    pub(super) fn startup(&self) -> Duration {
        let setup = if self.config.setup_script.is_some() { setup::LONGEST } else { Duration::ZERO };
        Duration::from_secs(self.config.startup_timeout) + setup + lease::CLAIMING
    }

    /// Opens a session to a pod while it is being claimed: that takes longer than anything else.
    fn approach(&self, place: &Place, candidate: Candidate) -> Candidate {
        let channel = channel(place, &candidate.holder, &self.config).ending_after(Limits::default());
        let sandbox = Sandbox::new(channel);
        let opening = sandbox.clone();
        // Should it fail, whoever uses the sandbox tries again and learns why.
        tokio::spawn(async move { drop(opening.hello().await) });
        candidate.with_session(sandbox)
    }

    /// What has to be there before a pod can be made.
    async fn prepare(&self, wish: &Wish, place: &Place) -> Result<()> {
        if self.config.namespace_per_sandbox {
            place.make_namespace(&self.config, self.home.cluster.namespace(), &wish.name).await?;
        }
        network::ensure(&place.cluster, &self.config).await.map(drop)
    }

    /// A pod that waits in the pool, and isn't one of those that others got.
    async fn candidate(&self, not: &[String]) -> Option<Candidate> {
        let pool = self.pool.as_ref()?;
        match pool.candidates().await {
            Ok(candidates) => candidates.into_iter().find(|one| !not.contains(&one.holder.pod)),
            Err(error) => {
                // Without the pool it takes longer, and that is all.
                tracing::warn!(%error, "the pool can't be looked at");
                None
            }
        }
    }

    /// Brings a Lease, which this caller has written to, to its pod: finds it, claims it, or makes it.
    async fn complete(&self, wish: &Wish, place: &Place, mut lease: Lease, mut progress: Progress) -> Result<Provided> {
        let mut lost = Vec::new();
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let holder = holder(&lease)?;
            let occupant = match std::mem::take(&mut progress.new_pod) {
                true => Occupant::NotYet,
                false => place.occupant(&lease, &holder).await?,
            };
            let useless = match occupant {
                Occupant::Live(pod) if !self.never_started(place, &lease, &pod) => {
                    return self.attach(place, &lease, *pod, false).await;
                }
                Occupant::Live(pod) => Some(holder_of(&pod)),
                Occupant::Warm(pod) => {
                    match self.claim(wish, place, &lease, progress.written, Candidate::of(&pod)).await? {
                        Claimed::Ours(provided) => return Ok(provided),
                        Claimed::Taken => continue,
                        Claimed::Unusable(pod) => Some(pod),
                    }
                }
                Occupant::Gone { remains, .. } => remains,
                Occupant::NotYet => {
                    if !progress.prepared {
                        self.prepare(wish, place).await?;
                        progress.prepared = true;
                    }
                    if let Some(provided) = self.make(wish, place, &lease, &holder, &mut refused).await? {
                        return Ok(provided);
                    }
                    continue;
                }
            };
            lost.push(holder.pod);
            progress.written = Instant::now();
            lease = self.next_pod(wish, place, &lease, useless, &lost).await?;
        }
        Err(Error::Config(format!(
            "the sandbox {} lost its pod {ATTEMPTS} times while it was being made; who deletes them?",
            wish.name
        )))
    }

    /// Whether a pod's creator should have been done with it, and it doesn't even run: the creator was killed, and whoever
    /// waits for this pod waits in vain.
    fn never_started(&self, place: &Place, lease: &Lease, pod: &Pod) -> bool {
        lease::is_unfinished(lease)
            && lease::startup_is_over(lease, place.cluster.clock.now(), self.startup())
            && !is_running(pod, CONTAINER)
    }

    /// Has a Lease name another pod, and deletes what is left of the one before. Should somebody else have written the
    /// Lease meanwhile, nothing is deleted; the Lease as it is now.
    async fn next_pod(
        &self,
        wish: &Wish,
        place: &Place,
        lease: &Lease,
        before: Option<Holder>,
        lost: &[String],
    ) -> Result<Lease> {
        let next = self.candidate(lost).await.map(|candidate| candidate.holder);
        let next = next.unwrap_or_else(|| Holder::new_for(&wish.name));
        let newer = place.leases.replace_pod(lease, &next, &wish.marks, self.startup()).await?;
        if let Some(before) = before.filter(|_| Holder::of(&newer) == Some(next)) {
            // The sandbox doesn't need it any more, so this mustn't fail for it; the reaper finds it.
            if let Err(error) = place.delete_pod(&before).await {
                tracing::warn!(%error, pod = before.pod, "the pod that a sandbox had before couldn't be removed");
            }
        }
        Ok(newer)
    }

    /// Makes the pod that a Lease names; nothing when somebody else was faster.
    /// `refused` is since when the namespace's quota is in the way.
    async fn make(
        &self,
        wish: &Wish,
        place: &Place,
        lease: &Lease,
        holder: &Holder,
        refused: &mut Option<Instant>,
    ) -> Result<Option<Provided>> {
        let network = network::label(&self.config)?;
        let owner = lease::owner(lease);
        let pod = manifest::pod(&self.config, &holder.pod, &wish.marks, owner, network.as_deref(), wish.limits.ttl)?;
        let patience = Duration::from_secs(self.config.startup_timeout);
        let pod = match place.make_pod(&pod, patience).await {
            Ok(pod) => pod,
            // The next look finds it.
            Err(error) if Error::code(&error) == Some(409) => return Ok(None),
            // A quota may refuse the second of two before anybody sees that they are the same, and it counts pods that are
            // about to go.
            Err(kube::Error::Api(status)) if is_quota(&status) => {
                let since = *refused.get_or_insert_with(Instant::now);
                let may_pass = place.exists(&holder.pod).await?
                    || since.elapsed() < QUOTA_PATIENCE && place.has_pods_that_go().await?;
                if !may_pass {
                    return Err(self.undo(lease, None, Error::Quota(status.message)).await);
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                return Ok(None);
            }
            Err(error) => return Err(self.undo(lease, None, Error::api("make the sandbox's pod")(error)).await),
        };
        // Somebody may have removed the policy while no pod was under it.
        let started = match network::ensure(&place.cluster, &self.config).await {
            Ok(_) => self.attach(place, lease, pod.clone(), true).await,
            Err(error) => Err(error),
        };
        match started {
            Err(error) => Err(self.undo(lease, Some(&pod), error).await),
            started => started.map(Some),
        }
    }

    /// Claims a pod that waits, for a Lease that was written at some time.
    async fn claim(
        &self,
        wish: &Wish,
        place: &Place,
        lease: &Lease,
        written: Instant,
        candidate: Candidate,
    ) -> Result<Claimed> {
        let limits = lease::limits(lease);
        let Some(pod) = claim::claim(place, lease, &wish.marks, limits.ttl, &candidate).await? else {
            return Ok(Claimed::Taken);
        };
        if written.elapsed() > lease::CLAIMING / 2 {
            // It took so long that the reaper may have taken the Lease for one that was left behind. The pod goes with it.
            place.leases.attach(&wish.name).await.and_then(|newer| match newer.metadata.uid == lease.metadata.uid {
                true => Ok(()),
                false => Err(Error::SandboxNotFound(wish.name.clone())),
            })?;
        }
        let sandbox = candidate.sandbox.unwrap_or_else(|| self.sandbox(place, lease, &pod));
        match claim::set_limits(&sandbox, limits).await {
            Ok(()) => {
                self.watch(place, &wish.name, &sandbox);
                Ok(Claimed::Ours(Provided { id: wish.name.clone(), sandbox, created: true, leash: None }))
            }
            Err(error) => {
                // It waited for too long: its node may be gone.
                tracing::warn!(%error, pod = candidate.holder.pod, "a pod of the pool can't be used");
                Ok(Claimed::Unusable(candidate.holder))
            }
        }
    }

    /// Removes what was made in vain, and gives the reason back.
    pub(super) async fn undo(&self, lease: &Lease, pod: Option<&Pod>, reason: Error) -> Error {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        if let Err(error) = self.remove_unused(name, lease, pod).await {
            tracing::warn!(%error, name, "a sandbox that can't start couldn't be removed");
        }
        reason
    }

    /// Removes a sandbox unless somebody else uses it: it failed for this caller, which needn't be so for others.
    async fn remove_unused(&self, name: &str, lease: &Lease, pod: Option<&Pod>) -> Result<()> {
        let place = self.place(name);
        let mut seen = lease.clone();
        for _ in 0..ATTEMPTS {
            match place.leases.delete(name, lease::unchanged(&seen)).await? {
                Deletion::Done => {
                    if let Some(pod) = pod {
                        place.delete_pod(&holder_of(pod)).await?;
                    }
                    if self.config.namespace_per_sandbox {
                        place.delete_namespace(self.home.cluster.namespace()).await?;
                    }
                    return Ok(());
                }
                Deletion::Absent => return Ok(()),
                // Others who wait for the same pod have written it. Nobody can be using it while nobody has finished it.
                Deletion::Changed => {
                    seen = match place.leases.find(name).await {
                        Err(Error::SandboxNotFound(_)) => return Ok(()),
                        found => found?,
                    };
                    let same = seen.metadata.uid == lease.metadata.uid && Holder::of(&seen) == Holder::of(lease);
                    if !same || !lease::is_unfinished(&seen) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for a pod and gives the sandbox in it. The Lease was written before.
    pub(super) async fn attach(&self, place: &Place, lease: &Lease, pod: Pod, created: bool) -> Result<Provided> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let unfinished = lease::is_unfinished(lease);
        let waiting = self.waiting(place, unfinished);
        let pod = match waiting.until_running(pod.clone()).await {
            // The creator removes its own. This one may have been killed.
            Err(error @ (Error::Startup { .. } | Error::StartupTimeout { .. })) if unfinished && !created => {
                return Err(self.undo(lease, Some(&pod), error).await);
            }
            running => running?,
        };
        if let Some(node) = lost_node(&pod, CONTAINER) {
            return Err(Error::NodeLost { pod: place.label(&pod), node });
        }
        let sandbox = self.sandbox(place, lease, &pod);
        if created {
            introduce(&waiting, &pod, &sandbox).await?;
        }
        let holder = holder_of(&pod);
        // The UID says that nothing is left to be done. Until then, whoever comes helps to finish.
        if unfinished {
            if let Some(script) = &self.config.setup_script {
                match setup::run(&sandbox, script).await {
                    // The creator removes its own.
                    Err(error @ Error::Setup { .. }) if !created => {
                        return Err(self.undo(lease, Some(&pod), error).await);
                    }
                    done => done?,
                }
            }
            place.leases.set_uid(lease, &holder.pod, holder.uid.as_deref().unwrap_or_default()).await?;
        }
        let limits = lease::limits_left(lease, place.cluster.clock.now());
        let pooled = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(POOL));
        if pooled && limits != Limits::default() {
            // Whoever claimed it may have been killed before it could tell podbayd. Nobody has to wait for this.
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                if let Err(error) = claim::set_limits(&sandbox, limits).await {
                    tracing::debug!(%error, "podbayd couldn't be told how long it may go on");
                }
            });
        }
        self.watch(place, &name, &sandbox);
        Ok(Provided { id: name, sandbox, created, leash: None })
    }

    pub(super) fn waiting<'a>(&self, place: &'a Place, fresh: bool) -> Waiting<'a> {
        Waiting {
            cluster: &place.cluster,
            timeout: Duration::from_secs(self.config.startup_timeout),
            patience: Patience { container: CONTAINER, wait_for_node: self.config.wait_for_node, fresh },
        }
    }

    /// The sandbox in a pod. Nothing is opened yet.
    pub(super) fn sandbox(&self, place: &Place, lease: &Lease, pod: &Pod) -> Sandbox {
        let limits = lease::limits_left(lease, place.cluster.clock.now());
        Sandbox::new(channel(place, &holder_of(pod), &self.config).ending_after(limits))
    }

    fn watch(&self, place: &Place, name: &str, sandbox: &Sandbox) {
        pulse::watch(place.leases.clone(), name.to_owned(), sandbox.downgrade());
    }
}

/// Whether a pod was refused because the namespace has used up its quota.
pub(super) fn is_quota(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}

/// The way to a pod's container.
pub(super) fn channel(place: &Place, holder: &Holder, config: &Config) -> ExecChannel {
    let container = Container {
        namespace: place.cluster.namespace.clone(),
        pod: holder.pod.clone(),
        uid: holder.uid.clone().unwrap_or_default(),
        name: CONTAINER.into(),
    };
    let channel = ExecChannel::new(place.cluster.client.clone(), container, &config.workdir);
    if config.command_filter { channel } else { channel.without_command_filter() }
}

/// Brings podbayd into a new pod: now is the time to find out that it doesn't start there, or that the container ends by
/// itself.
pub(super) async fn introduce(waiting: &Waiting<'_>, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
    tokio::select! {
        welcome = sandbox.hello() => match welcome {
            Ok(_) => Ok(()),
            Err(error) => Err(waiting.failure(pod).await.unwrap_or(Error::Unusable(error))),
        },
        error = waiting.until_failed(pod) => Err(error),
    }
}
