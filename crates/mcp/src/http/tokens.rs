//! The tokens that open a server.

use std::net::SocketAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

/// The shortest token that is accepted.
const SHORTEST: usize = 16;

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Others can reach the address.
    #[error(
        "{0} can be reached from other machines, so a token is needed: write one to a file ('umask 077; openssl rand -hex 32 > token') \
         and give it with --token-file, or listen on 127.0.0.1"
    )]
    Needed(SocketAddr),
    /// There is no token in the file.
    #[error("the token file has no token: write one to it, such as the output of 'openssl rand -hex 32'")]
    Empty,
    /// A token can be guessed, or can't be sent.
    #[error(
        "line {0} of the token file can't be a token: it needs {SHORTEST} visible ASCII characters or more and no spaces; try \
         'openssl rand -hex 32'"
    )]
    Unfit(usize),
    /// The address isn't known.
    #[error("can't listen: {0}")]
    Listen(std::io::Error),
}

/// Who a request comes from: the digest of its token, none where no token is needed.
pub(super) type Owner = Option<[u8; 32]>;

/// The tokens that open a server. Only their digests are kept.
#[derive(Clone, Default)]
pub struct Tokens(Vec<[u8; 32]>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// The tokens of a file, one on each line. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// When there is none, or one is too short.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        let mut digests = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(ListenError::Unfit(index + 1));
            }
            digests.push(digest(token));
        }
        if digests.is_empty() { Err(ListenError::Empty) } else { Ok(Self(digests)) }
    }

    /// Whether no token is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose request this is; nothing if it has no valid token.
    pub(super) fn owner(&self, headers: &HeaderMap) -> Option<Owner> {
        if self.is_empty() {
            return Some(None);
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // Digests are compared, so that the time says nothing about the token; and all of them are.
        let shown = digest(token.trim());
        let mut found = None;
        for known in &self.0 {
            if *known == shown {
                found = Some(*known);
            }
        }
        found.map(Some)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn tokens_stand_on_lines_of_their_own() {
        let tokens = Tokens::parse("# ours\n\n0123456789abcdef\r\n  fedcba9876543210  \n").unwrap();
        let first = tokens.owner(&headers("Bearer 0123456789abcdef")).unwrap();
        let second = tokens.owner(&headers("bearer fedcba9876543210")).unwrap();
        assert!(first.is_some() && second.is_some() && first != second);
        for wrong in ["Bearer 0123456789abcdeF", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer ", "Bearer"] {
            assert_eq!(tokens.owner(&headers(wrong)), None, "{wrong}");
        }
        assert_eq!(tokens.owner(&HeaderMap::new()), None);
        let mut twice = headers("Bearer 0123456789abcdef");
        twice.append(AUTHORIZATION, "Bearer fedcba9876543210".parse().unwrap());
        assert_eq!(tokens.owner(&twice), None);
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        assert!(matches!(Tokens::parse(""), Err(ListenError::Empty)));
        assert!(matches!(Tokens::parse("# only a comment"), Err(ListenError::Empty)));
        assert!(matches!(Tokens::parse("\nshort"), Err(ListenError::Unfit(2))));
        assert!(matches!(Tokens::parse("0123456789 abcdef"), Err(ListenError::Unfit(1))));
    }
}
