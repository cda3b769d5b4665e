//! The SandboxClaim that is a sandbox: creating it creates the sandbox, and deleting it deletes the sandbox.
//!
//! | who | writes | when |
//! |---|---|---|
//! | a creator | all of it | first of all |
//! | the controller | annotations, status | while it binds the claim to a Sandbox |
//! | whoever attaches | when it was last used, `shutdownTime` | before it looks at the Sandbox |
//! | a client that uses it | the same | when half of the idle time is over |
//! | whoever suspends or resumes it | `shutdownTime` | before it changes the Sandbox |
//!
//! The controller deletes the claim at its `shutdownTime`. Programs that delete because of what they read, and not because a user
//! said so, carry the resourceVersion that they read, and look again on a conflict: whoever attached meanwhile keeps the sandbox.
//! All times are the API server's.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, Preconditions, TypeMeta};
use serde_json::{Value, json};

use super::config::Config;
use super::resources::{
    CREATED_BY, ClaimSpec, EnvVar, Lifecycle, NameRef, PodMetadata, REQUESTED_AT, SandboxClaim, TRACE_CONTEXT,
};
use crate::api::patch::json_patch;
use crate::api::retry::with_retry;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::lifetime::{LifetimeLimits, from_millis, millis};
use crate::names::{CREATOR, IDLE_TTL, LAST_USED, MANAGED_BY, PODBAY, SANDBOX, SILENT_SINCE, TTL, pointer};
use crate::sandbox_object::{self, Deletion, SandboxObject, SandboxObjects, unchanged};
use crate::sandbox_spec::SandboxSpec;

/// How often a patch is tried again that others were faster than, and how long apart.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The end of a sandbox in use is moved when one of so many parts of its idle time is over: half of it.
pub(super) const RENEWAL: u32 = 2;

/// How an attempt to create a claim ended.
pub(super) enum Creation {
    /// This request created it.
    Created(Box<SandboxClaim>),
    /// There is one of that name.
    Exists,
}

/// The claims of a namespace.
#[derive(Clone)]
pub(super) struct Claims {
    pub(super) api: Api<SandboxClaim>,
    pub(super) cluster: Cluster,
    /// When the end of a sandbox in use is moved.
    pub(super) renewal: u32,
}

impl Claims {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let api = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { api, cluster: cluster.clone(), renewal: RENEWAL }
    }

    /// Creates a claim on a pool.
    pub(super) async fn create(&self, spec: &SandboxSpec, pool: &str, config: &Config) -> Result<Creation> {
        let now = self.cluster.now().await?;
        // A request that seemed to fail may have been served: this says whose claim it is.
        let creator = format!("{:016x}", rand::random::<u64>());
        let claim = manifest(spec, pool, config, now, &creator);
        match with_retry(|| async { self.api.create(&PostParams::default(), &claim).await }).await {
            Ok(claim) => Ok(Creation::Created(Box::new(claim))),
            Err(error) if Error::code(&error) == Some(409) => match self.get(&spec.name).await? {
                Some(claim) if annotation(&claim, CREATOR) == Some(creator.as_str()) => {
                    Ok(Creation::Created(Box::new(claim)))
                }
                _ => Ok(Creation::Exists),
            },
            Err(error) => Err(refused("create the sandbox's claim")(error)),
        }
    }

    /// Sends a claim as a dry run, which goes through admission and webhooks.
    pub(super) async fn rehearse(&self, spec: &SandboxSpec, pool: &str, config: &Config) -> Result<()> {
        let claim = manifest(spec, pool, config, self.cluster.now().await?, "rehearsal");
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.api.create(&dry_run, &claim).await.map(drop).map_err(refused("admit a claim"))
    }

    /// A claim, if there is one of that name.
    pub(super) async fn get(&self, name: &str) -> Result<Option<SandboxClaim>> {
        with_retry(|| self.api.get_opt(name)).await.map_err(refused("get the sandbox's claim"))
    }

    /// Records that a sandbox, which must exist, is about to be used, and returns its claim. From then on nobody deletes it
    /// because of what was read before.
    pub(super) async fn attach(&self, name: &str) -> Result<SandboxClaim> {
        let claim = self.mark_used(name, self.cluster.now().await?).await?;
        match claim.metadata.deletion_timestamp {
            // It goes away by itself, whatever is written to it.
            Some(_) => Ok(claim),
            None => self.extend(claim).await,
        }
    }

    /// Writes down that a claim of Podbay's was used.
    async fn mark_used(&self, name: &str, now: Timestamp) -> Result<SandboxClaim> {
        // Ownership is tested before anything is written: the claim may belong to another program.
        let patch = [
            json!({"op": "test", "path": pointer("labels", MANAGED_BY), "value": PODBAY}),
            json!({"op": "test", "path": pointer("labels", SANDBOX), "value": name}),
            json!({"op": "add", "path": pointer("annotations", LAST_USED), "value": now.to_string()}),
        ];
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match json_patch::<SandboxClaim>(&self.cluster, name, &patch).await {
                Ok(claim) => return Ok(claim),
                Err(error) if Error::code(&error) == Some(404) => return Err(Error::SandboxNotFound(name.to_owned())),
                Err(error) if Error::code(&error) == Some(422) => return Err(not_ours(name)),
                Err(error) if Error::code(&error) == Some(409) && left > 0 => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(refused("write the sandbox's claim")(error)),
            }
        }
    }

    /// Moves the end of a sandbox that is about to be used, unless most of its idle time is left.
    async fn extend(&self, claim: SandboxClaim) -> Result<SandboxClaim> {
        let now = self.cluster.now().await?;
        match renewed(&claim, now, now, self.renewal) {
            Some(end) => self.set_shutdown_time(&claim, Some(end)).await,
            None => Ok(claim),
        }
    }

    /// Sets when the controller deletes a claim, or that it doesn't.
    pub(super) async fn set_shutdown_time(&self, claim: &SandboxClaim, end: Option<Timestamp>) -> Result<SandboxClaim> {
        let change = json!({"spec": {"lifecycle": {"shutdownTime": end.map(Time), "shutdownPolicy": "Delete"}}});
        self.change(claim, change).await
    }

    /// Changes this claim, and no other that has got its name since it was read.
    async fn change(&self, claim: &SandboxClaim, mut change: Value) -> Result<SandboxClaim> {
        change["metadata"]["uid"] = claim.metadata.uid.as_deref().into();
        let (name, patch) = (claim.id(), Patch::Merge(change));
        match with_retry(|| async { self.api.patch(name, &PatchParams::default(), &patch).await }).await {
            Ok(claim) => Ok(claim),
            Err(error) if Error::code(&error) == Some(404) => Err(Error::SandboxNotFound(name.into())),
            // A UID can't be changed, which makes the patch of another claim invalid.
            Err(error) if matches!(Error::code(&error), Some(409 | 422)) => match self.get(name).await? {
                Some(other) if other.metadata.uid == claim.metadata.uid => {
                    Err(refused("change the sandbox's claim")(error))
                }
                _ => Err(Error::SandboxNotFound(name.into())),
            },
            Err(error) => Err(refused("change the sandbox's claim")(error)),
        }
    }

    /// Deletes a claim that is of no use to this caller, unless somebody else has attached to it since it was read. The
    /// controller writes to claims all the time, so a change alone doesn't mean that.
    pub(super) async fn delete_unused(&self, claim: &SandboxClaim) -> Result<Deletion> {
        let mut seen = claim.clone();
        for _ in 0..ATTEMPTS {
            match self.delete(claim.id(), unchanged(&seen)).await? {
                Deletion::Changed => {}
                done => return Ok(done),
            }
            seen = match self.get(claim.id()).await? {
                None => return Ok(Deletion::Absent),
                Some(newer) if is_same_use(claim, &newer) => newer,
                Some(_) => break,
            };
        }
        Ok(Deletion::Changed)
    }

    /// Records that podbayd doesn't say whether its sandbox is idle, unless somebody has written to the claim since it was read.
    pub(super) async fn note_silence(&self, claim: &SandboxClaim) -> Result<()> {
        let change = json!({"metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SILENT_SINCE: self.cluster.now().await?.to_string()},
        }});
        let patch = Patch::Merge(change);
        match with_retry(|| async { self.api.patch(claim.id(), &PatchParams::default(), &patch).await }).await {
            Ok(_) => Ok(()),
            // Somebody wants it, or it is gone.
            Err(error) if matches!(Error::code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(refused("change the sandbox's claim")(error)),
        }
    }

    /// Records that a sandbox was used at some time: moves its end, if that is worth a write. Returns the claim as it is then.
    pub(super) async fn used_at(&self, name: &str, used: Timestamp) -> Result<SandboxClaim> {
        // Others may have moved it further.
        let claim = self.find(name).await?;
        let Some(end) = renewed(&claim, used, self.cluster.now().await?, self.renewal) else { return Ok(claim) };
        let change = json!({
            "metadata": {"annotations": {LAST_USED: used.to_string()}},
            "spec": {"lifecycle": {"shutdownTime": Time(end), "shutdownPolicy": "Delete"}},
        });
        self.change(&claim, change).await
    }
}

impl SandboxObjects for Claims {
    type Object = SandboxClaim;

    async fn find(&self, name: &str) -> Result<SandboxClaim> {
        let claim = self.get(name).await?.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let claim = claim.ok_or_else(|| Error::SandboxNotFound(name.to_owned()))?;
        if is_ours(&claim) { Ok(claim) } else { Err(not_ours(name)) }
    }

    async fn renew(&self, name: &str) {
        let renewed = async { self.used_at(name, self.cluster.now().await?).await };
        if let Err(error) = renewed.await {
            tracing::warn!(%error, name, "can't record the sandbox's activity");
        }
    }

    async fn delete(&self, name: &str, preconditions: Preconditions) -> Result<Deletion> {
        sandbox_object::delete(&self.api, name, preconditions, "delete the sandbox's claim").await
    }
}

impl SandboxObject for SandboxClaim {
    fn limits(&self) -> LifetimeLimits {
        let seconds = |key: &str| annotation(self, key)?.parse().ok();
        LifetimeLimits { ttl: seconds(TTL), idle_ttl: seconds(IDLE_TTL) }
    }

    fn began(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    fn last_used(&self) -> Option<Timestamp> {
        let noted = annotation(self, LAST_USED).and_then(|text| text.parse().ok());
        noted.or_else(|| self.began())
    }
}

/// The claim that is created for a request.
fn manifest(spec: &SandboxSpec, pool: &str, config: &Config, now: Timestamp, creator: &str) -> SandboxClaim {
    let mut labels = spec.metadata.labels.clone();
    labels.insert(CREATED_BY.into(), PODBAY.into());
    let mut annotations = spec.metadata.annotations.clone();
    annotations.insert(CREATOR.into(), creator.into());
    annotations.insert(REQUESTED_AT.into(), now.to_string());
    annotations.insert(LAST_USED.into(), now.to_string());
    if let Some(trace) = trace_context(|name| std::env::var(name).ok()) {
        annotations.insert(TRACE_CONTEXT.into(), trace);
    }
    let pod_metadata = PodMetadata { labels: config.pod_labels.clone(), annotations: config.pod_annotations.clone() };
    let has_pod_metadata = !pod_metadata.labels.is_empty() || !pod_metadata.annotations.is_empty();
    let env = config.claim_env.iter().map(|(name, value)| EnvVar { name: name.clone(), value: value.clone() });
    SandboxClaim {
        types: Some(TypeMeta::resource::<SandboxClaim>()),
        metadata: kube::api::ObjectMeta {
            name: Some(spec.name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..Default::default()
        },
        spec: ClaimSpec {
            warm_pool_ref: NameRef { name: pool.into() },
            lifecycle: Some(Lifecycle {
                shutdown_time: end(spec.limits, now, now).map(Time),
                ttl_seconds_after_finished: config.ttl_after_finished.and_then(|seconds| i32::try_from(seconds).ok()),
                shutdown_policy: Some("Delete".into()),
            }),
            additional_pod_metadata: has_pod_metadata.then_some(pod_metadata),
            env: env.collect(),
            volume_claim_templates: config.volume_claim_templates.clone(),
        },
        status: None,
    }
}

/// The trace that this process belongs to, as the claim's annotation has it. Programs that start others hand it down in these
/// variables: <https://opentelemetry.io/docs/specs/otel/context/env-carriers/>.
fn trace_context(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = ["traceparent", "tracestate"].map(|name| (name, variable(&name.to_ascii_uppercase())));
    let found: BTreeMap<_, _> = named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    // The state means nothing without its parent.
    found.contains_key("traceparent").then(|| serde_json::to_string(&found).ok())?
}

/// When a sandbox with these limits ends: at the earlier of the two.
fn end(limits: LifetimeLimits, began: Timestamp, used: Timestamp) -> Option<Timestamp> {
    limits.expires_ms(millis(began), Some(millis(used))).and_then(from_millis)
}

/// The new end of a sandbox that was used at some time, if moving it is worth a write: one of `renewal` parts of its idle time
/// is over.
pub(super) fn renewed(claim: &SandboxClaim, used: Timestamp, now: Timestamp, renewal: u32) -> Option<Timestamp> {
    let limits = claim.limits();
    let idle = Duration::from_secs(limits.idle_ttl?);
    let new = end(limits, claim.began()?, used)?;
    let Some(old) = claim.shutdown_time() else { return Some(new) };
    let left = Duration::try_from(old.0.duration_since(now)).unwrap_or_default();
    (left < idle - idle / renewal && new > old.0).then_some(new)
}

/// The end of a sandbox that nobody can use for now: only its whole lifetime counts.
pub(super) fn end_while_suspended(claim: &SandboxClaim) -> Option<Timestamp> {
    let began = claim.began()?;
    end(LifetimeLimits { idle_ttl: None, ..claim.limits() }, began, began)
}

/// The end of a sandbox that is used from now on.
pub(super) fn end_from(claim: &SandboxClaim, now: Timestamp) -> Option<Timestamp> {
    end(claim.limits(), claim.began()?, now)
}

/// Since when podbayd has been silent. What a reaper noted before the sandbox was last used no longer counts.
pub(super) fn silent_since(claim: &SandboxClaim) -> Option<Timestamp> {
    let since: Timestamp = annotation(claim, SILENT_SINCE)?.parse().ok()?;
    (Some(since) > claim.last_used()).then_some(since)
}

/// Whether a claim is the same one, and nobody has attached to it meanwhile.
fn is_same_use(before: &SandboxClaim, now: &SandboxClaim) -> bool {
    now.metadata.uid == before.metadata.uid && annotation(now, LAST_USED) == annotation(before, LAST_USED)
}

/// Whether Podbay created a claim.
pub(super) fn is_ours(claim: &SandboxClaim) -> bool {
    let label = |key: &str| claim.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(MANAGED_BY) == Some(PODBAY) && label(SANDBOX) == claim.metadata.name.as_deref()
}

pub(super) fn not_ours(name: &str) -> Error {
    Error::not_ours(format_args!("the SandboxClaim {name}"))
}

fn annotation<'a>(claim: &'a SandboxClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// What a refused request means. An API server that has never heard of a kind answers 404 without naming an object.
pub(crate) fn refused(what: &'static str) -> impl Fn(kube::Error) -> Error {
    move |error| match &error {
        kube::Error::Api(status)
            if status.code == 404 && status.details.as_ref().is_none_or(|it| it.name.is_empty()) =>
        {
            Error::CrdsMissing(status.message.trim().to_owned())
        }
        _ => Error::api(what)(error),
    }
}

#[cfg(test)]
mod fields;

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(idle_ttl: u64, ttl: Option<u64>, ends_after: i64) -> (SandboxClaim, Timestamp) {
        let began = Timestamp::from_second(1_000_000).unwrap();
        let mut annotations = BTreeMap::from([(IDLE_TTL.to_owned(), idle_ttl.to_string())]);
        annotations.extend(ttl.map(|ttl| (TTL.to_owned(), ttl.to_string())));
        let end = Timestamp::from_second(1_000_000 + ends_after).unwrap();
        let claim = SandboxClaim {
            metadata: kube::api::ObjectMeta {
                creation_timestamp: Some(Time(began)),
                annotations: Some(annotations),
                ..Default::default()
            },
            spec: ClaimSpec {
                lifecycle: Some(Lifecycle { shutdown_time: Some(Time(end)), ..Default::default() }),
                ..Default::default()
            },
            ..Default::default()
        };
        (claim, began)
    }

    fn after(began: Timestamp, seconds: i64) -> Timestamp {
        Timestamp::from_second(began.as_second() + seconds).unwrap()
    }

    #[test]
    fn a_sandboxs_end_moves_when_half_of_its_idle_time_is_over() {
        let (claim, began) = claim(100, None, 100);
        let renewed = |claim: &SandboxClaim, used, now| renewed(claim, used, now, RENEWAL);
        assert_eq!(renewed(&claim, after(began, 40), after(began, 40)), None);
        assert_eq!(renewed(&claim, after(began, 60), after(began, 60)), Some(after(began, 160)));
        // It counts when it was used, not when that was noticed.
        assert_eq!(renewed(&claim, after(began, 30), after(began, 60)), Some(after(began, 130)));
        assert_eq!(renewed(&claim, began, after(began, 60)), None);
    }

    #[test]
    fn a_sandbox_never_outlives_its_whole_lifetime() {
        let (limited, began) = claim(100, Some(120), 100);
        assert_eq!(renewed(&limited, after(began, 60), after(began, 60), RENEWAL), Some(after(began, 120)));
        assert_eq!(end_while_suspended(&limited), Some(after(began, 120)));
        assert_eq!(end_while_suspended(&claim(100, None, 100).0), None);
    }

    #[test]
    fn a_cluster_without_the_kinds_is_told_from_a_missing_object() {
        let status = |json: Value| kube::Error::Api(serde_json::from_value(json).unwrap());
        // What an API server answers for a path that it doesn't know, and for an object that isn't there.
        let unknown = json!({"code": 404, "message": "404 page not found", "reason": "Failed to parse error data", "status": "Failure"});
        assert!(matches!(refused("x")(status(unknown)), Error::CrdsMissing(_)));
        let missing = json!({
            "code": 404, "reason": "NotFound", "status": "Failure", "message": "sandboxclaims \"a\" not found",
            "details": {"name": "a", "kind": "sandboxclaims"},
        });
        assert!(matches!(refused("x")(status(missing)), Error::Api { .. }));
    }

    #[test]
    fn whoever_attaches_makes_a_claim_its_own() {
        let used = |uid: &str, at: &str| {
            let (mut claim, _) = claim(100, None, 100);
            claim.metadata.uid = Some(uid.into());
            claim.metadata.annotations = Some([(LAST_USED.to_owned(), at.to_owned())].into());
            claim
        };
        assert!(is_same_use(&used("a", "1"), &used("a", "1")));
        assert!(!is_same_use(&used("a", "1"), &used("a", "2")));
        assert!(!is_same_use(&used("a", "1"), &used("b", "1")));
    }

    #[test]
    fn a_trace_is_handed_on_and_a_state_without_its_parent_is_not() {
        let of = |parent: Option<&str>, state: Option<&str>| {
            trace_context(|name| match name {
                "TRACEPARENT" => parent.map(str::to_owned),
                _ => state.map(str::to_owned),
            })
        };
        assert_eq!(of(Some("00-a-b-01"), None).as_deref(), Some(r#"{"traceparent":"00-a-b-01"}"#));
        assert_eq!(of(None, Some("x=y")), None);
        assert!(of(Some("00-a-b-01"), Some("x=y")).unwrap().contains(r#""tracestate":"x=y""#));
    }
}
