//! Finds a sandbox or makes it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use podbay_client::Sandbox;
use podbay_client::provider::{Provided, Wanted};

use super::lease::{self, Holder};
use super::manifest::{self, CONTAINER};
use super::occupant::{Occupant, holder, holder_of};
use super::place::Place;
use super::pool::claim::{self, Candidate};
use super::{Raw, network, pulse, setup};
use crate::bootstrap::Limits;
use crate::channel::exec::{Container, ExecChannel};
use crate::error::{Error, Result};
use crate::names::{self, HOME, IDLE_TTL, Marks, POOL, TTL};
use crate::pod::startup::{Patience, Waiting};

/// How often a sandbox whose pod is replaced meanwhile is looked at again.
const ATTEMPTS: usize = 20;

/// How a sandbox is wanted.
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) marks: Marks,
    pub(super) limits: Limits,
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
        for _ in 0..ATTEMPTS {
            match self.settle(&wish, wanted.id.is_some()).await {
                // Somebody deleted it in the middle; it is wanted all the same.
                Err(Error::SandboxNotFound(name)) => tracing::debug!(name, "a sandbox was deleted while it was made"),
                settled => {
                    // Only now: it would be in the way of the first sandbox.
                    if let Some(pool) = &self.pool {
                        pool.tend();
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
        if candidate.is_none() && self.pool.is_some() {
            // Mostly it doesn't exist, but then it mustn't cost a session.
            let find = async {
                match may_exist {
                    true => place.leases.find(&wish.name).await,
                    false => Err(Error::SandboxNotFound(wish.name.clone())),
                }
            };
            let (found, free) = futures_util::future::join(find, self.candidate(&[])).await;
            match found {
                Err(Error::SandboxNotFound(_)) => {}
                found => return self.complete(wish, &place, found?, false).await,
            }
            candidate = free.map(|candidate| self.approach(&place, candidate));
        }
        let prepared = candidate.is_none();
        if prepared {
            self.prepare(wish, &place).await?;
        }
        let named =
            candidate.as_ref().map_or_else(|| Holder::new_for(&wish.name), |candidate| candidate.holder.clone());
        let made = place.leases.make(&wish.name, &wish.marks, &named).await;
        match (candidate, &made, &self.pool) {
            (Some(candidate), Ok((lease, true)), pool) => {
                let claimed = self.claim(wish, &place, lease, candidate).await;
                if let Some(pool) = pool {
                    pool.used();
                }
                if let Some(provided) = claimed? {
                    return Ok(provided);
                }
            }
            (Some(candidate), _, Some(pool)) => pool.put_back(candidate),
            _ => {}
        }
        let (lease, _) = made?;
        self.complete(wish, &place, lease, prepared).await
    }

    /// Opens a session to a pod while it is being claimed: that takes longer than anything else.
    fn approach(&self, place: &Place, candidate: Candidate) -> Candidate {
        let channel = channel(place, &candidate.holder, &self.config.workdir).ending_after(Limits::default());
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

    /// Brings a Lease to its pod: finds it, claims it, or makes it.
    async fn complete(&self, wish: &Wish, place: &Place, mut lease: Lease, mut prepared: bool) -> Result<Provided> {
        let mut lost = Vec::new();
        for _ in 0..ATTEMPTS {
            let holder = holder(&lease)?;
            match place.occupant(&lease, &holder).await? {
                Occupant::Live(pod) => return self.attach(place, &lease, *pod, false).await,
                Occupant::Warm(pod) => {
                    if let Some(provided) = self.claim(wish, place, &lease, Candidate::of(&pod)).await? {
                        return Ok(provided);
                    }
                }
                Occupant::Gone(_) => {
                    lost.push(holder.pod);
                    let next = self.candidate(&lost).await.map(|candidate| candidate.holder);
                    let next = next.unwrap_or_else(|| Holder::new_for(&wish.name));
                    lease = place.leases.replace_pod(&lease, &next, &wish.marks).await?;
                }
                Occupant::NotYet => {
                    if !prepared {
                        self.prepare(wish, place).await?;
                        prepared = true;
                    }
                    if let Some(provided) = self.make(wish, place, &lease, &holder).await? {
                        return Ok(provided);
                    }
                }
            }
        }
        Err(Error::Config(format!(
            "the sandbox {} lost its pod {ATTEMPTS} times while it was being made; who deletes them?",
            wish.name
        )))
    }

    /// Makes the pod that a Lease names; nothing when somebody else was faster.
    async fn make(&self, wish: &Wish, place: &Place, lease: &Lease, holder: &Holder) -> Result<Option<Provided>> {
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
            Err(kube::Error::Api(status)) if is_quota(&status) && place.has_pods().await? => {
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

    /// Claims a pod that waits; nothing when somebody else has it.
    async fn claim(&self, wish: &Wish, place: &Place, lease: &Lease, candidate: Candidate) -> Result<Option<Provided>> {
        let limits = lease::limits(lease);
        let Some(pod) = claim::claim(place, lease, &wish.marks, limits.ttl, &candidate).await? else {
            return Ok(None);
        };
        let sandbox = candidate.sandbox.unwrap_or_else(|| self.sandbox(place, lease, &pod));
        match claim::set_limits(&sandbox, limits).await {
            Ok(()) => {
                self.watch(place, &wish.name, &sandbox);
                Ok(Some(Provided { id: wish.name.clone(), sandbox, created: true, leash: None }))
            }
            Err(error) => {
                // It waited for too long: its node may be gone. Another one takes its place.
                tracing::warn!(%error, pod = candidate.holder.pod, "a pod of the pool can't be used");
                place.delete_pod(&candidate.holder).await?;
                Ok(None)
            }
        }
    }

    /// Removes what was made in vain, and gives the reason back.
    pub(super) async fn undo(&self, lease: &Lease, pod: Option<&Pod>, reason: Error) -> Error {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let place = self.place(name);
        if let Err(error) = place.leases.delete(name, lease::this(lease)).await {
            tracing::warn!(%error, name, "a sandbox that can't start couldn't be removed");
        }
        if let Some(pod) = pod
            && let Err(error) = place.delete_pod(&holder_of(pod)).await
        {
            tracing::warn!(%error, name, "the pod of a sandbox that can't start couldn't be removed");
        }
        if self.config.namespace_per_sandbox
            && let Err(error) = place.delete_namespace(self.home.cluster.namespace()).await
        {
            tracing::warn!(%error, name, "the namespace of a sandbox that can't start couldn't be removed");
        }
        reason
    }

    /// Waits for a pod and gives the sandbox in it.
    pub(super) async fn attach(&self, place: &Place, lease: &Lease, pod: Pod, created: bool) -> Result<Provided> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let waiting = self.waiting(place, created);
        let pod = waiting.until_running(pod).await?;
        let sandbox = self.sandbox(place, lease, &pod);
        if created {
            introduce(&waiting, &pod, &sandbox).await?;
        }
        let holder = holder_of(&pod);
        // The UID says that nothing is left to be done. Until then, whoever comes helps to finish.
        if Holder::of(lease).is_some_and(|holder| holder.uid.is_none()) {
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
        let unused = lease::used(lease).map_or(0, |used| Timestamp::now().as_second() - used.as_second());
        if unused >= pulse::EVERY.as_secs() as i64 {
            place.leases.renew(&name).await;
        }
        let limits = lease::limits_left(lease);
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
        let limits = lease::limits_left(lease);
        Sandbox::new(channel(place, &holder_of(pod), &self.config.workdir).ending_after(limits))
    }

    fn watch(&self, place: &Place, name: &str, sandbox: &Sandbox) {
        pulse::watch(place.leases.clone(), name.to_owned(), sandbox.downgrade());
    }
}

fn is_quota(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}

/// The way to a pod's container.
pub(super) fn channel(place: &Place, holder: &Holder, workdir: &str) -> ExecChannel {
    let container = Container {
        namespace: place.cluster.namespace.clone(),
        pod: holder.pod.clone(),
        uid: holder.uid.clone().unwrap_or_default(),
        name: CONTAINER.into(),
    };
    ExecChannel::new(place.cluster.client.clone(), container, workdir)
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
