//! Signed tokens: what a client shows to a podbayd that listens on TCP.
//!
//! Clients have a private key and podbayd has only the public one, so nothing in a sandbox can make a token, and every
//! client can make one for every sandbox. A token names one container of one pod and expires soon: stolen, it opens nothing
//! else, and not for long. A client that can't ask the cluster which pod a Sandbox has names the Sandbox alone
//! ([`Claims::without_pod`]); only a podbayd that was told its Sandbox's name accepts that.
//!
//! A token is `v1.PAYLOAD.SIGNATURE`, the last two in base64url without padding. The payload is [`Claims`] as JSON. The
//! Ed25519 signature covers [`DOMAIN`] and the payload's bytes, so that it can't be taken for a signature of anything else.

mod keys;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer};
use serde::{Deserialize, Serialize};

pub use self::keys::{KeyError, MOST_KEYS, PrivateKey, PublicKey};

/// What is signed begins with this.
pub const DOMAIN: &[u8] = b"podbay token v1\0";

/// The most bytes that a token may have. Names in Kubernetes have at most 253.
pub const LONGEST: usize = 2 << 10;

/// The most seconds that a token may still be valid. One that never expires would be a password.
pub const LONGEST_LIFE: u64 = 24 * 3600;

const VERSION: &str = "v1";

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

impl PrivateKey {
    /// Makes a token.
    pub fn sign(&self, claims: &Claims) -> String {
        // These are texts and a number, for which JSON can't fail.
        let payload = serde_json::to_vec(claims).unwrap_or_default();
        let signature = self.0.sign(&signed(&payload));
        format!("{VERSION}.{}.{}", BASE64.encode(payload), BASE64.encode(signature.to_bytes()))
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

#[cfg(test)]
mod tests;
