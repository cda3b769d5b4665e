//! Waits by a watch until a pod runs, and knows when it never will.

use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::pod::health;
use crate::retry::{Pauses, passes};

/// Why a container waits that won't start by waiting. See
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

/// Why a container waits whose image couldn't be pulled. The kubelet tries again after 10 s, 20 s and so on.
const PULLING: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"];

/// What a registry says when trying again won't help: there is no such image, or not for this account.
const REFUSED: [&str; 7] = [
    "not found",
    "manifest unknown",
    "unauthorized",
    "denied",
    "forbidden",
    "invalid reference",
    "no match for platform",
];

/// How long a registry may be out of reach: the kubelet's first three attempts.
const PULL_PATIENCE: Duration = Duration::from_secs(40);

/// How many of a pod's events go into a message.
const EVENTS: usize = 8;

/// What is said of a pod that did run and won't any more.
const ENDED: &str = "it has ended";

/// What to wait for.
pub(crate) struct Waiting<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) timeout: Duration,
    pub(crate) patience: Patience<'a>,
}

/// What is put up with.
pub(crate) struct Patience<'a> {
    /// The container that has to run.
    pub(crate) container: &'a str,
    /// Whether a node may come yet.
    pub(crate) wait_for_node: bool,
    /// Whether the sandbox was never handed over: then a container that ends is a failure. Later it may have run out of
    /// memory, and is started again, after a while if that happens often.
    pub(crate) fresh: bool,
}

/// How far a pod is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Running,
    Waiting(String),
    /// It may still go well, and is waited for no longer than [`PULL_PATIENCE`].
    Doubtful(String),
    Failed(String),
}

impl Waiting<'_> {
    /// Waits until the pod's container runs.
    ///
    /// # Errors
    /// As soon as it is clear that it won't, with what the cluster says about it.
    pub(crate) async fn until_running(&self, pod: Pod) -> Result<Pod> {
        let mut state = "just made".to_owned();
        match tokio::time::timeout_at(
            Instant::now() + self.timeout,
            self.follow(&pod, &mut state, |pod| self.judge(pod)),
        )
        .await
        {
            Ok(Ok(Ok(running))) => Ok(running),
            // Its time may be up; it did start once.
            Ok(Ok(Err(how))) if how.starts_with(ENDED) => Err(Error::PodGone { pod: self.label(&pod), how }),
            Ok(Ok(Err(reason))) => {
                Err(Error::Startup { pod: self.label(&pod), reason, events: self.events(&pod).await })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::StartupTimeout {
                pod: self.label(&pod),
                seconds: self.timeout.as_secs(),
                state,
                events: self.events(&pod).await,
            }),
        }
    }

    /// Waits until it is clear that a pod won't go on running: a container that ends at once has run too.
    pub(crate) async fn until_failed(&self, pod: &Pod) -> Error {
        let mut state = String::new();
        match self
            .follow(pod, &mut state, |pod| match self.judge(pod) {
                State::Running => State::Waiting("running".into()),
                other => other,
            })
            .await
        {
            Ok(Err(reason)) => Error::Startup { pod: self.label(pod), reason, events: self.events(pod).await },
            Err(error) => error,
            Ok(Ok(_)) => std::future::pending().await,
        }
    }

    /// Why a pod that ran a moment ago doesn't any more, if that is so.
    pub(crate) async fn failure(&self, pod: &Pod) -> Option<Error> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let newer = pods.get_opt(pod.metadata.name.as_deref()?).await.ok()??;
        match self.judge(&newer) {
            State::Failed(reason) => {
                Some(Error::Startup { pod: self.label(pod), reason, events: self.events(pod).await })
            }
            _ => None,
        }
    }

    async fn follow(&self, pod: &Pod, told: &mut String, judge: impl Fn(&Pod) -> State) -> Result<Result<Pod, String>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let gone = || Ok(Err("it was deleted".to_owned()));
        let mut doubt = Doubt::default();
        let mut pod = pod.clone();
        let mut pauses = Pauses::default();
        loop {
            match doubt.weigh(judge(&pod)) {
                State::Running => return Ok(Ok(pod)),
                State::Failed(reason) => return Ok(Err(reason)),
                State::Waiting(state) | State::Doubtful(state) => *told = state,
            }
            let version = pod.metadata.resource_version.clone().unwrap_or_default();
            match pods.watch(&only, &version).await {
                Ok(events) => {
                    let mut events = Box::pin(events);
                    loop {
                        let event = tokio::select! {
                            event = events.try_next() => event,
                            reason = doubt.outlasted() => return Ok(Err(reason)),
                        };
                        match event {
                            Ok(Some(WatchEvent::Added(newer) | WatchEvent::Modified(newer))) => {
                                if newer.metadata.uid != pod.metadata.uid {
                                    return gone();
                                }
                                match doubt.weigh(judge(&newer)) {
                                    State::Running => return Ok(Ok(newer)),
                                    State::Failed(reason) => return Ok(Err(reason)),
                                    State::Waiting(state) | State::Doubtful(state) => *told = state,
                                }
                            }
                            Ok(Some(WatchEvent::Deleted(_))) => return gone(),
                            Ok(Some(WatchEvent::Bookmark(_))) => {}
                            // A version that is too old, or the watch's normal end: look, and watch from there.
                            Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => break,
                        }
                    }
                }
                Err(error) if Error::code(&error) == Some(410) => {}
                // The API server may be busy, or restarting.
                Err(error) if passes(&error) => tracing::debug!(%error, "watching again"),
                Err(error) => return Err(Error::api("watch the pod")(error)),
            }
            tokio::time::sleep(pauses.next()).await;
            match pods.get_opt(&name).await {
                Ok(Some(newer)) if newer.metadata.uid == pod.metadata.uid => pod = newer,
                Ok(_) => return gone(),
                Err(error) if passes(&error) => tracing::debug!(%error, "looking again"),
                Err(error) => return Err(Error::api("get the pod")(error)),
            }
        }
    }

    fn judge(&self, pod: &Pod) -> State {
        judge(pod, &self.patience)
    }

    fn label(&self, pod: &Pod) -> String {
        format!("{}/{}", self.cluster.namespace, pod.metadata.name.as_deref().unwrap_or("?"))
    }

    /// What the cluster recorded about a pod, as lines of a message.
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

/// Since when it is doubtful whether a pod will run, and why. Between two attempts to pull an image the pod looks well.
#[derive(Default)]
struct Doubt(Option<(Instant, String)>);

impl Doubt {
    fn weigh(&mut self, state: State) -> State {
        let State::Doubtful(reason) = state else { return state };
        let since = self.0.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.0 = Some((since, reason.clone()));
        if since.elapsed() < PULL_PATIENCE { State::Doubtful(reason) } else { State::Failed(reason) }
    }

    /// Waits until there was doubt for too long.
    async fn outlasted(&self) -> String {
        let Some((since, reason)) = &self.0 else { return std::future::pending().await };
        tokio::time::sleep_until(*since + PULL_PATIENCE).await;
        reason.clone()
    }
}

fn judge(pod: &Pod, patience: &Patience<'_>) -> State {
    let Some(status) = &pod.status else { return State::Waiting("nobody looked at it yet".into()) };
    if pod.metadata.deletion_timestamp.is_some() {
        return State::Failed("it is being deleted".into());
    }
    let ours = health::container_of(pod, patience.container);
    // Other containers are a service mesh's, or the user's own: neither keeps ours from running. Those before it do.
    let needed = || status.init_container_statuses.iter().flatten().chain(ours);
    if let Some(how) = health::ending(pod, patience.container) {
        let phase = status.phase.as_deref().unwrap_or("?");
        let details = needed().find_map(ending).unwrap_or_else(|| {
            let words = [status.reason.as_deref(), status.message.as_deref()];
            words.into_iter().flatten().collect::<Vec<_>>().join(": ")
        });
        return State::Failed(match (patience.fresh, phase) {
            (true, "Failed" | "Succeeded") => format!("it ended at once ({phase}) {details}"),
            (true, _) => format!("it ended by itself: {details}"),
            (false, "Failed" | "Succeeded") => format!("{ENDED} ({phase}) {details}"),
            (false, _) => how,
        });
    }
    if let Some(ours) = ours {
        let ended = ours.restart_count > 0 || ours.state.as_ref().is_some_and(|state| state.terminated.is_some());
        if patience.fresh && ended {
            return State::Failed(format!("it ended by itself: {}", ending(ours).unwrap_or_default()));
        }
        let running = ours.state.as_ref().is_some_and(|state| state.running.is_some());
        if running && ours.started != Some(false) {
            return State::Running;
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
        if pulling && REFUSED.iter().any(|word| lower.contains(word)) || patience.fresh && HOPELESS.contains(&reason) {
            return State::Failed(words);
        }
        if pulling {
            return State::Doubtful(words);
        }
        if HOPELESS.contains(&reason) {
            return State::Waiting(words);
        }
    }
    let scheduled = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition.status == "False") {
        let message = condition.message.as_deref().unwrap_or("no node takes it");
        if condition.reason.as_deref() == Some("Unschedulable") && !patience.wait_for_node {
            return State::Failed(format!("no node takes it: {message}"));
        }
        return State::Waiting(format!("no node yet: {message}"));
    }
    let waiting = needed().find_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
    State::Waiting(waiting.unwrap_or_else(|| "its container hasn't started".into()))
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

    fn state(status: Value, wait_for_node: bool) -> State {
        let pod = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
        judge(&pod, &Patience { container: "sandbox", wait_for_node, fresh: !wait_for_node })
    }

    #[test]
    fn states_that_never_change_are_failures() {
        let one = |state: Value| {
            json!({"phase": "Pending", "containerStatuses": [
                {"name": "sandbox", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
        };
        assert_eq!(state(one(json!({"running": {}})), false), State::Running);
        assert_eq!(
            state(one(json!({"waiting": {"reason": "ContainerCreating"}})), false),
            State::Waiting("ContainerCreating".into())
        );
        let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
        assert_eq!(state(one(pull), false), State::Failed("container sandbox: ErrImagePull: not found".into()));
        // A registry that can't be reached may be back at the kubelet's next attempt.
        for reason in PULLING {
            let blip = json!({"waiting": {"reason": reason, "message": "dial tcp: i/o timeout"}});
            assert!(matches!(state(one(blip), false), State::Doubtful(_)), "{reason}");
        }
        // A sandbox that ran before is started again, in the end; one that never did won't be.
        let crashes = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}});
        assert!(matches!(state(one(crashes.clone()), false), State::Failed(_)));
        assert!(matches!(state(one(crashes), true), State::Waiting(_)));
        // A new pod's container must not end; an older one's is started again.
        let ended = json!({"terminated": {"exitCode": 7, "reason": "Error"}});
        let words = "it ended by itself: container sandbox ended with code 7 (Error)";
        assert_eq!(state(one(ended.clone()), false), State::Failed(words.into()));
        assert!(matches!(state(one(ended), true), State::Waiting(_)));
        let deadline = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
        assert_eq!(state(deadline.clone(), false), State::Failed("it ended at once (Failed) DeadlineExceeded".into()));
        assert_eq!(state(deadline, true), State::Failed("it has ended (Failed) DeadlineExceeded".into()));
        let unschedulable = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]});
        assert_eq!(state(unschedulable.clone(), false), State::Failed("no node takes it: 0/1 nodes".into()));
        assert_eq!(state(unschedulable, true), State::Waiting("no node yet: 0/1 nodes".into()));
    }

    #[test]
    fn sidecars_neither_hold_a_sandbox_back_nor_keep_it_alive() {
        let beside = |sidecar: Value, ours: Value| {
            let status = |name: &str, state: Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            json!({"phase": "Running", "containerStatuses": [status("istio-proxy", sidecar), status("sandbox", ours)]})
        };
        let crashes = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(state(beside(crashes(), json!({"running": {}})), false), State::Running);
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert!(matches!(state(beside(crashes(), creating), false), State::Waiting(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_ends_by_itself_and_is_not_forgotten_between_attempts() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.weigh(State::Waiting("creating".into())), State::Waiting("creating".into()));
        assert_eq!(doubt.weigh(State::Doubtful("a".into())), State::Doubtful("a".into()));
        tokio::time::sleep(PULL_PATIENCE / 2).await;
        doubt.weigh(State::Waiting("creating".into()));
        assert_eq!(doubt.weigh(State::Doubtful("b".into())), State::Doubtful("b".into()));
        let begun = Instant::now();
        assert_eq!(doubt.outlasted().await, "b");
        assert_eq!(begun.elapsed(), PULL_PATIENCE / 2);
        assert_eq!(doubt.weigh(State::Doubtful("c".into())), State::Failed("c".into()));
    }
}
