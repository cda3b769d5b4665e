//! Signed tokens: what a client shows to a podbayd that listens on TCP.
//!
//! Clients have a private key and podbayd has only the public one, so nothing in a sandbox can make a token, and every
//! client can make one for every sandbox. A token names one container of one pod and expires soon: stolen, it opens nothing
//! else, and not for long. A client that can't ask the cluster which pod a Sandbox has names the Sandbox alone
//! ([`Claims::without_pod`]); only a podbayd that was told its Sandbox's name accepts that.
//!
//! A token is `v1.PAYLOAD.SIGNATURE`, the last two in base64url without padding. The payload is [`Claims`] as JSON. The
//! Ed25519 signature covers [`DOMAIN`] and the payload's bytes, so that it can't be taken for a signature of anything else.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// What is signed begins with this.
pub const DOMAIN: &[u8] = b"podbay token v1\0";

/// The most bytes that a token may have. Names in Kubernetes have at most 253.
pub const LONGEST: usize = 2 << 10;

/// The most seconds that a token may still be valid. One that never expires would be a password.
pub const LONGEST_LIFE: u64 = 24 * 3600;

/// How many public keys podbayd accepts: the old and the new one while keys are rotated.
pub const MOST_KEYS: usize = 2;

const VERSION: &str = "v1";
const PRIVATE: &str = "podbay-private-v1.";
const PUBLIC: &str = "podbay-public-v1.";

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The pod's namespace.
    pub namespace: String,
    /// The sandbox: the name of its Lease or SandboxClaim, or without a pod of its Sandbox. Empty for a pod that waits in a pool.
    pub sandbox: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID: another pod of that name isn't this one.
    pub uid: String,
    /// The container in it.
    pub container: String,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
}

impl Claims {
    /// What a token says that names a Sandbox (`agents.x-k8s.io`) and no pod. Without a container it is for the one that
    /// listens.
    pub fn without_pod(namespace: &str, sandbox: &str, container: Option<&str>, expires: u64) -> Self {
        Self {
            namespace: namespace.to_owned(),
            sandbox: sandbox.to_owned(),
            pod: String::new(),
            uid: String::new(),
            container: container.unwrap_or_default().to_owned(),
            expires,
        }
    }

    fn names_no_pod(&self) -> bool {
        self.pod.is_empty() && self.uid.is_empty()
    }
}

/// Who a podbayd is. Tokens for anybody else are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's UID.
    pub uid: String,
    /// The container in it.
    pub container: String,
    /// The pod's name, where it is known.
    pub pod: Option<String>,
    /// The sandbox, where it is known: a pod that waits in a pool belongs to none yet.
    pub sandbox: Option<String>,
    /// The name of the Sandbox (`agents.x-k8s.io`) whose pod this is. Only where it is known do tokens count that name no pod.
    pub sandbox_object: Option<String>,
}

impl Identity {
    fn check(&self, claims: &Claims) -> Result<(), TokenError> {
        let meant = match claims.names_no_pod() {
            true => self.is_in_sandbox_of(claims, self.sandbox_object.as_deref().ok_or(TokenError::NoPod)?),
            false => self.is_meant_by(claims),
        };
        if meant { Ok(()) } else { Err(TokenError::OtherSandbox) }
    }

    fn is_in_sandbox_of(&self, claims: &Claims, own: &str) -> bool {
        !own.is_empty()
            && !self.namespace.is_empty()
            && own == claims.sandbox
            && self.namespace == claims.namespace
            && (claims.container.is_empty() || self.container == claims.container)
    }

    fn is_meant_by(&self, claims: &Claims) -> bool {
        let unless_known = |own: &Option<String>, named: &str| own.as_ref().is_none_or(|own| own == named);
        !self.uid.is_empty()
            && self.namespace == claims.namespace
            && self.uid == claims.uid
            && self.container == claims.container
            && unless_known(&self.pod, &claims.pod)
            && unless_known(&self.sandbox, &claims.sandbox)
    }
}

/// Why a token is refused. No message repeats anything of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("podbayd requires a token")]
    Missing,
    /// It is longer than any token.
    #[error("the token is too long")]
    TooLong,
    /// It doesn't have a token's form.
    #[error("the token is malformed")]
    Malformed,
    /// No key that podbayd knows has signed it.
    #[error("the token was signed with a key that podbayd doesn't accept, or was changed")]
    Signature,
    /// It is for another sandbox.
    #[error("the token is for another sandbox")]
    OtherSandbox,
    /// It names no pod, and podbayd doesn't know the name of its Sandbox.
    #[error(
        "the token names no pod, and this podbayd doesn't know the name of its Sandbox: set PODBAYD_SANDBOX_OBJECT in the \
         template ('podbay install agent-sandbox --router' prints it), or use a client that may get the pod"
    )]
    NoPod,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time would never be over.
    #[error("the token is valid for more than a day")]
    TooLongLived,
}

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
pub struct PrivateKey(SigningKey);

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

    /// Makes a token.
    pub fn sign(&self, claims: &Claims) -> String {
        // These are texts and a number, for which JSON can't fail.
        let payload = serde_json::to_vec(claims).unwrap_or_default();
        let signature = self.0.sign(&signed(&payload));
        format!("{VERSION}.{}.{}", BASE64.encode(payload), BASE64.encode(signature.to_bytes()))
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateKey of {}", self.public())
    }
}

/// A key that tells whether a token was signed by its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

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

/// Checks a token. `now` is in seconds since 1970.
///
/// # Errors
/// When none of the keys has signed it, it has expired, or it is for another podbayd.
pub fn verify(token: &str, keys: &[PublicKey], own: &Identity, now: u64) -> Result<Claims, TokenError> {
    if token.is_empty() {
        return Err(TokenError::Missing);
    }
    if token.len() > LONGEST {
        return Err(TokenError::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(VERSION), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed);
    };
    // Both decoders refuse what they wouldn't have encoded themselves: a token has one spelling.
    let payload = BASE64.decode(payload).map_err(|_| TokenError::Malformed)?;
    let signature = BASE64.decode(signature).map_err(|_| TokenError::Malformed)?;
    let signature = Signature::from_slice(&signature).map_err(|_| TokenError::Malformed)?;
    let message = signed(&payload);
    if !keys.iter().any(|key| key.0.verify_strict(&message, &signature).is_ok()) {
        return Err(TokenError::Signature);
    }
    // Only now is anything of it looked at.
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| TokenError::Malformed)?;
    own.check(&claims)?;
    still_valid(&claims, now)?;
    Ok(claims)
}

/// Checks the time of a token that was verified before.
///
/// # Errors
/// When it has expired.
pub fn still_valid(claims: &Claims, now: u64) -> Result<(), TokenError> {
    match claims.expires {
        expires if expires <= now => Err(TokenError::Expired),
        expires if expires - now > LONGEST_LIFE => Err(TokenError::TooLongLived),
        _ => Ok(()),
    }
}

fn signed(payload: &[u8]) -> Vec<u8> {
    [DOMAIN, payload].concat()
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

    const NOW: u64 = 1_800_000_000;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_seed([seed; 32])
    }

    fn claims() -> Claims {
        Claims {
            namespace: "agents".into(),
            sandbox: "pb-1".into(),
            pod: "pb-1-x".into(),
            uid: "0b5ee2c0-55a1-4a53-8d0e-6a1f3d1c2b4a".into(),
            container: "sandbox".into(),
            expires: NOW + 900,
        }
    }

    fn own() -> Identity {
        let Claims { namespace, uid, container, .. } = claims();
        Identity { namespace, uid, container, ..Identity::default() }
    }

    fn check(token: &str) -> Result<Claims, TokenError> {
        verify(token, &[key(1).public()], &own(), NOW)
    }

    /// Tokens and keys that older clients made have to stay valid: these never change.
    #[test]
    fn the_format_stays_what_it_is() {
        assert_eq!(key(1).secret_text(), "podbay-private-v1.AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE");
        assert_eq!(key(1).public().to_string(), "podbay-public-v1.iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w");
        let token = "v1.eyJuYW1lc3BhY2UiOiJhZ2VudHMiLCJzYW5kYm94IjoicGItMSIsInBvZCI6InBiLTEteCIsInVpZCI6IjBiNWVlMmMwLTU1YT\
                     EtNGE1My04ZDBlLTZhMWYzZDFjMmI0YSIsImNvbnRhaW5lciI6InNhbmRib3giLCJleHBpcmVzIjoxODAwMDAwOTAwfQ.r7-QQF9IZHxrg12BmnYX7Di-n_HBTdnQ7T3siQfEFBZIEduZ3eCtAN35EVz0Py6nGgqd4MsOkSuR1tqjJ_PFBA";
        assert_eq!(key(1).sign(&claims()), token);
        assert_eq!(check(token), Ok(claims()));
    }

    #[test]
    fn a_token_opens_one_sandbox_for_a_while() {
        let token = key(1).sign(&claims());
        assert_eq!(check(&token), Ok(claims()));
        let at = |now| verify(&token, &[key(1).public()], &own(), now).map(drop);
        assert_eq!(at(NOW + 899), Ok(()));
        for late in [NOW + 900, NOW + 901, u64::MAX] {
            assert_eq!(at(late), Err(TokenError::Expired));
        }
        assert_eq!(at(NOW + 900 - LONGEST_LIFE), Ok(()));
        for early in [0, NOW + 899 - LONGEST_LIFE] {
            assert_eq!(at(early), Err(TokenError::TooLongLived));
        }
        let forever = key(1).sign(&Claims { expires: u64::MAX, ..claims() });
        assert_eq!(check(&forever), Err(TokenError::TooLongLived));
    }

    #[test]
    fn a_token_for_anything_else_is_refused() {
        for other in [
            Claims { namespace: "other".into(), ..claims() },
            Claims { uid: "other".into(), ..claims() },
            Claims { uid: String::new(), ..claims() },
            Claims { container: "other".into(), ..claims() },
        ] {
            assert_eq!(check(&key(1).sign(&other)), Err(TokenError::OtherSandbox), "{other:?}");
        }
        let token = key(1).sign(&claims());
        let with = |own: Identity| verify(&token, &[key(1).public()], &own, NOW).map(drop);
        let pod = |name: &str| Some(name.to_owned());
        assert_eq!(with(Identity { pod: pod("pb-1-x"), sandbox: pod("pb-1"), ..own() }), Ok(()));
        assert_eq!(with(Identity { pod: pod("pb-1-y"), ..own() }), Err(TokenError::OtherSandbox));
        assert_eq!(with(Identity { sandbox: pod("pb-2"), ..own() }), Err(TokenError::OtherSandbox));
        // A podbayd that doesn't know who it is believes nobody.
        let nobody = key(1).sign(&Claims { uid: String::new(), ..claims() });
        let unknown = Identity { uid: String::new(), ..own() };
        assert_eq!(verify(&nobody, &[key(1).public()], &unknown, NOW), Err(TokenError::OtherSandbox));
    }

    /// Whoever can't ask the cluster for the pod names the Sandbox. That opens this Sandbox and nothing else.
    #[test]
    fn a_token_without_a_pod_opens_only_the_sandbox_that_it_names() {
        let own = || Identity { sandbox_object: Some("pool-x7k2q".into()), ..own() };
        let with =
            |own: &Identity, claims: &Claims| verify(&key(1).sign(claims), &[key(1).public()], own, NOW).map(drop);
        let good = Claims::without_pod("agents", "pool-x7k2q", None, NOW + 900);
        assert_eq!(with(&own(), &good), Ok(()));
        assert_eq!(with(&own(), &Claims { container: "sandbox".into(), ..good.clone() }), Ok(()));
        for other in [
            Claims { sandbox: "pool-zzzzz".into(), ..good.clone() },
            Claims { sandbox: String::new(), ..good.clone() },
            // The claim's name isn't the Sandbox's.
            Claims { sandbox: "pb-1".into(), ..good.clone() },
            Claims { namespace: "other".into(), ..good.clone() },
            Claims { namespace: String::new(), ..good.clone() },
            Claims { container: "other".into(), ..good.clone() },
            // Whoever names a pod has to name it in full.
            Claims { pod: "pool-x7k2q".into(), ..good.clone() },
            Claims { uid: "other".into(), ..good.clone() },
        ] {
            assert_eq!(with(&own(), &other), Err(TokenError::OtherSandbox), "{other:?}");
        }
        // A podbayd that wasn't told its Sandbox's name accepts none of them, whatever else it knows.
        let known = Some("pool-x7k2q".to_owned());
        for unaware in [
            Identity { sandbox_object: None, ..own() },
            Identity { sandbox_object: None, pod: known.clone(), sandbox: known.clone(), ..own() },
        ] {
            assert_eq!(with(&unaware, &good), Err(TokenError::NoPod), "{unaware:?}");
        }
        for nobody in [
            Identity { sandbox_object: Some(String::new()), ..own() },
            Identity { namespace: String::new(), ..own() },
            Identity::default(),
        ] {
            let claims = Claims { sandbox: String::new(), namespace: nobody.namespace.clone(), ..good.clone() };
            assert!(with(&nobody, &claims).is_err() && with(&nobody, &good).is_err(), "{nobody:?}");
        }
        // It doesn't live longer, and tokens that name the pod go on to work.
        assert_eq!(with(&own(), &Claims { expires: NOW, ..good.clone() }), Err(TokenError::Expired));
        let forever = Claims { expires: NOW + LONGEST_LIFE + 1, ..good.clone() };
        assert_eq!(with(&own(), &forever), Err(TokenError::TooLongLived));
        assert_eq!(with(&own(), &claims()), Ok(()));
        assert_eq!(verify(&key(2).sign(&good), &[key(1).public()], &own(), NOW), Err(TokenError::Signature));
    }

    #[test]
    fn two_keys_are_valid_while_one_is_rotated() {
        let keys = [key(1).public(), key(2).public()];
        for signer in [1, 2] {
            assert!(verify(&key(signer).sign(&claims()), &keys, &own(), NOW).is_ok());
        }
        assert_eq!(verify(&key(3).sign(&claims()), &keys, &own(), NOW), Err(TokenError::Signature));
        assert_eq!(verify(&key(1).sign(&claims()), &[], &own(), NOW), Err(TokenError::Signature));
        let text = format!("{}\n {}\n", keys[0], keys[1]);
        assert_eq!(PublicKey::parse_all(&text).unwrap(), keys);
        assert_eq!(PublicKey::parse_all(&format!("{text},{}", keys[0])), Err(KeyError::TooMany));
        assert_eq!(PublicKey::parse_all(" ,\n"), Err(KeyError::Malformed));
    }

    #[test]
    fn a_token_with_any_other_byte_is_refused() {
        let token = key(1).sign(&claims());
        let mut tried = 0;
        for place in 0..token.len() {
            for byte in 0..=255u8 {
                let mut changed = token.clone().into_bytes();
                if std::mem::replace(&mut changed[place], byte) == byte {
                    continue;
                }
                // Headers are text; anything else never gets as far.
                let Ok(changed) = String::from_utf8(changed) else { continue };
                // Most change the payload or the signature, and each of those costs a verification.
                if byte.is_ascii_alphanumeric() && (place + usize::from(byte)) % 16 != 0 && place + 2 < token.len() {
                    continue;
                }
                assert!(check(&changed).is_err(), "byte {place} as {byte}");
                tried += 1;
            }
        }
        assert!(tried > 10_000, "{tried}");
    }

    #[test]
    fn what_is_no_token_is_refused_without_a_panic() {
        let token = key(1).sign(&claims());
        for end in 0..token.len() {
            assert!(check(&token[..end]).is_err(), "the first {end} bytes");
        }
        for more in ["=", ".", "A", " ", "\n", "..", "%"] {
            assert!(check(&format!("{token}{more}")).is_err(), "followed by {more:?}");
            assert!(check(&format!("{more}{token}")).is_err(), "after {more:?}");
        }
        assert_eq!(check(""), Err(TokenError::Missing));
        assert_eq!(check(&"v".repeat(LONGEST)), Err(TokenError::Malformed));
        assert_eq!(check(&"v".repeat(LONGEST + 1)), Err(TokenError::TooLong));
        for bad in ["v1", "v1.", "v1..", "v1...", "v2.e30.AA", "v1.e30.AA", "v1.é.é", "\u{0}.\u{0}.\u{0}"] {
            assert_eq!(check(bad), Err(TokenError::Malformed), "{bad:?}");
        }
        // Signed, and not what it should be.
        let with = |payload: &[u8]| {
            let signature = key(1).0.sign(&signed(payload));
            format!("v1.{}.{}", BASE64.encode(payload), BASE64.encode(signature.to_bytes()))
        };
        for payload in [&b""[..], b"{}", b"null", b"\xff", b"[[[[[[", br#"{"namespace":7}"#] {
            assert_eq!(check(&with(payload)), Err(TokenError::Malformed), "{payload:?}");
        }
        // A signature of something else.
        let (_, payload_and_rest) = token.split_once('.').unwrap();
        let payload = BASE64.decode(payload_and_rest.split_once('.').unwrap().0).unwrap();
        let bare = BASE64.encode(key(1).0.sign(&payload).to_bytes());
        assert_eq!(check(&format!("v1.{}.{bare}", BASE64.encode(&payload))), Err(TokenError::Signature));
    }

    #[test]
    fn keys_are_not_mixed_up_or_shown() {
        let (private, public) = (key(1).secret_text(), key(1).public().to_string());
        assert_eq!(PrivateKey::parse(&private).unwrap().public(), key(1).public());
        assert_eq!(PublicKey::parse(&private), Err(KeyError::Private));
        assert_eq!(PrivateKey::parse(&public).map(drop), Err(KeyError::Public));
        for bad in ["", "podbay-public-v1.", "podbay-public-v1.AA", &public[..public.len() - 1], &format!("{public}=")]
        {
            assert_eq!(PublicKey::parse(bad), Err(KeyError::Malformed), "{bad}");
        }
        // A point of small order, for which anybody can sign.
        let weak = format!("{PUBLIC}{}", BASE64.encode([&[1u8][..], &[0; 31]].concat()));
        assert_eq!(PublicKey::parse(&weak), Err(KeyError::Malformed));
        let shown = format!("{:?}", key(1));
        assert!(!shown.contains(private.strip_prefix(PRIVATE).unwrap()), "{shown}");
    }
}
