//! Names and labels of the objects that Podbay creates on a cluster. They are the same in every mode.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Label of everything that Podbay creates.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const PODBAY: &str = "podbay";
/// The id of the sandbox that an object belongs to.
pub const SANDBOX: &str = "podbay.dev/sandbox";
/// The hash of a pod's network rules: a NetworkPolicy selects its pods by it.
pub const NETWORK: &str = "podbay.dev/net";
/// A pod with the value `true` is a client that may connect to sandboxes at their pods' addresses.
pub const CLIENT: &str = "podbay.dev/client";
/// The pool that a pod waits in, or came from.
pub const POOL: &str = "podbay.dev/pool";
/// The state of a pool's pod: [`WARMING`], [`WARM`], [`CLAIMED`] or [`DISCARDED`].
pub const STATE: &str = "podbay.dev/state";
/// podbayd is being started in it.
pub const WARMING: &str = "warming";
/// It waits to become a sandbox.
pub const WARM: &str = "warm";
/// It belongs to a sandbox.
pub const CLAIMED: &str = "claimed";
/// It was taken out of the pool and is about to be deleted.
pub const DISCARDED: &str = "discarded";
/// The hash of everything that defines a pool's pod: a pod with another hash is outdated.
pub const TEMPLATE: &str = "podbay.dev/template";
/// The namespace that a sandbox with a namespace of its own belongs to.
pub const HOME: &str = "podbay.dev/home";
/// The hash of the conversation that a sandbox belongs to.
pub const THREAD: &str = "podbay.dev/thread";
/// The hash of the tenant that a sandbox belongs to.
pub const TENANT: &str = "podbay.dev/tenant";
/// Annotation: the version of Podbay that created a pod.
pub const MADE_BY: &str = "podbay.dev/made-by";
/// Annotation: since when podbayd hasn't answered the reaper, if nobody has used the sandbox after that.
pub const SILENT_SINCE: &str = "podbay.dev/silent-since";
/// Annotation: identifies the request that created a sandbox's Lease.
pub const CREATOR: &str = "podbay.dev/creator";
/// Annotation: when a sandbox's own namespace was last taken over for another one of the same name.
pub const REUSED: &str = "podbay.dev/reused";
/// Annotation: how many seconds a sandbox may live.
pub const TTL: &str = "podbay.dev/ttl-seconds";
/// Annotation: when a sandbox was last used, where its object has no field for that.
pub const LAST_USED: &str = "podbay.dev/last-used";
/// Annotation: how many seconds it may be idle.
pub const IDLE_TTL: &str = "podbay.dev/idle-ttl-seconds";

/// Selects Podbay's own objects.
pub(crate) fn ours() -> String {
    format!("{MANAGED_BY}={PODBAY}")
}

/// The JSON pointer (RFC 6901) to a label or annotation.
pub(crate) fn pointer(part: &str, key: &str) -> String {
    format!("/metadata/{part}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A random name.
pub(crate) fn random() -> String {
    format!("pb-{:016x}", rand::random::<u64>())
}

/// The first 8 bytes of the SHA-256 hash, in hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a sandbox's own namespace. It follows from the sandbox's name and the namespace that it belongs to.
pub(crate) fn own_namespace(home: &str, name: &str) -> String {
    let short = name.get(..46).unwrap_or(name).trim_end_matches('-');
    format!("{short}-{}", hash(format!("{home}/{name}").as_bytes()))
}

/// The name in an id: the id itself, or `namespace/name` with this namespace or the sandbox's own.
///
/// # Errors
/// When it isn't a valid name on a cluster.
pub(crate) fn of_id<'a>(id: &'a str, namespace: &str) -> Result<&'a str> {
    let name = match id.split_once('/') {
        Some((space, name)) if space == namespace || space == own_namespace(namespace, name) => name,
        Some((space, _)) => {
            let space: String = space.chars().take(63).collect();
            return Err(Error::Config(format!(
                "the sandbox is in namespace {space:?}, but this provider uses {namespace:?}"
            )));
        }
        None => id,
    };
    match is_dns_label(name) {
        true => Ok(name),
        false => {
            let shown: String = name.chars().take(100).collect();
            Err(Error::Config(format!(
                "{shown:?} can't be a sandbox's id: use 1 to 63 lower-case letters, digits or '-', with a letter or digit at \
                 both ends"
            )))
        }
    }
}

/// Checks a name of an object on a cluster.
///
/// # Errors
/// When it isn't a DNS label.
pub(crate) fn check_label(what: &str, name: &str) -> Result<()> {
    if is_dns_label(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(100).collect();
    Err(Error::Config(format!(
        "{shown:?} can't be the name of a {what}: use 1 to 63 lower-case letters, digits or '-', with a letter or \
         digit at both ends"
    )))
}

pub(crate) fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Labels and annotations for an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// The labels and annotations of a sandbox's objects, with a user's labels under a prefix.
    pub(crate) fn new(name: &str, prefix: &str, labels: &BTreeMap<String, String>) -> Result<Self> {
        let mut metadata = Self::default();
        metadata.labels.insert(MANAGED_BY.into(), PODBAY.into());
        metadata.labels.insert(SANDBOX.into(), name.into());
        for (key, value) in labels {
            let key = prefixed(prefix, key)?;
            let legal = label_value(value);
            if legal != *value {
                metadata.annotations.insert(key.clone(), value.clone());
            }
            metadata.labels.insert(key, legal);
        }
        Ok(metadata)
    }
}

/// Whether a label's key is reserved for Podbay.
pub(crate) fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "podbay.dev" || key == MANAGED_BY
}

/// Checks the prefix of users' labels.
///
/// # Errors
/// When it isn't valid, or is another's domain.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::Config(format!("label_prefix is {prefix:?}: {why}")));
    let Some(domain) = prefix.strip_suffix('/') else {
        return refuse("use a domain of yours followed by '/', such as acme.example/");
    };
    if domain.len() > 253 || !domain.split('.').all(is_dns_label) {
        return refuse("the part before '/' isn't a domain of lower-case letters, digits, '-' and '.'");
    }
    let theirs = ["kubernetes.io", "k8s.io"];
    if domain == "podbay.dev" || theirs.iter().any(|end| domain == *end || domain.ends_with(&format!(".{end}"))) {
        return refuse("that domain is reserved");
    }
    Ok(())
}

/// The key of a user's label on the cluster. The labels of conversations have the same keys in every mode.
///
/// # Errors
/// When it isn't a valid key.
pub(crate) fn prefixed(prefix: &str, key: &str) -> Result<String> {
    if matches!(key, THREAD | TENANT) {
        return Ok(key.to_owned());
    }
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let bytes = key.as_bytes();
    if (1..=63).contains(&key.len())
        && bytes.iter().all(|byte| in_label(*byte))
        && edge(bytes.first().copied())
        && edge(bytes.last().copied())
    {
        return Ok(format!("{prefix}{key}"));
    }
    let shown: String = key.chars().take(100).collect();
    Err(Error::Config(format!(
        "{shown:?} can't be a label's key: use up to 63 letters, digits, '-', '_' or '.', without a prefix"
    )))
}

/// The value itself if it is a valid label value, else its hash.
pub(crate) fn label_value(value: &str) -> String {
    let bytes = value.as_bytes();
    let edges = [bytes.first(), bytes.last()];
    let legal = value.len() <= 63
        && bytes.iter().all(|byte| in_label(*byte))
        && edges.iter().all(|edge| edge.is_none_or(|byte| byte.is_ascii_alphanumeric()));
    if legal { value.to_owned() } else { hash(bytes) }
}

fn in_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_of_this_namespace() {
        assert_eq!(of_id("pb-1", "here").unwrap(), "pb-1");
        assert_eq!(of_id("here/pb-1", "here").unwrap(), "pb-1");
        assert_eq!(of_id(&format!("{}/pb-1", own_namespace("here", "pb-1")), "here").unwrap(), "pb-1");
        assert!(is_dns_label(&own_namespace("here", &"a".repeat(63))));
        for bad in ["there/pb-1", "", "-a", "a-", "A", "a_b", "../x", "here/../x", &"a".repeat(64)] {
            assert!(of_id(bad, "here").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_label_cannot_hold_is_hashed_and_kept_beside() {
        let labels = BTreeMap::from([("user".into(), "anna@example.org".into()), ("team".into(), "blue".into())]);
        let metadata = Metadata::new("pb-1", "x.dev/", &labels).unwrap();
        assert_eq!(metadata.labels["x.dev/team"], "blue");
        assert_eq!(metadata.labels["x.dev/user"], hash(b"anna@example.org"));
        assert_eq!(metadata.annotations, BTreeMap::from([("x.dev/user".into(), "anna@example.org".into())]));
        let bad = BTreeMap::from([("a/b".into(), String::new())]);
        assert!(Metadata::new("pb-1", "x.dev/", &bad).is_err());
    }
}
