//! The token that TCP clients must present.

use podbay_proto::session::TOKEN;
use podbay_proto::{Error, ErrorCode, Result};

/// The token, if one is set.
#[derive(Default)]
pub struct Token(Option<Vec<u8>>);

impl Token {
    /// A token.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self(Some(text.into()))
    }

    /// Whether a token is set.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the token that a client presented.
    ///
    /// # Errors
    /// `unauthorized`.
    pub fn check(&self, shown: Option<&str>) -> Result<()> {
        match (&self.0, shown) {
            (Some(token), Some(shown)) if same(token, shown.as_bytes()) => Ok(()),
            (_, None) => Err(refused(format!("this podbayd requires a token: send it in the header {TOKEN}"))),
            _ => Err(refused("the token is wrong: it belongs to another sandbox, or the key has changed".to_owned())),
        }
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorCode::Unauthorized, message)
}

/// Takes the same time wherever the two differ, so that a token can't be guessed byte by byte.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_will_do() {
        let token = Token::new("secret");
        assert!(token.check(Some("secret")).is_ok());
        for shown in [None, Some(""), Some("secre"), Some("secret "), Some("Secret")] {
            assert_eq!(token.check(shown).unwrap_err().code, ErrorCode::Unauthorized, "{shown:?}");
        }
        assert!(Token::default().check(Some("")).is_err());
    }
}
