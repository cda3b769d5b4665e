//! Waits by a watch until a pod runs, and notices when it never will.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

use crate::api::follow::{Judge, Outcome, Verdict, follow};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::pod::health;

/// Reasons for which a container waits and that waiting doesn't mend. See
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/kubelet/images/types.go> and `pkg/kubelet/container/sync_result.go`.
const HOPELESS: [&str; 7] = [
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// Reasons for which a container waits whose image couldn't be pulled. The kubelet retries after 10 s, 20 s and so on.
const PULLING: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"];

/// What a registry says when a retry can't help: no such image, or not for this account.
const REFUSED: [&str; 7] = [
    "not found",
    "manifest unknown",
    "unauthorized",
    "denied",
    "forbidden",
    "invalid reference",
    "no match for platform",
];

/// How long a registry may be out of reach by default: the kubelet's first three attempts.
pub(crate) const PULL_PATIENCE: Duration = Duration::from_secs(40);

/// How many of a pod's events go into a message.
const EVENTS: usize = 8;

/// Waits for pods of a namespace to start.
pub(crate) struct StartupWatch<'a> {
    pub(crate) cluster: &'a Cluster,
    /// How long a start may take, for the message of a time-out.
    pub(crate) timeout: Duration,
    /// When that time is up: a creator has used some of it already.
    pub(crate) deadline: Instant,
    pub(crate) policy: StartupPolicy<'a>,
}

/// What counts as a failure to start.
pub(crate) struct StartupPolicy<'a> {
    /// The container that has to run.
    pub(crate) container: &'a str,
    /// Whether to wait for a node where none fits now.
    pub(crate) wait_for_node: bool,
    /// Whether nobody has used the sandbox yet: then a container that ends is a failure. Later on it may have run out of
    /// memory; the kubelet starts it again, after a while if that happens often.
    pub(crate) fresh: bool,
    /// How long a registry may be out of reach.
    pub(crate) pull_patience: Duration,
}

/// Why a pod doesn't run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StartupFailure {
    /// It can't start.
    CannotStart(String),
    /// It did run, and has ended: its time may be up.
    Ended(String),
    /// It is being deleted.
    Deleted,
}

impl Judge<Pod> for StartupPolicy<'_> {
    type Failure = StartupFailure;

    fn judge(&self, pod: &Pod) -> Verdict<StartupFailure> {
        judge(pod, self)
    }

    fn patience(&self) -> Duration {
        self.pull_patience
    }
}

/// Judges a pod that runs already: it isn't waited for, only its failure is.
struct KeepsRunning<'a>(&'a StartupPolicy<'a>);

impl Judge<Pod> for KeepsRunning<'_> {
    type Failure = StartupFailure;

    fn judge(&self, pod: &Pod) -> Verdict<StartupFailure> {
        match self.0.judge(pod) {
            Verdict::Ready => Verdict::Waiting("running".into()),
            other => other,
        }
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }
}

impl StartupWatch<'_> {
    /// Waits until the pod's container runs.
    ///
    /// # Errors
    /// As soon as it is clear that it won't, with the pod's events.
    pub(crate) async fn until_running(&self, pod: Pod) -> Result<Pod> {
        let mut state = "just created".to_owned();
        let following = follow(self.pods(), pod.clone(), &self.policy, &mut state);
        match tokio::time::timeout_at(self.deadline, following).await {
            Ok(Ok(Outcome::Ready(running))) => Ok(running),
            Ok(Ok(outcome)) => Err(self.failed(&pod, outcome).await),
            Ok(Err(error)) => Err(Error::api("watch the pod")(error)),
            Err(_) => Err(Error::StartupTimeout {
                pod: self.label(&pod),
                seconds: self.timeout.as_secs(),
                state,
                events: self.events(&pod).await,
            }),
        }
    }

    /// Waits until it is clear that a pod won't keep running: a container that ends at once has run too.
    pub(crate) async fn until_failed(&self, pod: &Pod) -> Error {
        match follow(self.pods(), pod.clone(), &KeepsRunning(&self.policy), &mut String::new()).await {
            Ok(Outcome::Ready(_)) => std::future::pending().await,
            Ok(outcome) => self.failed(pod, outcome).await,
            Err(error) => Error::api("watch the pod")(error),
        }
    }

    /// Why a pod that ran a moment ago doesn't any more, if that is so.
    pub(crate) async fn failure(&self, pod: &Pod) -> Option<Error> {
        let newer = self.pods().get_opt(pod.metadata.name.as_deref()?).await.ok()??;
        match self.policy.judge(&newer) {
            Verdict::Failed(failure) => Some(self.failed(pod, Outcome::Failed(failure)).await),
            _ => None,
        }
    }

    async fn failed(&self, pod: &Pod, outcome: Outcome<Pod, StartupFailure>) -> Error {
        let label = self.label(pod);
        match outcome {
            Outcome::Failed(StartupFailure::CannotStart(reason)) | Outcome::Doubted(reason) => {
                Error::Startup { pod: label, reason, events: self.events(pod).await }
            }
            Outcome::Failed(StartupFailure::Ended(how)) => Error::PodGone { pod: label, how },
            Outcome::Failed(StartupFailure::Deleted) => {
                Error::PodGone { pod: label, how: "it is being deleted".into() }
            }
            Outcome::Deleted | Outcome::Ready(_) => Error::PodGone { pod: label, how: "it was deleted".into() },
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace)
    }

    fn label(&self, pod: &Pod) -> String {
        format!("{}/{}", self.cluster.namespace, pod.metadata.name.as_deref().unwrap_or("?"))
    }

    /// The pod's events, as lines of a message.
    async fn events(&self, pod: &Pod) -> String {
        let api: Api<Event> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(100);
        let list = tokio::time::timeout(Duration::from_secs(5), api.list(&about)).await;
        let mut events = match list {
            Ok(Ok(list)) => list.items,
            Ok(Err(error)) => return format!("\n(its events can't be read: {})", Error::api("list events")(error)),
            Err(_) => return "\n(its events can't be read: no answer in 5 s)".into(),
        };
        events.sort_by_key(|event| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let skipped = events.len().saturating_sub(EVENTS);
        events[skipped..]
            .iter()
            .map(|event| {
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("\n  {} {}: {}", part(&event.type_), part(&event.reason), part(&event.message))
            })
            .collect()
    }
}

fn judge(pod: &Pod, policy: &StartupPolicy<'_>) -> Verdict<StartupFailure> {
    let cannot_start = |reason: String| Verdict::Failed(StartupFailure::CannotStart(reason));
    let Some(status) = &pod.status else { return Verdict::Waiting("not seen by the scheduler yet".into()) };
    if pod.metadata.deletion_timestamp.is_some() {
        return Verdict::Failed(StartupFailure::Deleted);
    }
    let ours = health::container_of(pod, policy.container);
    // Sidecars are a service mesh's or the user's own, and don't keep ours from running. Init containers do.
    let needed = || status.init_container_statuses.iter().flatten().chain(ours);
    if let Some(how) = health::ending(pod, policy.container) {
        let phase = status.phase.as_deref().unwrap_or("?");
        let details = needed().find_map(ending).unwrap_or_else(|| {
            let words = [status.reason.as_deref(), status.message.as_deref()];
            words.into_iter().flatten().collect::<Vec<_>>().join(": ")
        });
        return Verdict::Failed(match (policy.fresh, phase) {
            (true, "Failed" | "Succeeded") => {
                StartupFailure::CannotStart(format!("it ended at once ({phase}) {details}"))
            }
            (true, _) => StartupFailure::CannotStart(format!("its container exited: {details}")),
            (false, "Failed" | "Succeeded") => StartupFailure::Ended(format!("it has ended ({phase}) {details}")),
            (false, _) => StartupFailure::Ended(how),
        });
    }
    if let Some(ours) = ours {
        let ended = ours.restart_count > 0 || ours.state.as_ref().is_some_and(|state| state.terminated.is_some());
        if policy.fresh && ended {
            return cannot_start(format!("its container exited: {}", ending(ours).unwrap_or_default()));
        }
        let running = ours.state.as_ref().is_some_and(|state| state.running.is_some());
        if running && ours.started != Some(false) {
            return Verdict::Ready;
        }
    }
    for one in needed() {
        let Some(waiting) = one.state.as_ref().and_then(|state| state.waiting.as_ref()) else { continue };
        let Some(reason) = waiting.reason.as_deref() else { continue };
        let message = waiting.message.as_deref().unwrap_or_default();
        let before = ending(one).map(|how| format!("; {how}")).unwrap_or_default();
        let words = format!("container {}: {reason}: {message}{before}", one.name);
        let lower = message.to_ascii_lowercase();
        let pulling = PULLING.contains(&reason);
        if pulling && REFUSED.iter().any(|word| lower.contains(word)) || policy.fresh && HOPELESS.contains(&reason) {
            return cannot_start(words);
        }
        if pulling {
            return Verdict::Doubtful(words);
        }
        if HOPELESS.contains(&reason) {
            return Verdict::Waiting(words);
        }
    }
    let scheduled = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition.status == "False") {
        let message = condition.message.as_deref().unwrap_or("it can't be scheduled on any node");
        if condition.reason.as_deref() == Some("Unschedulable") && !policy.wait_for_node {
            return cannot_start(format!("it can't be scheduled on any node: {message}"));
        }
        return Verdict::Waiting(format!("no node yet: {message}"));
    }
    let waiting = needed().find_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
    Verdict::Waiting(waiting.unwrap_or_else(|| "its container hasn't started".into()))
}

/// How a container ended, now or the last time.
fn ending(status: &ContainerStatus) -> Option<String> {
    let ended =
        [&status.state, &status.last_state].into_iter().find_map(|state| state.as_ref()?.terminated.as_ref())?;
    let reason = ended.reason.as_deref().unwrap_or("no reason given");
    let message = ended.message.as_deref().map(|message| format!(": {}", message.trim())).unwrap_or_default();
    Some(format!("container {} ended with code {} ({reason}){message}", status.name, ended.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn verdict(status: Value, wait_for_node: bool) -> Verdict<StartupFailure> {
        let pod = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
        let policy =
            StartupPolicy { container: "sandbox", wait_for_node, fresh: !wait_for_node, pull_patience: PULL_PATIENCE };
        judge(&pod, &policy)
    }

    fn cannot_start(reason: &str) -> Verdict<StartupFailure> {
        Verdict::Failed(StartupFailure::CannotStart(reason.into()))
    }

    #[test]
    fn states_that_never_change_are_failures() {
        let one = |state: Value| {
            json!({"phase": "Pending", "containerStatuses": [
                {"name": "sandbox", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
        };
        assert_eq!(verdict(one(json!({"running": {}})), false), Verdict::Ready);
        assert_eq!(
            verdict(one(json!({"waiting": {"reason": "ContainerCreating"}})), false),
            Verdict::Waiting("ContainerCreating".into())
        );
        let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
        assert_eq!(verdict(one(pull), false), cannot_start("container sandbox: ErrImagePull: not found"));
        // A registry that can't be reached may be back at the kubelet's next attempt.
        for reason in PULLING {
            let blip = json!({"waiting": {"reason": reason, "message": "dial tcp: i/o timeout"}});
            assert!(matches!(verdict(one(blip), false), Verdict::Doubtful(_)), "{reason}");
        }
        // A sandbox that ran before is started again, in the end; one that never did won't be.
        let crashes = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}});
        assert!(matches!(verdict(one(crashes.clone()), false), Verdict::Failed(_)));
        assert!(matches!(verdict(one(crashes), true), Verdict::Waiting(_)));
        // A new pod's container must not end; an older one's is started again.
        let ended = json!({"terminated": {"exitCode": 7, "reason": "Error"}});
        let words = "its container exited: container sandbox ended with code 7 (Error)";
        assert_eq!(verdict(one(ended.clone()), false), cannot_start(words));
        assert!(matches!(verdict(one(ended), true), Verdict::Waiting(_)));
        let deadline = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
        assert_eq!(verdict(deadline.clone(), false), cannot_start("it ended at once (Failed) DeadlineExceeded"));
        assert_eq!(
            verdict(deadline, true),
            Verdict::Failed(StartupFailure::Ended("it has ended (Failed) DeadlineExceeded".into()))
        );
        let unschedulable = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]});
        assert_eq!(verdict(unschedulable.clone(), false), cannot_start("it can't be scheduled on any node: 0/1 nodes"));
        assert_eq!(verdict(unschedulable, true), Verdict::Waiting("no node yet: 0/1 nodes".into()));
    }

    #[test]
    fn sidecars_neither_hold_a_sandbox_back_nor_keep_it_alive() {
        let beside = |sidecar: Value, ours: Value| {
            let status = |name: &str, state: Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            json!({"phase": "Running", "containerStatuses": [status("istio-proxy", sidecar), status("sandbox", ours)]})
        };
        let crashes = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(verdict(beside(crashes(), json!({"running": {}})), false), Verdict::Ready);
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert!(matches!(verdict(beside(crashes(), creating), false), Verdict::Waiting(_)));
    }
}
