//! From a conversation to its sandbox: ids, labels, and which daemon was last seen behind an id.
//!
//! A thread's sandbox has an id that is a hash of tenant and thread, and the provider makes sure that an id has one sandbox. So
//! any number of processes may serve any thread, and none of them keeps state that the others would need.

use std::collections::{BTreeMap, HashMap};

use podbay_client::provider::Wanted;
use sha2::{Digest, Sha256};

/// The label with the hash of a sandbox's thread.
pub const THREAD_LABEL: &str = podbay_k8s::names::THREAD;

/// The label with the hash of a sandbox's tenant.
pub const TENANT_LABEL: &str = podbay_k8s::names::TENANT;

/// The id of a thread's sandbox, whether it exists or not: a DNS label.
pub fn sandbox_id(tenant: &str, thread: &str) -> String {
    format!("pb-{}", hash(&[tenant, thread], 20))
}

/// The sandbox of a thread: its id and labels, on top of what else is wanted.
pub fn wanted(tenant: &str, thread: &str, mut wanted: Wanted) -> Wanted {
    wanted.id = Some(sandbox_id(tenant, thread));
    wanted.labels.extend(labels(tenant, Some(thread)));
    wanted
}

/// How many ids are remembered at least; at most twice as many are.
const REMEMBERED: usize = 4096;

/// Which daemon was behind the ids that were used last. Ids that nobody uses are forgotten after a while, so that a program that
/// serves threads for years doesn't grow.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    young: HashMap<String, String>,
    old: HashMap<String, String>,
}

impl Recent {
    /// Remembers an id's instance, and returns the one before if it is known.
    pub(crate) fn insert(&mut self, id: String, instance: String) -> Option<String> {
        let old = self.old.remove(&id);
        let before = self.young.insert(id, instance).or(old);
        if self.young.len() > REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        before
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.young.remove(id);
        self.old.remove(id);
    }
}

/// The labels by which the sandboxes of a tenant, or of one thread, are listed.
pub fn labels(tenant: &str, thread: Option<&str>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(TENANT_LABEL.to_owned(), hash(&[tenant], 16))]);
    if let Some(thread) = thread {
        labels.insert(THREAD_LABEL.to_owned(), hash(&[tenant, thread], 16));
    }
    labels
}

/// Names come from outside and may be secret: only their hashes leave this process.
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
        let id = sandbox_id("acme", "thread-1");
        assert!(
            id.len() <= 63 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{id}"
        );
        assert_eq!(id, sandbox_id("acme", "thread-1"));
        for other in [("acm", "ethread-1"), ("acmethread-1", ""), ("", "acmethread-1"), ("acme", "thread-2")] {
            assert_ne!(id, sandbox_id(other.0, other.1), "{other:?}");
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
        assert_eq!(sandbox_id("tenant", "thread"), "pb-9cb1cb1aa39ae28be73228de2b2db58c4a10a688");
    }
}
