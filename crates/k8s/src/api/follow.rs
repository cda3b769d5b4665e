//! Follows objects by a watch.
//!
//! kube-runtime's watcher begins with a LIST. A watch here begins at the resourceVersion that the caller has from its own
//! POST or GET, which saves a request for every sandbox, and never sees a list that is older than the object.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::retry::{Backoff, is_transient};
use crate::error::Error;

/// A kind of object that can be followed.
pub(crate) trait Followed: Resource + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Followed for K {}

type Events<K> = Pin<Box<dyn Stream<Item = Result<WatchEvent<K>, kube::Error>> + Send>>;

/// What happened to the objects that are watched.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// An object was created or changed.
    Applied(K),
    /// An object was deleted, or doesn't match the selector any more.
    Deleted(K),
    /// All objects that exist now. Events before this may have been missed.
    Listed(Vec<K>),
}

/// A watch that is resumed when it ends: with a new list where the API server has forgotten the version (410) or the watch
/// broke, else where it left off.
pub(crate) struct Watch<K> {
    api: Api<K>,
    selector: ListParams,
    version: Option<String>,
    events: Option<Events<K>>,
    backoff: Backoff,
    resume_at: Option<Instant>,
}

impl<K: Followed> Watch<K> {
    /// Watches one object, from a version of it that the caller knows.
    pub(crate) fn object(api: Api<K>, object: &K) -> Self {
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let selector = ListParams::default().fields(&format!("metadata.name={name}"));
        Self::new(api, selector, meta.resource_version.clone())
    }

    /// Watches the object of a name, which need not exist yet. The first change is [`Change::Listed`].
    pub(crate) fn named(api: Api<K>, name: &str) -> Self {
        Self::new(api, ListParams::default().fields(&format!("metadata.name={name}")), None)
    }

    /// Watches all objects with these labels. The first change is [`Change::Listed`].
    pub(crate) fn labelled(api: Api<K>, labels: &str) -> Self {
        Self::new(api, ListParams::default().labels(labels), None)
    }

    fn new(api: Api<K>, selector: ListParams, version: Option<String>) -> Self {
        Self { api, selector, version, events: None, backoff: Backoff::default(), resume_at: None }
    }

    /// The next change. Waits as long as it takes; transient refusals are retried. Can be dropped and called again.
    ///
    /// # Errors
    /// When the API server refuses for good.
    pub(crate) async fn next(&mut self) -> Result<Change<K>, kube::Error> {
        loop {
            if let Some(time) = self.resume_at {
                tokio::time::sleep_until(time).await;
                self.resume_at = None;
            }
            let Some(version) = &self.version else {
                match self.api.list(&self.selector).await {
                    Ok(list) => {
                        self.version = Some(list.metadata.resource_version.unwrap_or_default());
                        return Ok(Change::Listed(list.items));
                    }
                    Err(error) => self.interrupted(error)?,
                }
                continue;
            };
            let Some(events) = &mut self.events else {
                let parameters = WatchParams {
                    label_selector: self.selector.label_selector.clone(),
                    field_selector: self.selector.field_selector.clone(),
                    ..WatchParams::default()
                };
                match self.api.watch(&parameters, version).await {
                    Ok(events) => self.events = Some(Box::pin(events)),
                    Err(error) => self.interrupted(error)?,
                }
                continue;
            };
            match events.try_next().await {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    self.seen(object.meta().resource_version.clone());
                    return Ok(Change::Applied(object));
                }
                Ok(Some(WatchEvent::Deleted(object))) => {
                    self.seen(object.meta().resource_version.clone());
                    return Ok(Change::Deleted(object));
                }
                Ok(Some(WatchEvent::Bookmark(bookmark))) => self.seen(Some(bookmark.metadata.resource_version)),
                Ok(Some(WatchEvent::Error(status))) => self.interrupted(kube::Error::Api(status))?,
                // API servers end every watch after some minutes.
                Ok(None) => {
                    self.events = None;
                    self.pause();
                }
                Err(error) => self.interrupted(error)?,
            }
        }
    }

    fn seen(&mut self, version: Option<String>) {
        self.version = version.or_else(|| self.version.take());
        self.backoff = Backoff::default();
    }

    /// Begins again with a list, after a pause.
    fn interrupted(&mut self, error: kube::Error) -> Result<(), kube::Error> {
        if !is_transient(&error) && Error::code(&error) != Some(410) {
            return Err(error);
        }
        tracing::debug!(%error, "a watch was interrupted");
        (self.events, self.version) = (None, None);
        self.pause();
        Ok(())
    }

    fn pause(&mut self) {
        self.resume_at = Some(Instant::now() + self.backoff.next());
    }
}

/// What a [`Judge`] says about an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<F> {
    /// It is as it should be.
    Ready,
    /// It isn't yet; how far it is, for the message of a time-out.
    Waiting(String),
    /// Something is wrong that may pass. It is waited for no longer than the judge's patience.
    Doubtful(String),
    /// It never will be.
    Failed(F),
}

/// Decides what an object's state means to whoever waits for it.
pub(crate) trait Judge<K> {
    /// Why it never gets ready.
    type Failure;

    /// Judges the object as it is now.
    fn judge(&self, object: &K) -> Verdict<Self::Failure>;

    /// How long doubt may last.
    fn patience(&self) -> Duration {
        Duration::MAX
    }
}

/// Waits for an object's end, whatever it is until then.
pub(crate) struct UntilDeleted;

impl<K> Judge<K> for UntilDeleted {
    type Failure = std::convert::Infallible;

    fn judge(&self, _: &K) -> Verdict<Self::Failure> {
        Verdict::Waiting(String::new())
    }
}

/// How following an object ended.
#[derive(Debug)]
pub(crate) enum Outcome<K, F> {
    /// It is ready.
    Ready(K),
    /// It never will be.
    Failed(F),
    /// Doubt lasted for too long.
    Doubted(String),
    /// It was deleted, or another object has its name.
    Deleted,
}

/// Follows one object until it is clear what becomes of it. `progress` tells how far it is.
///
/// # Errors
/// When the API server refuses for good.
pub(crate) async fn follow<K: Followed, J: Judge<K>>(
    api: Api<K>,
    object: K,
    judge: &J,
    progress: &mut String,
) -> Result<Outcome<K, J::Failure>, kube::Error> {
    let uid = object.meta().uid.clone();
    let mut watch = Watch::object(api, &object);
    let mut doubt = Doubt::new(judge.patience());
    let mut object = object;
    loop {
        match judge.judge(&object) {
            Verdict::Ready => return Ok(Outcome::Ready(object)),
            Verdict::Failed(failure) => return Ok(Outcome::Failed(failure)),
            Verdict::Waiting(state) => *progress = state,
            Verdict::Doubtful(reason) => {
                progress.clone_from(&reason);
                doubt.raise(reason);
            }
        }
        let change = tokio::select! {
            change = watch.next() => change?,
            reason = doubt.outlasted() => return Ok(Outcome::Doubted(reason)),
        };
        let newer = match change {
            Change::Applied(newer) => Some(newer),
            Change::Deleted(_) => None,
            Change::Listed(mut objects) => objects.pop(),
        };
        match newer {
            Some(newer) if newer.meta().uid == uid => object = newer,
            _ => return Ok(Outcome::Deleted),
        }
    }
}

/// Since when something is doubtful, and why. It isn't forgotten while the object looks well for a moment: between two
/// attempts to pull an image, a pod does.
struct Doubt {
    patience: Duration,
    since: Option<(Instant, String)>,
}

impl Doubt {
    fn new(patience: Duration) -> Self {
        Self { patience, since: None }
    }

    fn raise(&mut self, reason: String) {
        let since = self.since.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.since = Some((since, reason));
    }

    /// Waits until doubt has lasted for too long.
    async fn outlasted(&self) -> String {
        let Some((since, reason)) = &self.since else { return std::future::pending().await };
        match since.checked_add(self.patience) {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
        reason.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn doubt_ends_by_itself_and_is_not_forgotten_between_attempts() {
        let patience = Duration::from_secs(40);
        let mut doubt = Doubt::new(patience);
        doubt.raise("a".into());
        tokio::time::sleep(patience / 2).await;
        doubt.raise("b".into());
        let start = Instant::now();
        assert_eq!(doubt.outlasted().await, "b");
        assert_eq!(start.elapsed(), patience / 2);
        // It has lasted long enough by now.
        doubt.raise("c".into());
        assert_eq!(doubt.outlasted().await, "c");
        assert_eq!(start.elapsed(), patience / 2);
    }
}
