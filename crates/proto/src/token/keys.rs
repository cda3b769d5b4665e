//! The keys that sign tokens and check them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{SigningKey, VerifyingKey};

/// How many public keys podbayd accepts: the old and the new one while keys are rotated.
pub const MOST_KEYS: usize = 2;

const PRIVATE: &str = "podbay-private-v1.";
const PUBLIC: &str = "podbay-public-v1.";

/// Why a key can't be read. No message repeats the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It isn't a key that `podbay keys` has made.
    #[error("this isn't a key made by 'podbay keys'")]
    Malformed,
    /// It is a private key where a public one belongs.
    #[error("this is a private key: podbayd and templates get the public key, never the private one")]
    Private,
    /// It is a public key where a private one belongs.
    #[error("this is a public key: signing needs the private one")]
    Public,
    /// There are too many.
    #[error("at most two keys are accepted at the same time")]
    TooMany,
}

/// A key that signs tokens.
#[derive(Clone)]
pub struct PrivateKey(pub(super) SigningKey);

impl PrivateKey {
    /// A key from 32 random bytes, which have to come from the system's random generator.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// When it isn't a private key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        match text.strip_prefix(PRIVATE) {
            Some(rest) => Ok(Self::from_seed(key_bytes(rest)?)),
            None if text.starts_with(PUBLIC) => Err(KeyError::Public),
            None => Err(KeyError::Malformed),
        }
    }

    /// Reads one or two keys, separated by white space: the first signs.
    ///
    /// # Errors
    /// When there is none, or one isn't a private key.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, KeyError> {
        several(text, Self::parse)
    }

    /// The key as text, for a file that nobody else can read.
    pub fn secret_text(&self) -> String {
        format!("{PRIVATE}{}", BASE64.encode(self.0.as_bytes()))
    }

    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateKey of {}", self.public())
    }
}

/// A key that tells whether a token was signed by its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(pub(super) VerifyingKey);

impl PublicKey {
    /// Reads a key.
    ///
    /// # Errors
    /// When it isn't a public key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        match text.strip_prefix(PUBLIC) {
            Some(rest) => VerifyingKey::from_bytes(&key_bytes(rest)?)
                .ok()
                .filter(|key| !key.is_weak())
                .map(Self)
                .ok_or(KeyError::Malformed),
            None if text.starts_with(PRIVATE) => Err(KeyError::Private),
            None => Err(KeyError::Malformed),
        }
    }

    /// Reads one or two keys, separated by commas or white space.
    ///
    /// # Errors
    /// When there is none, there are too many, or one isn't a public key.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, KeyError> {
        several(text, Self::parse)
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PUBLIC}{}", BASE64.encode(self.0.as_bytes()))
    }
}

fn key_bytes(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = BASE64.decode(text).map_err(|_| KeyError::Malformed)?;
    bytes.try_into().map_err(|_| KeyError::Malformed)
}

fn several<T>(text: &str, parse: fn(&str) -> Result<T, KeyError>) -> Result<Vec<T>, KeyError> {
    let words = text.split(|char: char| char == ',' || char.is_whitespace()).filter(|word| !word.is_empty());
    let keys = words.take(MOST_KEYS + 1).map(parse).collect::<Result<Vec<_>, _>>()?;
    match keys.len() {
        0 => Err(KeyError::Malformed),
        count if count > MOST_KEYS => Err(KeyError::TooMany),
        _ => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PrivateKey {
        PrivateKey::from_seed([1; 32])
    }

    #[test]
    fn keys_are_not_mixed_up_or_shown() {
        let (private, public) = (key().secret_text(), key().public().to_string());
        assert_eq!(PrivateKey::parse(&private).unwrap().public(), key().public());
        assert_eq!(PublicKey::parse(&private), Err(KeyError::Private));
        assert_eq!(PrivateKey::parse(&public).map(drop), Err(KeyError::Public));
        for bad in ["", "podbay-public-v1.", "podbay-public-v1.AA", &public[..public.len() - 1], &format!("{public}=")]
        {
            assert_eq!(PublicKey::parse(bad), Err(KeyError::Malformed), "{bad}");
        }
        // A point of small order, for which anybody can sign.
        let weak = format!("{PUBLIC}{}", BASE64.encode([&[1u8][..], &[0; 31]].concat()));
        assert_eq!(PublicKey::parse(&weak), Err(KeyError::Malformed));
        let shown = format!("{:?}", key());
        assert!(!shown.contains(private.strip_prefix(PRIVATE).unwrap()), "{shown}");
    }
}
