//! Tokens that open one sandbox through the router, signed with a key that only the router and its clients know.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

/// What is signed begins with this, so that a signature can't be used for anything else.
const DOMAIN: &str = "agent-sandbox/scoped-token/v1.";

/// The shortest key that routers accept.
const SHORTEST: usize = 32;

/// How long a token is valid, in seconds. It is only shown when a connection is opened.
const LIFE: i64 = 300;

/// A key that signs tokens.
pub(super) struct ScopedKey(Vec<u8>);

impl ScopedKey {
    /// Reads it from a file, without the white space around it, as the router does.
    ///
    /// # Errors
    /// When it can't be read, or is too short.
    pub(super) fn read(path: &str) -> Result<Self> {
        let bad = |why: String| Error::Config(format!("agent_sandbox.router_scoped_key_file {path}: {why}"));
        let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        match bytes.trim_ascii() {
            key if key.len() < SHORTEST => Err(bad(format!("the key is shorter than {SHORTEST} bytes"))),
            key => Ok(Self(key.to_vec())),
        }
    }

    /// A token for a sandbox. `now` is in seconds since 1970.
    pub(super) fn sign(&self, namespace: &str, name: &str, now: i64) -> String {
        self.sign_until(namespace, name, now.saturating_add(LIFE))
    }

    fn sign_until(&self, namespace: &str, name: &str, expires: i64) -> String {
        // Names are DNS labels, so they need no escaping.
        let payload = URL_SAFE_NO_PAD.encode(format!(r#"{{"ns":"{namespace}","name":"{name}","exp":{expires}}}"#));
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(DOMAIN.as_bytes());
        mac.update(payload.as_bytes());
        format!("v1.{payload}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's own example.
    #[test]
    fn a_token_is_what_the_router_expects() {
        let key = ScopedKey(b"0123456789abcdef0123456789abcdef".to_vec());
        let token = key.sign_until("default", "box-a", 4_102_444_800);
        assert!(token.ends_with(".RyG9cQoxLLvWFxTIZWHUke8HHpgncUpngwcqZmR9Kd8"), "{token}");
    }

    #[test]
    fn a_key_is_read_without_its_line_end_and_has_to_be_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
        assert_eq!(ScopedKey::read(file.to_str().unwrap()).unwrap().0.len(), 32);
        std::fs::write(&file, "short").unwrap();
        assert!(ScopedKey::read(file.to_str().unwrap()).is_err());
    }
}
