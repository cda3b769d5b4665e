//! The reaper: removes expired sandboxes, and idle ones.
//!
//! A run lists everything first, then removes what is over by what the cluster says, then asks the podbayd of each sandbox
//! that looks idle. A run ends after a time: what it doesn't get to, or can't reach, is left to the next one.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use podbay_client::Sandbox;
use podbay_client::provider::{Cleaned, Phase};

use crate::error::{Error, Result};
use crate::lifetime::age;
use crate::pod::health::{ending, is_running, lost_node};
use crate::sandbox_object::{Deletion, SandboxObject};

/// How long a run may take by default: less than the CronJob of `podbay install` gives it.
pub(crate) const RUN: Duration = Duration::from_secs(480);

/// How many sandboxes are handled at once.
const AT_ONCE: usize = 16;

/// How long podbayd has for saying whether it is idle.
const ANSWER: Duration = Duration::from_secs(10);

/// How long podbayd of a sandbox that looks idle must have been silent, by default and at least, until it is taken for dead. The
/// sandbox's idle limit counts if it is longer: a node's trouble has to last that long to look like podbayd's.
pub(crate) const SILENCE: Duration = Duration::from_secs(3600);

/// How often a sandbox is looked at again that somebody writes to at the same time.
const LOOKS: usize = 3;

/// A mode's sandboxes, as the reaper sees them.
pub(crate) trait Reaped: Sync {
    /// The object that is a sandbox.
    type Object: SandboxObject;

    /// The sandbox's container in its pod.
    fn container(&self, pod: &Pod) -> String;

    /// The API server's time.
    fn now(&self) -> impl Future<Output = Result<Timestamp>> + Send;

    /// A sandbox's object as it is now.
    fn find(&self, id: &str) -> impl Future<Output = Result<Self::Object>> + Send;

    /// A sandbox's pod as it is now, if it has one.
    fn pod(&self, object: &Self::Object) -> impl Future<Output = Result<Option<Pod>>> + Send;

    /// What a sandbox is doing.
    fn phase(&self, object: &Self::Object, pod: Option<&Pod>, now: Timestamp) -> Phase;

    /// Whether somebody may be creating the sandbox just now. Creators don't write to its object while they wait.
    fn is_starting(&self, object: &Self::Object, pod: Option<&Pod>, now: Timestamp) -> bool;

    /// The sandbox in a pod. Nothing is opened yet.
    ///
    /// # Errors
    /// When its pod can't be used.
    fn sandbox(&self, object: &Self::Object, pod: &Pod) -> Result<Sandbox>;

    /// Since when a sandbox's podbayd has been silent, as a run has noted; nothing if the sandbox was used after that.
    fn silent_since(&self, object: &Self::Object) -> Option<Timestamp>;

    /// How long podbayd must have been silent at least until it is taken for dead.
    fn silence(&self) -> Duration;

    /// Notes that a sandbox's podbayd is silent from now on, unless somebody has written to its object since it was read.
    fn note_silence(&self, object: &Self::Object) -> impl Future<Output = Result<()>> + Send;

    /// Records that a sandbox is in use.
    fn renew(&self, object: &Self::Object) -> impl Future<Output = ()> + Send;

    /// Deletes a sandbox unless somebody has written to its object since it was read.
    fn delete_unchanged(
        &self,
        object: &Self::Object,
        pod: Option<&Pod>,
    ) -> impl Future<Output = Result<Deletion>> + Send;
}

/// What is to become of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    /// It is over.
    Over,
    /// It looks idle for longer than this. podbayd knows for sure.
    Idle(Duration),
}

/// What podbayd says of its sandbox.
enum Answer {
    Busy,
    Idle,
    /// Nothing.
    None(Error),
}

/// One run of the reaper.
pub(crate) struct Run<'a, M> {
    mode: &'a M,
    max_idle: Option<Duration>,
    end: Instant,
    /// Nodes on which a podbayd didn't answer in time.
    silent_nodes: Mutex<HashSet<String>>,
}

impl<'a, M: Reaped> Run<'a, M> {
    pub(crate) fn new(mode: &'a M, max_idle: Option<Duration>, length: Duration) -> Self {
        Self { mode, max_idle, end: Instant::now() + length, silent_nodes: Mutex::default() }
    }

    /// Whether the run has to end here. If so, the result says what is left to the next one.
    pub(crate) fn must_end(&self, before: &str, cleaned: &mut Cleaned) -> bool {
        let over = self.is_over();
        if over {
            cleaned.failed.push((before.into(), "no time left; the next run continues".into()));
        }
        over
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Removes those of all sandboxes that are over or idle.
    ///
    /// # Errors
    /// When the API server doesn't tell the time. What goes wrong with a single sandbox is in the result.
    pub(crate) async fn sandboxes(&self, all: Vec<(M::Object, Option<Pod>)>, cleaned: &mut Cleaned) -> Result<()> {
        let now = self.mode.now().await?;
        let (mut over, mut idle) = (Vec::new(), Vec::new());
        for (object, pod) in all {
            match self.fate(&object, pod.as_ref(), now) {
                Fate::Stays => cleaned.kept += 1,
                Fate::Over => over.push(object),
                Fate::Idle(_) => idle.push(object),
            }
        }
        // So that a run which can't finish begins elsewhere the next time.
        idle.sort_by_cached_key(|_| rand::random::<u64>());
        let work = futures_util::stream::iter(over.into_iter().chain(idle)).map(|object| async {
            let id = object.id().to_owned();
            match self.is_over() {
                false => Some((id, self.remove_if_over(object).await)),
                true => None,
            }
        });
        let mut late = 0;
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
            cleaned
                .failed
                .push(("sandboxes".into(), format!("no time left for {late} of them; the next run continues")));
        }
        Ok(())
    }

    fn fate(&self, object: &M::Object, pod: Option<&Pod>, now: Timestamp) -> Fate {
        let limits = object.limits();
        let over = |since: Option<Timestamp>, most: Duration| since.is_some_and(|since| age(since, now) >= most);
        if limits.ttl.is_some_and(|ttl| over(object.began(), Duration::from_secs(ttl))) {
            return Fate::Over;
        }
        match self.mode.phase(object, pod, now) {
            Phase::Terminated => return Fate::Over,
            // Whoever suspended it wants it again, whenever that is.
            Phase::Suspended => return Fate::Stays,
            _ => {}
        }
        if self.mode.is_starting(object, pod, now) {
            return Fate::Stays;
        }
        let most = self.max_idle.into_iter().chain(limits.idle_ttl.map(Duration::from_secs)).min();
        match most {
            Some(most) if over(object.last_used(), most) => match pod {
                // Whoever asks it learns whether its node is there.
                Some(pod) if is_running(pod, &self.mode.container(pod)) || is_unknown(pod) => Fate::Idle(most),
                // Nothing runs in a container that isn't running, and nobody has used it for long enough.
                _ => Fate::Over,
            },
            _ => Fate::Stays,
        }
    }

    /// Removes a sandbox that is over or idle, unless somebody writes to its object first. Says whether it did.
    async fn remove_if_over(&self, mut object: M::Object) -> Result<bool> {
        for _ in 0..LOOKS {
            // The pod is looked at anew: since it was listed, somebody may have claimed one without writing to the object.
            let pod = self.mode.pod(&object).await?;
            match self.fate(&object, pod.as_ref(), self.mode.now().await?) {
                Fate::Stays => return Ok(false),
                Fate::Over => {}
                // The object records activity once a minute, and only while a client is there; podbayd knows all of it.
                Fate::Idle(most) => match self.ask(&object, pod.as_ref(), most).await? {
                    Answer::Idle => {}
                    Answer::Busy => {
                        self.mode.renew(&object).await;
                        return Ok(false);
                    }
                    // Whatever ran there can't be reached any more, if that lasts.
                    Answer::None(error) => match self.mode.silent_since(&object) {
                        Some(since) if age(since, self.mode.now().await?) >= most.max(self.mode.silence()) => {}
                        Some(_) => return Err(error),
                        None => {
                            self.mode.note_silence(&object).await?;
                            return Err(error);
                        }
                    },
                },
            }
            match self.mode.delete_unchanged(&object, pod.as_ref()).await? {
                Deletion::Done => return Ok(true),
                Deletion::Absent => return Ok(false),
                Deletion::Changed => {}
            }
            object = match self.mode.find(object.id()).await {
                Err(Error::SandboxNotFound(_)) => return Ok(false),
                found => found?,
            };
        }
        // It is in use.
        Ok(false)
    }

    /// Asks whether a sandbox was used, or ran something, within a time. Of a silent node not every sandbox is asked.
    async fn ask(&self, object: &M::Object, pod: Option<&Pod>, most: Duration) -> Result<Answer> {
        let Some(pod) = pod else { return Ok(Answer::Idle) };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        if lost_node(pod, &self.mode.container(pod)).is_some() {
            return Err(Error::IdleUnknown(format!("its node {node} doesn't answer the cluster")));
        }
        if self.silent_nodes().contains(&node) {
            return Err(Error::IdleUnknown(format!("others on node {node} didn't answer; the next run asks again")));
        }
        let sandbox = self.mode.sandbox(object, pod)?;
        match tokio::time::timeout(ANSWER, sandbox.hello()).await {
            Ok(Ok(welcome)) if welcome.running > 0 || Duration::from_millis(welcome.idle_ms) < most => Ok(Answer::Busy),
            Ok(Ok(_)) => Ok(Answer::Idle),
            // It may have ended meanwhile.
            Ok(Err(error)) => match self.mode.pod(object).await? {
                Some(pod) if ending(&pod, &self.mode.container(&pod)).is_none() => match is_podbayds(&error) {
                    true => Ok(Answer::None(Error::Unusable(error))),
                    false => Err(Error::Unusable(error)),
                },
                _ => Ok(Answer::Idle),
            },
            // Only silence speaks against the node: any sandbox can give a wrong answer.
            Err(_) => {
                self.silent_nodes().insert(node.clone());
                let why = format!("no answer from node {node} within {} s", ANSWER.as_secs());
                Ok(Answer::None(Error::IdleUnknown(why)))
            }
        }
    }

    fn silent_nodes(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.silent_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a failure is that of podbayd or its container, and not of the cluster, the account or this program's version: those
/// say nothing about the sandbox.
fn is_podbayds(error: &podbay_client::Error) -> bool {
    match error {
        podbay_client::Error::NoAnswer { .. } | podbay_client::Error::BadAnswer { .. } => true,
        podbay_client::Error::Provider(source) => {
            matches!(source.downcast_ref(), Some(Error::Bootstrap(_) | Error::NoDirectory | Error::MissingTools(_)))
        }
        _ => false,
    }
}

/// Whether the cluster can't tell what a pod is doing: its node is lost.
fn is_unknown(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Unknown")
}
