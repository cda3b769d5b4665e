//! The sandbox that a caller asks for, as far as that is the same in every mode.

use std::collections::BTreeMap;
use std::time::Duration;

use podbay_client::provider::Wanted;

use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;
use crate::names::{self, IDLE_TTL, Metadata, TTL};

/// What a provider's configuration says of all its sandboxes.
pub(crate) struct SpecDefaults<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) labels: &'a BTreeMap<String, String>,
    pub(crate) label_prefix: &'a str,
    pub(crate) limits: LifetimeLimits,
}

/// The name, labels and lifetimes of a sandbox.
pub(crate) struct SandboxSpec {
    pub(crate) name: String,
    pub(crate) metadata: Metadata,
    pub(crate) limits: LifetimeLimits,
}

impl SandboxSpec {
    /// What a caller wants, and the defaults for the rest.
    ///
    /// # Errors
    /// When it can't be had on a cluster.
    pub(crate) fn new(wanted: &Wanted, defaults: &SpecDefaults<'_>) -> Result<Self> {
        if wanted.leashed {
            // A cluster doesn't notice the end of a process, so the promise couldn't be kept.
            return Err(Error::Config(
                "a sandbox on a cluster can't be leashed to a process: set idle_ttl instead".into(),
            ));
        }
        let name = match &wanted.id {
            Some(id) => names::of_id(id, defaults.namespace)?.to_owned(),
            None => names::random(),
        };
        let mut labels = defaults.labels.clone();
        labels.extend(wanted.labels.clone());
        let mut metadata = Metadata::new(&name, defaults.label_prefix, &labels)?;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs().max(1));
        let limits = LifetimeLimits {
            ttl: seconds(wanted.ttl).or(defaults.limits.ttl),
            idle_ttl: seconds(wanted.idle_ttl).or(defaults.limits.idle_ttl),
        };
        for (key, seconds) in [(TTL, limits.ttl), (IDLE_TTL, limits.idle_ttl)] {
            if let Some(seconds) = seconds {
                metadata.annotations.insert(key.into(), seconds.to_string());
            }
        }
        Ok(Self { name, metadata, limits })
    }
}

/// A provider that deletes a sandbox by its name.
pub(crate) trait Removes: Clone + Send + Sync + 'static {
    /// Deletes a sandbox. Returns whether it existed.
    fn remove(&self, name: &str) -> impl Future<Output = Result<bool>> + Send;
}

/// A sandbox that is being created. It is removed when its creator gives up.
pub(crate) struct Unfinished<'a, P: Removes> {
    provider: &'a P,
    name: Option<String>,
}

impl<'a, P: Removes> Unfinished<'a, P> {
    /// Only for a name that nobody else knows: such a sandbox would be lost if it weren't handed over.
    pub(crate) fn new(provider: &'a P, wanted: &Wanted, spec: &SandboxSpec) -> Self {
        Self { provider, name: wanted.id.is_none().then(|| spec.name.clone()) }
    }

    /// The sandbox was handed over.
    pub(crate) fn finish(mut self) {
        self.name = None;
    }
}

impl<P: Removes> Drop for Unfinished<'_, P> {
    fn drop(&mut self) {
        // Outside a runtime no request can be sent; the sandbox's lifetime or the reaper ends it.
        let (Some(name), Ok(runtime)) = (self.name.take(), tokio::runtime::Handle::try_current()) else { return };
        let provider = self.provider.clone();
        runtime.spawn(async move {
            // The request that creates it may be cut off here and be served all the same, a moment later.
            for pause in [Duration::ZERO, Duration::from_secs(2)] {
                tokio::time::sleep(pause).await;
                if let Err(error) = provider.remove(&name).await {
                    tracing::warn!(%error, name, "can't remove a sandbox whose creation was cancelled");
                }
            }
        });
    }
}
