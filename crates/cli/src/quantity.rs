//! Times and `KEY=VALUE` pairs as flags of the command line.

use std::time::Duration;

use podbay::quantity::parse_time;

/// A time, such as `90s`; without a unit it is seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    parse_time(text)
}

/// A time longer than 0.
pub fn positive_span(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("the time has to be longer than 0".to_owned()),
        span => Ok(span),
    }
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("use KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_to_be_positive() {
        assert_eq!((span("0s"), positive_span("2h")), (Ok(Duration::ZERO), Ok(Duration::from_secs(7200))));
        assert!(positive_span("0s").is_err() && positive_span("soon").is_err());
    }

    #[test]
    fn pairs_have_a_key() {
        assert_eq!(pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }
}
