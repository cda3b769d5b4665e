//! Tokens for podbayd, and the private keys that sign them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use podbay_proto::token::Claims;

use super::{PodAddresses, lock};
use crate::channel::sandbox_name::SandboxName;
use crate::keys::read_keys;
use crate::pod::container::Container;

/// How long a token is valid, in seconds. Clocks may differ by some minutes.
const TOKEN_LIFE: u64 = 15 * 60;

/// How long a token is used before another one is made.
const TOKEN_USE: Duration = Duration::from_secs(5 * 60);

impl PodAddresses {
    /// A token for a container.
    pub(crate) fn sign(&self, container: &Container, sandbox: &str) -> String {
        self.sign_claims(&self.claims(container, sandbox))
    }

    /// A token for a Sandbox whose pod isn't known.
    pub(crate) fn sign_without_pod(&self, sandbox: &SandboxName) -> String {
        let SandboxName { namespace, name, container } = sandbox;
        self.sign_claims(&Claims::without_pod(namespace, name, container.as_deref(), self.expiry()))
    }

    fn sign_claims(&self, claims: &Claims) -> String {
        let mut keys = lock(&self.keys);
        // Keys are rotated while clients run.
        match read_keys(&self.key_file) {
            Ok(read) => *keys = read,
            Err(error) => tracing::warn!(%error, "can't reread the private key; still using the previous one"),
        }
        keys.first().map(|key| key.sign(claims)).unwrap_or_default()
    }

    /// A token that nobody should accept: nobody has the public key.
    pub(crate) fn sign_as_stranger(&self, container: &Container) -> String {
        crate::keys::generate().sign(&self.claims(container, ""))
    }

    /// The same for a Sandbox whose pod isn't known.
    pub(crate) fn sign_without_pod_as_stranger(&self, sandbox: &SandboxName) -> String {
        let SandboxName { namespace, name, container } = sandbox;
        crate::keys::generate().sign(&Claims::without_pod(namespace, name, container.as_deref(), self.expiry()))
    }

    fn claims(&self, container: &Container, sandbox: &str) -> Claims {
        Claims {
            namespace: container.namespace.clone(),
            sandbox: sandbox.to_owned(),
            pod: container.pod.clone(),
            uid: container.uid.clone(),
            container: container.name.clone(),
            expires: self.expiry(),
        }
    }

    /// When a token expires that is made now.
    fn expiry(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or(0).saturating_add(TOKEN_LIFE)
    }
}

/// The token for one container.
#[derive(Default)]
pub(crate) struct Token(Mutex<Option<(Instant, String)>>);

impl Token {
    /// The token that there is, or a new one after a while.
    pub(crate) fn get(&self, addresses: &PodAddresses, container: &Container, sandbox: &str) -> String {
        self.get_or_sign(|| addresses.sign(container, sandbox))
    }

    /// The same for whatever is signed.
    pub(crate) fn get_or_sign(&self, sign: impl FnOnce() -> String) -> String {
        let mut place = lock(&self.0);
        match place.as_ref() {
            Some((made, token)) if made.elapsed() < TOKEN_USE => token.clone(),
            _ => place.insert((Instant::now(), sign())).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addresses, container};
    use super::*;
    use crate::cluster::clock::Clock;
    use podbay_proto::token::{Identity, PrivateKey, verify};

    #[test]
    fn tokens_are_kept_for_a_while_and_keys_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = addresses(&dir, 7777, &[1, 2]);
        let listen = addresses.listen(&container());
        let public = |seed: u8| PrivateKey::from_seed([seed; 32]).public();
        assert_eq!(listen.public_keys, format!("{},{}", public(1), public(2)));
        let token = Token::default();
        let first = token.get(&addresses, &container(), "pb-1");
        assert_eq!(token.get(&addresses, &container(), "pb-1"), first);
        let own =
            Identity { namespace: "agents".into(), uid: "u".into(), container: "c".into(), ..Identity::default() };
        let now = u64::try_from(Clock::new().now().as_second()).unwrap();
        let claims = verify(&first, &[public(1)], &own, now).unwrap();
        assert!(claims.sandbox == "pb-1" && claims.expires >= now + TOKEN_LIFE - 5, "{claims:?}");
        std::fs::write(&addresses.key_file, PrivateKey::from_seed([3; 32]).secret_text()).unwrap();
        assert!(verify(&addresses.sign(&container(), ""), &[public(3)], &own, now).is_ok());
        std::fs::remove_file(&addresses.key_file).unwrap();
        assert!(
            verify(&addresses.sign(&container(), ""), &[public(3)], &own, now).is_ok(),
            "the last one that was read"
        );
    }
}
