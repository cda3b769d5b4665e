//! From a conversation to its sandbox.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Result, Sandbox};
use sha2::{Digest, Sha256};

/// The label with the hash of a sandbox's thread.
pub const THREAD_LABEL: &str = "podbay.dev/thread";

/// The label with the hash of a sandbox's tenant.
pub const TENANT_LABEL: &str = "podbay.dev/tenant";

/// Gives each thread of each tenant its own sandbox.
///
/// Nothing that it remembers decides anything: the sandbox's id is a hash of tenant and thread, and the provider makes sure
/// that an id has one sandbox. So any number of processes may serve any thread.
#[derive(Clone)]
pub struct Manager {
    provider: Arc<dyn Provider>,
    wanted: Wanted,
    /// Which podbayd was behind an id when this process last saw it: only to tell the caller when it is another.
    seen: Arc<Mutex<Recent>>,
}

/// How many sandboxes are remembered at least, and half of how many at most.
const REMEMBERED: usize = 4096;

/// What was behind the ids that were asked for last. Those that nobody asks for are forgotten after a while, so that a
/// program that serves threads for years doesn't grow.
#[derive(Debug, Default)]
struct Recent {
    young: HashMap<String, String>,
    old: HashMap<String, String>,
}

impl Recent {
    /// Remembers an id's instance; the one before, as far as it is known.
    fn insert(&mut self, id: String, instance: String) -> Option<String> {
        let old = self.old.remove(&id);
        let before = self.young.insert(id, instance).or(old);
        if self.young.len() > REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        before
    }

    fn remove(&mut self, id: &str) {
        self.young.remove(id);
        self.old.remove(id);
    }
}

/// A thread's sandbox.
#[derive(Debug)]
pub struct Acquired {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Its id.
    pub id: String,
    /// Whether it was made just now.
    pub created: bool,
    /// Whether it stands in for one that this manager gave out before and that is over: files and processes of that one
    /// are gone, and whoever relied on them has to be told.
    pub replaced: bool,
    /// What has to live as long as a leashed sandbox.
    pub leash: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("mode", &self.provider.mode()).finish_non_exhaustive()
    }
}

impl Manager {
    /// A manager of a provider's sandboxes.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, wanted: Wanted::default(), seen: Arc::default() }
    }

    /// How sandboxes are wanted that have to be made: labels and times. Its id is of no account.
    #[must_use]
    pub fn wanting(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }

    /// The provider.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// The id of a thread's sandbox, whether there is one or not: a DNS label.
    pub fn id(tenant: &str, thread: &str) -> String {
        format!("pb-{}", hash(&[tenant, thread], 20))
    }

    /// Finds a thread's sandbox, or makes it.
    ///
    /// # Errors
    /// When it can't be made or reached.
    pub async fn acquire(&self, tenant: &str, thread: &str) -> Result<Acquired> {
        let id = Self::id(tenant, thread);
        let mut labels = self.wanted.labels.clone();
        labels.extend(labels_of(tenant, Some(thread)));
        let wanted = Wanted { id: Some(id), labels, ..self.wanted.clone() };
        let provided = self.provider.get_or_create(&wanted).await?;
        let instance = provided.sandbox.hello().await?.instance;
        let before = self.seen().insert(provided.id.clone(), instance.clone());
        let replaced = before.is_some_and(|before| before != instance);
        if replaced {
            tracing::info!(id = provided.id, "a thread's sandbox was over and has been replaced");
        }
        Ok(Acquired {
            sandbox: provided.sandbox,
            id: provided.id,
            created: provided.created,
            replaced,
            leash: provided.leash,
        })
    }

    /// Deletes a thread's sandbox; whether there was one.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub async fn release(&self, tenant: &str, thread: &str) -> Result<bool> {
        let id = Self::id(tenant, thread);
        self.seen().remove(&id);
        self.provider.delete(&id).await
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The labels by which a tenant's sandboxes, or those of one thread, are listed.
pub fn labels_of(tenant: &str, thread: Option<&str>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(TENANT_LABEL.to_owned(), hash(&[tenant], 16))]);
    if let Some(thread) = thread {
        labels.insert(THREAD_LABEL.to_owned(), hash(&[tenant, thread], 16));
    }
    labels
}

/// Names come from outside and may be secret: only their hash leaves this process.
fn hash(parts: &[&str], bytes: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // With its length before it, so that ("ab", "c") and ("a", "bc") differ.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dns_labels_and_tell_threads_apart() {
        let id = Manager::id("acme", "thread-1");
        assert!(
            id.len() <= 63 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{id}"
        );
        assert_eq!(id, Manager::id("acme", "thread-1"));
        for other in [("acm", "ethread-1"), ("acmethread-1", ""), ("", "acmethread-1"), ("acme", "thread-2")] {
            assert_ne!(id, Manager::id(other.0, other.1), "{other:?}");
        }
    }

    /// Every thread ever served was remembered for as long as the program ran.
    #[test]
    fn what_nobody_asks_for_is_forgotten_and_what_is_used_is_not() {
        let mut recent = Recent::default();
        let text = |number: usize| number.to_string();
        for number in 0..10 * REMEMBERED {
            assert_eq!(recent.insert(text(number), "first".into()), None);
            recent.insert("used".into(), text(number));
            assert!(recent.young.len() + recent.old.len() <= 2 * REMEMBERED + 2);
        }
        assert_eq!(recent.insert(text(10 * REMEMBERED - 1), "second".into()).as_deref(), Some("first"));
        assert_eq!(recent.insert("used".into(), "x".into()), Some(text(10 * REMEMBERED - 1)));
        recent.remove("used");
        assert_eq!(recent.insert("used".into(), "x".into()), None);
    }

    #[test]
    fn ids_stay_the_same_from_build_to_build() {
        // Another value would lose everybody's sandboxes with an update.
        assert_eq!(Manager::id("tenant", "thread"), "pb-9cb1cb1aa39ae28be73228de2b2db58c4a10a688");
    }
}
