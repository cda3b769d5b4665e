//! Finds a sandbox or creates it.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use podbay_client::Sandbox;
use podbay_client::provider::{Launch, Provided, Wanted};

use super::attach::channel;
use super::config::Config;
use super::lease::{self, Holder};
use super::manifest::{self, CONTAINER};
use super::namespace::SandboxNamespace;
use super::pod_state::{PodState, holder, holder_of};
use super::pool::claim::{self, Candidate};
use super::{Raw, network, setup};
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names::HOME;
use crate::pod::health::is_running;
use crate::sandbox_object::{Deletion, SandboxObject, SandboxObjects, unchanged};
use crate::sandbox_spec::{Removes, SandboxSpec, SpecDefaults, Unfinished};

/// How often a sandbox is looked at again whose pod others replace.
const ATTEMPTS: usize = 20;

/// How long to wait for pods that are being deleted when a quota is full. They have two seconds to end, and count for a while
/// after that.
const QUOTA_PATIENCE: Duration = Duration::from_secs(8);

/// How an attempt to claim a pod ended.
enum ClaimOutcome {
    /// The caller has it.
    Ours(Provided),
    /// Somebody else has it.
    Taken,
    /// The Lease owns it, and its podbayd doesn't answer this caller.
    Unusable(Holder),
}

/// How far this caller is with a Lease.
struct CreationProgress {
    /// When it last wrote to it.
    written: Instant,
    /// Whether everything exists that a pod needs.
    prepared: bool,
    /// Whether it has just named a pod that nobody can have created yet.
    new_pod: bool,
}

impl Removes for Raw {
    async fn remove(&self, name: &str) -> Result<bool> {
        self.remove(name).await
    }
}

impl Raw {
    pub(super) async fn provide(&self, wanted: &Wanted) -> Result<Provided> {
        let spec = spec_for(&self.config, self.home.cluster.namespace(), wanted)?;
        // Whatever can be refused is refused before anything exists.
        manifest::pod(&self.config, &spec.name, &spec.metadata, Default::default(), None, spec.limits.ttl)?;
        let unfinished = Unfinished::new(self, wanted, &spec);
        for _ in 0..ATTEMPTS {
            match self.find_or_create(&spec, wanted.id.is_some()).await {
                // Somebody deleted or replaced it meanwhile; it is wanted all the same.
                Err(Error::SandboxNotFound(name) | Error::Superseded(name)) => {
                    tracing::debug!(name, "a sandbox was deleted or replaced while it was being created");
                }
                Err(error) if self.config.namespace_per_sandbox && error.is_namespace_gone() => {
                    tracing::debug!(%error, "a sandbox's namespace was deleted while the sandbox was being created");
                }
                done => {
                    // Only now: it would slow the first sandbox down.
                    if let Some(pool) = &self.pool {
                        pool.maintain();
                    }
                    if done.is_ok() {
                        unfinished.finish();
                    }
                    return done;
                }
            }
        }
        Err(Error::Contended {
            what: format!("the sandbox {}", spec.name),
            how: "was deleted or replaced while it was being created",
            attempts: ATTEMPTS,
        })
    }

    async fn find_or_create(&self, spec: &SandboxSpec, may_exist: bool) -> Result<Provided> {
        let namespace = self.namespace_of(&spec.name);
        let mut candidate = self.pool.as_ref().and_then(|pool| pool.take());
        let mut prepared = false;
        if candidate.is_none() {
            // Asked at the same time as the rest is prepared: neither case waits for the other.
            let find = async {
                match may_exist {
                    true => namespace.leases.attach(&spec.name).await,
                    false => Err(Error::SandboxNotFound(spec.name.clone())),
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
                    let (found, ready) = futures_util::future::join(find, self.prepare(spec, &namespace)).await;
                    (found, None, Some(ready))
                }
            };
            match found {
                Err(Error::SandboxNotFound(_)) => {}
                found => {
                    let prepared = ready.is_some_and(|ready| ready.is_ok());
                    let progress = CreationProgress { written, prepared, new_pod: false };
                    return self.complete(spec, &namespace, found?, progress).await;
                }
            }
            prepared = ready.transpose()?.is_some();
            candidate = free.map(|candidate| self.open_early(&namespace, candidate));
        }
        if candidate.is_none() && !prepared {
            self.prepare(spec, &namespace).await?;
            prepared = true;
        }
        let named =
            candidate.as_ref().map_or_else(|| Holder::new_for(&spec.name), |candidate| candidate.holder.clone());
        let written = Instant::now();
        let created = namespace.leases.create(&spec.name, &spec.metadata, &named, self.startup()).await;
        let (mut lease, ours) = match created {
            Ok(created) => created,
            Err(error) => {
                self.put_back(candidate);
                return Err(error);
            }
        };
        let new_pod = ours && candidate.is_none();
        match candidate {
            Some(candidate) if ours => {
                let claimed = self.claim(spec, &namespace, &lease, written, candidate).await;
                if let Some(pool) = &self.pool {
                    pool.used();
                }
                match claimed {
                    Ok(ClaimOutcome::Ours(provided)) => return Ok(provided),
                    // Whoever has it may give it up again, and mustn't take this caller for gone then.
                    Ok(ClaimOutcome::Taken) => lease = namespace.leases.attach(&spec.name).await?,
                    Ok(ClaimOutcome::Unusable(pod)) => {
                        let lost = [pod.pod.clone()];
                        lease = self.next_pod(spec, &namespace, &lease, Some(pod), &lost).await?;
                    }
                    Err(error) => return Err(self.roll_back(&lease, None, error).await),
                }
            }
            candidate => self.put_back(candidate),
        }
        self.complete(spec, &namespace, lease, CreationProgress { written, prepared, new_pod }).await
    }

    fn put_back(&self, candidate: Option<Candidate>) {
        if let (Some(candidate), Some(pool)) = (candidate, &self.pool) {
            pool.put_back(candidate);
        }
    }

    /// How long a creator may take. It is written into the Lease, for reapers that are configured differently.
    pub(super) fn startup(&self) -> Duration {
        let setup = if self.config.setup_script.is_some() { setup::LONGEST } else { Duration::ZERO };
        Duration::from_secs(self.config.startup_timeout) + setup + self.timing.claiming
    }

    /// Opens a session to a pod while it is being claimed: that takes longer than anything else.
    fn open_early(&self, namespace: &SandboxNamespace, candidate: Candidate) -> Candidate {
        let channel = channel(namespace, &candidate.holder, &self.config)
            .with_addresses(self.addresses.as_ref(), "")
            .ending_container_after(LifetimeLimits::default());
        let sandbox = Sandbox::new(channel);
        let opening = sandbox.clone();
        // Whoever uses the sandbox tries again, and learns why it failed.
        tokio::spawn(async move { drop(opening.hello().await) });
        candidate.with_session(sandbox)
    }

    /// Creates what has to exist before a pod: its namespace and its network policy.
    async fn prepare(&self, spec: &SandboxSpec, namespace: &SandboxNamespace) -> Result<()> {
        if self.config.namespace_per_sandbox {
            namespace.create_namespace(&self.config, self.home.cluster.namespace(), &spec.name).await?;
        }
        network::ensure(&namespace.cluster, &self.config).await.map(drop)
    }

    /// A pod that waits in the pool, except those that others got.
    async fn candidate(&self, not: &[String]) -> Option<Candidate> {
        let pool = self.pool.as_ref()?;
        match pool.candidates().await {
            Ok(candidates) => candidates.into_iter().find(|one| !not.contains(&one.holder.pod)),
            Err(error) => {
                // Without the pool it only takes longer.
                tracing::warn!(%error, "can't list the pool's pods");
                None
            }
        }
    }

    /// Gets a Lease its pod: finds it, claims it, or creates it. This caller has written to the Lease before.
    async fn complete(
        &self,
        spec: &SandboxSpec,
        namespace: &SandboxNamespace,
        mut lease: Lease,
        mut progress: CreationProgress,
    ) -> Result<Provided> {
        let mut lost = Vec::new();
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let holder = holder(&lease)?;
            let state = match std::mem::take(&mut progress.new_pod) {
                true => PodState::NotCreated,
                false => namespace.pod_state(&lease, &holder).await?,
            };
            let useless = match state {
                PodState::Live(pod) if !self.never_started(namespace, &lease, &pod) => {
                    return self.attach(namespace, &lease, *pod, None).await;
                }
                PodState::Live(pod) => Some(holder_of(&pod)),
                PodState::Warm(pod) => {
                    match self.claim(spec, namespace, &lease, progress.written, Candidate::of(&pod)).await? {
                        ClaimOutcome::Ours(provided) => return Ok(provided),
                        ClaimOutcome::Taken => {
                            // Whoever has it may give it up again, and mustn't take this caller for gone then.
                            lease = namespace.leases.attach(&spec.name).await?;
                            continue;
                        }
                        ClaimOutcome::Unusable(pod) => Some(pod),
                    }
                }
                PodState::Gone { remains, .. } => remains.as_deref().map(holder_of),
                PodState::NotCreated => {
                    if !progress.prepared {
                        self.prepare(spec, namespace).await?;
                        progress.prepared = true;
                    }
                    if let Some(provided) = self.create_pod(spec, namespace, &lease, &holder, &mut refused).await? {
                        return Ok(provided);
                    }
                    continue;
                }
            };
            lost.push(holder.pod);
            progress.written = Instant::now();
            lease = self.next_pod(spec, namespace, &lease, useless, &lost).await?;
        }
        Err(Error::Contended {
            what: format!("the sandbox {}", spec.name),
            how: "lost its pod while it was being created",
            attempts: ATTEMPTS,
        })
    }

    /// Whether a pod's creator should be done by now, and the pod doesn't even run: the creator was killed, and waiting for
    /// the pod is in vain.
    fn never_started(&self, namespace: &SandboxNamespace, lease: &Lease, pod: &Pod) -> bool {
        lease::is_unfinished(lease)
            && lease::startup_is_over(lease, namespace.cluster.clock.now(), self.startup())
            && !is_running(pod, CONTAINER)
    }

    /// Makes a Lease name another pod, and deletes the one before. If somebody else has written to the Lease meanwhile,
    /// nothing is deleted. Returns the Lease as it is now.
    async fn next_pod(
        &self,
        spec: &SandboxSpec,
        namespace: &SandboxNamespace,
        lease: &Lease,
        before: Option<Holder>,
        lost: &[String],
    ) -> Result<Lease> {
        let next = self.candidate(lost).await.map(|candidate| candidate.holder);
        let next = next.unwrap_or_else(|| Holder::new_for(&spec.name));
        let newer = namespace.leases.replace_pod(lease, &next, &spec.metadata, self.startup()).await?;
        if let Some(before) = before.filter(|_| Holder::of(&newer) == Some(next)) {
            // The sandbox doesn't need it any more, so this isn't its failure; the reaper finds the pod.
            if let Err(error) = namespace.delete_pod(&before).await {
                tracing::warn!(%error, pod = before.pod, "can't delete a sandbox's previous pod");
            }
        }
        Ok(newer)
    }

    /// Creates the pod that a Lease names; returns nothing when somebody else was faster.
    /// `refused` is since when the namespace's quota has been in the way.
    async fn create_pod(
        &self,
        spec: &SandboxSpec,
        namespace: &SandboxNamespace,
        lease: &Lease,
        holder: &Holder,
        refused: &mut Option<Instant>,
    ) -> Result<Option<Provided>> {
        let network = network::label(&self.config)?;
        let owner = lease::owner(lease);
        let pod = manifest::pod(&self.config, &holder.pod, &spec.metadata, owner, network.as_deref(), spec.limits.ttl)?;
        let timeout = Duration::from_secs(self.config.startup_timeout);
        let begun = Instant::now();
        let pod = match namespace.create_pod(&pod, timeout).await {
            Ok(pod) => pod,
            // The next look finds it.
            Err(error) if Error::code(&error) == Some(409) => return Ok(None),
            // A quota may refuse a second request for the same pod before its name is compared, and it counts pods that
            // are being deleted.
            Err(kube::Error::Api(status)) if is_quota(&status) => {
                let since = *refused.get_or_insert_with(Instant::now);
                let may_pass = namespace.exists(&holder.pod).await?
                    || since.elapsed() < QUOTA_PATIENCE && namespace.has_terminating_pods().await?;
                if !may_pass {
                    return Err(self.roll_back(lease, None, Error::Quota(status.message)).await);
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
                return Ok(None);
            }
            Err(error) => return Err(self.roll_back(lease, None, Error::api("create the sandbox's pod")(error)).await),
        };
        // Somebody may have removed the policy while no pod was under it.
        let started = match network::ensure(&namespace.cluster, &self.config).await {
            Ok(_) => self.attach(namespace, lease, pod.clone(), Some(timeout.saturating_sub(begun.elapsed()))).await,
            Err(error) => Err(error),
        };
        match started {
            Err(error) => Err(self.roll_back(lease, Some(&pod), error).await),
            started => started.map(Some),
        }
    }

    /// Claims a pod of the pool for a Lease that was written at some time.
    async fn claim(
        &self,
        spec: &SandboxSpec,
        namespace: &SandboxNamespace,
        lease: &Lease,
        written: Instant,
        candidate: Candidate,
    ) -> Result<ClaimOutcome> {
        let limits = lease.limits();
        let Some(pod) = claim::claim(namespace, lease, &spec.metadata, limits.ttl, &candidate).await? else {
            return Ok(ClaimOutcome::Taken);
        };
        if written.elapsed() > self.timing.claiming / 2 {
            // It took so long that the reaper may have taken the Lease for an abandoned one. The pod is deleted with it.
            namespace.leases.attach(&spec.name).await.and_then(|newer| {
                match newer.metadata.uid == lease.metadata.uid {
                    true => Ok(()),
                    false => Err(Error::SandboxNotFound(spec.name.clone())),
                }
            })?;
        }
        let sandbox = candidate.sandbox.unwrap_or_else(|| self.open(namespace, lease, &pod));
        match claim::set_limits(&sandbox, limits).await {
            Ok(()) => {
                self.start_heartbeat(namespace, &spec.name, &sandbox);
                let (id, launch) = (spec.name.clone(), Some(Launch::Warm));
                Ok(ClaimOutcome::Ours(Provided { id, sandbox, created: true, resumed: false, launch, leash: None }))
            }
            Err(error) => {
                // Its node may be gone by now.
                tracing::warn!(%error, pod = candidate.holder.pod, "can't use a pod of the pool");
                Ok(ClaimOutcome::Unusable(candidate.holder))
            }
        }
    }

    /// Removes a sandbox that can't start, and returns the reason; or says that somebody else has removed it before.
    pub(super) async fn roll_back(&self, lease: &Lease, pod: Option<&Pod>, reason: Error) -> Error {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match (self.remove_unused(name, lease, pod).await, &reason) {
            // Somebody deleted everything while it was being created, the sandbox's namespace perhaps.
            (Ok(Deletion::Absent), Error::PodGone { .. }) => return Error::SandboxNotFound(name.to_owned()),
            (Err(error), _) => tracing::warn!(%error, name, "can't remove a sandbox that can't start"),
            (Ok(_), _) => {}
        }
        reason
    }

    /// Removes a sandbox unless somebody else uses it: it failed for this caller, but may work for others.
    async fn remove_unused(&self, name: &str, lease: &Lease, pod: Option<&Pod>) -> Result<Deletion> {
        let namespace = self.namespace_of(name);
        let mut seen = lease.clone();
        for _ in 0..ATTEMPTS {
            match self.delete_sandbox(&namespace, &seen, unchanged(&seen), pod).await? {
                // Others who wait for the same pod have written to it. Nobody can use a pod that nobody has finished.
                Deletion::Changed => {
                    seen = match namespace.leases.find(name).await {
                        Err(Error::SandboxNotFound(_)) => return Ok(Deletion::Absent),
                        found => found?,
                    };
                    let same = seen.metadata.uid == lease.metadata.uid && Holder::of(&seen) == Holder::of(lease);
                    if !same || !lease::is_unfinished(&seen) {
                        return Ok(Deletion::Changed);
                    }
                }
                done => return Ok(done),
            }
        }
        Ok(Deletion::Changed)
    }
}

/// What the objects of a sandbox say that a caller wants, in this namespace.
pub(super) fn spec_for(config: &Config, namespace: &str, wanted: &Wanted) -> Result<SandboxSpec> {
    let defaults = SpecDefaults {
        namespace,
        labels: &config.default_labels,
        label_prefix: &config.label_prefix,
        limits: LifetimeLimits { ttl: config.ttl, idle_ttl: config.idle_ttl },
    };
    let mut spec = SandboxSpec::new(wanted, &defaults)?;
    if config.namespace_per_sandbox {
        spec.metadata.labels.insert(HOME.into(), namespace.to_owned());
    }
    Ok(spec)
}

/// Whether a pod was refused because the namespace has used up its quota.
pub(super) fn is_quota(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}
