//! Waits by a watch until a claim is bound to a Sandbox that is ready, and notices when it never will be.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::AgentSandbox;
use super::binding::Ahead;
use super::resources::SandboxClaim;
use crate::api::follow::{Change, Judge, Outcome, Verdict, Watch, follow};
use crate::error::{Error, Result};
use crate::pod::startup::{StartupPolicy, StartupWatch};
use crate::sandbox_object::SandboxObject;

/// Reasons for which a claim isn't ready and that waiting doesn't mend. See
/// <https://github.com/kubernetes-sigs/agent-sandbox/tree/main/extensions/controllers>.
const FINAL: [&str; 8] = [
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "InvalidConfiguration",
    "ClaimExpired",
    "SandboxExpired",
    "PodFailed",
    "PodSucceeded",
];

/// How long the controller may report an error of its own. One such error passes by itself: a Sandbox of the same name, which
/// belongs to a claim that was deleted a moment ago, is in the way.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait for the claim alone before the pod is looked at too. A warm sandbox is ready long before.
const ALONE: Duration = Duration::from_secs(2);

/// Why a claim doesn't get ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimFailure {
    /// It is being deleted.
    Deleted,
    /// Its Sandbox has no pod, because somebody suspended it.
    Suspended,
    /// The pool that it names doesn't exist.
    NoPool,
    /// The template that its pool names doesn't exist.
    NoTemplate(String),
    /// The controller says why.
    Refused { reason: String, message: String },
}

/// Decides whether a claim is ready.
#[derive(Default)]
pub(super) struct ClaimReadiness {
    /// Whether this call created the claim, so that the pod of its Sandbox can't have been replaced yet.
    pub(super) is_new: bool,
    /// Whether this call created the pool, so that the controller may not know it yet.
    pub(super) pool_is_new: bool,
    /// Whether this call has just resumed the sandbox, so that the claim may still say that it is suspended.
    pub(super) resuming: bool,
    /// Whether the claim's pod is about to be replaced, so that the claim may still say that it has ended.
    pub(super) replacing: bool,
    /// The warm Sandbox that the controller has chosen, as soon as the claim says so.
    pub(super) assigned: SetOnce<String>,
}

impl Judge<SandboxClaim> for ClaimReadiness {
    type Failure = ClaimFailure;

    fn judge(&self, claim: &SandboxClaim) -> Verdict<ClaimFailure> {
        if claim.metadata.deletion_timestamp.is_some() {
            return Verdict::Failed(ClaimFailure::Deleted);
        }
        if let Some(name) = claim.assigned().filter(|_| self.is_new) {
            // Only the first choice is looked at ahead of time.
            let _ = self.assigned.set(name.to_owned());
        }
        let Some(ready) = claim.condition("Ready") else {
            return Verdict::Waiting("the controller hasn't processed the claim yet; check that it is running".into());
        };
        if ready.status == "True" && claim.sandbox().is_some() {
            return Verdict::Ready;
        }
        let state = || format!("{}: {}", ready.reason, ready.message.trim());
        match ready.reason.as_str() {
            "WarmPoolNotFound" if self.pool_is_new => Verdict::Waiting(state()),
            "WarmPoolNotFound" => Verdict::Failed(ClaimFailure::NoPool),
            "TemplateNotFound" => Verdict::Failed(ClaimFailure::NoTemplate(ready.message.clone())),
            "SandboxSuspended" if !self.resuming => Verdict::Failed(ClaimFailure::Suspended),
            "ReconcilerError" => Verdict::Doubtful(state()),
            reason if self.replacing && is_end_of_pod(reason) => Verdict::Doubtful(state()),
            reason if FINAL.contains(&reason) => Verdict::Failed(ClaimFailure::Refused {
                reason: reason.to_owned(),
                message: ready.message.trim().to_owned(),
            }),
            _ => Verdict::Waiting(state()),
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// Whether a claim isn't ready because its pod has ended. The controller replaces pods that are deleted, and they end before
/// that.
pub(super) fn is_end_of_pod(reason: &str) -> bool {
    ["PodFailed", "PodSucceeded"].contains(&reason)
}

/// How waiting for a claim ended.
pub(super) enum Waited {
    /// It is ready. There may have been time to look at the Sandbox that it was going to get.
    Ready(Box<SandboxClaim>, Box<Ahead>),
    /// It is suspended.
    Suspended,
    /// It was deleted, or is being deleted.
    Deleted,
}

impl AgentSandbox {
    /// Waits until a claim is ready.
    ///
    /// # Errors
    /// As soon as it is clear that it won't be, with the controller's reason or the pod's events.
    pub(super) async fn until_ready(&self, claim: SandboxClaim, readiness: ClaimReadiness) -> Result<Waited> {
        let name = claim.id().to_owned();
        let label = format!("{}/{name}", self.claims.cluster.namespace);
        let timeout = Duration::from_secs(self.config.startup_timeout);
        let deadline = Instant::now() + timeout;
        let mut state = String::new();
        let pool = claim.spec.warm_pool_ref.name.clone();
        let mut ahead = Box::<Ahead>::default();
        let outcome = {
            let following = follow(self.claims.api.clone(), claim, &readiness, &mut state);
            tokio::select! {
                outcome = tokio::time::timeout_at(deadline, following) => outcome,
                error = self.pod_failure(&name, deadline) => return Err(error),
                never = self.look_at_assigned(&readiness.assigned, &mut ahead) => never,
            }
        };
        let namespace = self.claims.cluster.namespace.clone();
        match outcome {
            Err(_) => Err(Error::ClaimTimeout { claim: label, seconds: timeout.as_secs(), state }),
            Ok(Err(error)) => Err(Error::api("watch the sandbox's claim")(error)),
            Ok(Ok(Outcome::Ready(claim))) => Ok(Waited::Ready(Box::new(claim), ahead)),
            Ok(Ok(Outcome::Deleted | Outcome::Failed(ClaimFailure::Deleted))) => Ok(Waited::Deleted),
            Ok(Ok(Outcome::Failed(ClaimFailure::Suspended))) => Ok(Waited::Suspended),
            Ok(Ok(Outcome::Failed(ClaimFailure::NoPool))) => Err(Error::WarmPoolNotFound { pool, namespace }),
            Ok(Ok(Outcome::Failed(ClaimFailure::NoTemplate(message)))) => {
                Err(Error::TemplateNotFound { template: self.template_of(&pool, &message).await, namespace })
            }
            Ok(Ok(Outcome::Failed(ClaimFailure::Refused { reason, message }))) => {
                Err(Error::ClaimFailed { claim: label, reason, message })
            }
            Ok(Ok(Outcome::Doubted(reason))) => {
                Err(Error::ClaimFailed { claim: label, reason: "ReconcilerError".into(), message: reason })
            }
        }
    }

    /// Looks at the Sandbox that the controller has chosen while it binds it, which takes longer. Never returns.
    async fn look_at_assigned<T>(&self, assigned: &SetOnce<String>, ahead: &mut Ahead) -> T {
        if let Err(error) = self.look_ahead(assigned.wait().await, ahead).await {
            tracing::debug!(%error, "can't fetch the sandbox's pod in advance");
        }
        std::future::pending().await
    }

    /// Waits until it is clear that the pod of a cold sandbox can't start: the claim doesn't say so.
    async fn pod_failure(&self, name: &str, deadline: Instant) -> Error {
        tokio::time::sleep(ALONE).await;
        let cluster = &self.claims.cluster;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        // A cold sandbox and its pod have the claim's name.
        let mut watch = Watch::named(pods, name);
        let pod = loop {
            match watch.next().await {
                Ok(Change::Applied(pod)) => break pod,
                Ok(Change::Listed(mut pods)) if !pods.is_empty() => break pods.swap_remove(0),
                Ok(_) => {}
                Err(error) => {
                    // Without the right to see pods, the claim's own word has to do.
                    tracing::debug!(%error, "can't watch the sandbox's pod");
                    return std::future::pending().await;
                }
            }
        };
        let container = super::binding::default_container(&pod, self.config.container.as_deref());
        let policy = StartupPolicy {
            container: container.as_deref().unwrap_or_default(),
            // The controller waits for nodes too.
            wait_for_node: true,
            fresh: true,
            pull_patience: crate::pod::startup::PULL_PATIENCE,
        };
        let timeout = Duration::from_secs(self.config.startup_timeout);
        match (StartupWatch { cluster, timeout, deadline, policy }).until_failed(&pod).await {
            // Whoever deletes the claim deletes its pod, and the claim tells that better.
            Error::PodGone { .. } => std::future::pending().await,
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_sandbox::Config;
    use crate::cluster::Cluster;
    use kube::client::Body;
    use serde_json::json;

    fn judged(reason: &str, status: &str, readiness: ClaimReadiness) -> Verdict<ClaimFailure> {
        let claim = json!({
            "metadata": {"name": "pb-1"},
            "spec": {"warmPoolRef": {"name": "python"}},
            "status": {
                "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "sandbox": {"name": "python-abcde", "podIPs": ["10.0.0.1"]},
            },
        });
        readiness.judge(&serde_json::from_value(claim).unwrap())
    }

    fn usual() -> ClaimReadiness {
        ClaimReadiness::default()
    }

    /// The API server never answers.
    #[tokio::test(start_paused = true)]
    async fn a_claim_may_take_as_long_as_the_settings_say() {
        type Answer = Result<http::Response<Body>, tower::BoxError>;
        let silent = tower::service_fn(|_: http::Request<Body>| std::future::pending::<Answer>());
        let cluster = Cluster::with_client(kube::Client::new(silent, "agents"), "agents");
        let provider = AgentSandbox::new(&cluster, Config { startup_timeout: 77, ..Config::default() }).unwrap();
        let claim = json!({"metadata": {"name": "pb-1"}, "spec": {"warmPoolRef": {"name": "python"}}});
        let begun = Instant::now();
        let error = provider.until_ready(serde_json::from_value(claim).unwrap(), usual()).await.err().unwrap();
        assert!(matches!(error, Error::ClaimTimeout { seconds: 77, .. }), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 77);
    }

    #[test]
    fn what_waiting_does_not_mend_fails_at_once() {
        for reason in FINAL {
            assert!(
                matches!(judged(reason, "False", usual()), Verdict::Failed(ClaimFailure::Refused { .. })),
                "{reason}"
            );
        }
        assert_eq!(judged("WarmPoolNotFound", "False", usual()), Verdict::Failed(ClaimFailure::NoPool));
        assert!(matches!(judged("TemplateNotFound", "False", usual()), Verdict::Failed(ClaimFailure::NoTemplate(_))));
        for reason in ["SandboxNotReady", "SandboxCreatePending", "AdoptionConflict", "SandboxMissing", "Later"] {
            assert!(matches!(judged(reason, "False", usual()), Verdict::Waiting(_)), "{reason}");
        }
        assert!(matches!(judged("ReconcilerError", "False", usual()), Verdict::Doubtful(_)));
        assert_eq!(judged("DependenciesReady", "True", usual()), Verdict::Ready);
    }

    #[test]
    fn what_this_call_has_just_changed_is_waited_for() {
        let new_pool = ClaimReadiness { pool_is_new: true, ..usual() };
        assert!(matches!(judged("WarmPoolNotFound", "False", new_pool), Verdict::Waiting(_)));
        let resuming = ClaimReadiness { resuming: true, ..usual() };
        assert!(matches!(judged("SandboxSuspended", "False", resuming), Verdict::Waiting(_)));
        assert_eq!(judged("SandboxSuspended", "False", usual()), Verdict::Failed(ClaimFailure::Suspended));
        let replacing = ClaimReadiness { replacing: true, ..usual() };
        assert!(matches!(judged("PodSucceeded", "False", replacing), Verdict::Doubtful(_)));
    }
}
