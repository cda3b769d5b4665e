//! Tokens of TCP clients: checked for the connection, and again for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use podbay_proto::token::{self, Claims, Identity, TokenError};
use podbay_proto::{Error, ErrorCode, Result};
use tokio::sync::Semaphore;

use super::listening::Keys;
use crate::stderr_log::log_error;

/// Who may use podbayd over TCP.
#[derive(Debug)]
pub(super) struct TokenCheck {
    pub(super) keys: Keys,
    pub(super) identity: Identity,
    pub(super) allow_local: bool,
    /// Whether the keys couldn't be read the last time.
    pub(super) failed: AtomicBool,
    /// Connections that may still be admitted.
    pub(super) room: Arc<Semaphore>,
}

impl TokenCheck {
    pub(super) fn verify(&self, shown: &str) -> Result<Claims, TokenError> {
        let keys = self.keys.read();
        // Once: strangers decide how often this is tried.
        if let (Err(error), false) = (&keys, self.failed.swap(keys.is_err(), Ordering::Relaxed)) {
            log_error(format!("can't check tokens: {error}"));
        }
        let keys = keys.unwrap_or_default();
        token::verify(shown, &keys, &self.identity, now())
    }
}

/// What one connection has shown.
#[derive(Debug)]
pub struct Authorization {
    pub(super) check: Arc<TokenCheck>,
    /// The token that was verified last: requests repeat it.
    pub(super) last: Mutex<(String, Claims)>,
}

impl Authorization {
    /// Checks the token of a request.
    ///
    /// # Errors
    /// `unauthorized`.
    pub fn check(&self, shown: Option<&str>) -> Result<()> {
        let shown = shown.ok_or_else(|| refused(TokenError::Missing))?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 == shown {
            return token::still_valid(&last.1, now()).map_err(refused);
        }
        let claims = self.check.verify(shown).map_err(refused)?;
        *last = (shown.to_owned(), claims);
        Ok(())
    }
}

impl Authorization {
    /// Waits until the last token that was shown has expired.
    pub async fn expired(&self) {
        loop {
            let expires = self.last.lock().unwrap_or_else(PoisonError::into_inner).1.expires;
            match expires.saturating_sub(now()) {
                0 => return,
                // Another token may come meanwhile, and the clock may be set.
                left => tokio::time::sleep(Duration::from_secs(left.min(60))).await,
            }
        }
    }
}

pub(super) fn refused(why: TokenError) -> Error {
    Error::new(ErrorCode::Unauthorized, why.to_string())
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
