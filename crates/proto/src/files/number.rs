//! Whole numbers in the forms in which callers send them.

use serde::{Deserialize, Deserializer};

/// Accepts any whole JSON number. Numbers beyond `i64` become its largest value, because a limit of `u64::MAX` means no limit.
///
/// # Errors
/// When it isn't a whole number.
pub fn saturating<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Signed(i64),
        Unsigned(u64),
        Float(f64),
    }
    match Number::deserialize(deserializer) {
        Ok(Number::Signed(value)) => Ok(value),
        Ok(Number::Unsigned(value)) => Ok(i64::try_from(value).unwrap_or(i64::MAX)),
        // JavaScript has only these; `as` saturates.
        Ok(Number::Float(value)) if value.fract() == 0.0 => Ok(value as i64),
        _ => Err(serde::de::Error::custom("expected a whole number")),
    }
}
