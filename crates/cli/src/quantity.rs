//! Sizes, spans of time and `KEY=VALUE` pairs as people write them.

use std::time::Duration;

/// A number of bytes: `65536`, `64K`, `512M`, `2G`, `1.5GiB`. Units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(format!("{unit:?} is no unit of size: use K, M, G or T, as in 512M")),
    };
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 && value * factor as f64 <= u64::MAX as f64 / 2.0 => {
            Ok((value * factor as f64) as u64)
        }
        _ => Err("that is no size: use a number and a unit, as in 512M or 1.5G".to_owned()),
    }
}

/// The most of something, or `none` (also `unlimited`) for no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Most<T>(pub Option<T>);

impl<T: std::fmt::Display> Most<T> {
    /// As the setting is written.
    pub fn setting(&self) -> String {
        self.0.as_ref().map_or_else(|| "none".to_owned(), T::to_string)
    }
}

/// A size, or none.
pub fn most_bytes(text: &str) -> Result<Most<u64>, String> {
    most(text, size)
}

fn most<T>(text: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Most<T>, String> {
    if matches!(text, "none" | "unlimited") { Ok(Most(None)) } else { read(text).map(|value| Most(Some(value))) }
}

/// A whole number, or none.
pub fn most_whole(text: &str) -> Result<Most<u64>, String> {
    most(text, |text| text.parse().map_err(|_| "that is no whole number; use one, or none".to_owned()))
}

/// A number, or none.
pub fn most_real(text: &str) -> Result<Most<f64>, String> {
    most(text, |text| text.parse().map_err(|_| "that is no number; use one like 1.5, or none".to_owned()))
}

/// A span of time: `90`, `90s`, `1.5m`, `2h`, `7d`, `500ms`. Without a unit it is seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(format!("{unit:?} is no unit of time: use ms, s, m, h or d, as in 90s")),
    };
    match number.parse::<f64>() {
        // A hundred years, so that nothing overflows when it is added to a moment.
        Ok(value) if value.is_finite() && (0.0..=3.2e9).contains(&(value * factor)) => {
            Ok(Duration::from_secs_f64(value * factor))
        }
        _ => Err("that is no span of time: use a number and a unit, as in 90s or 2h".to_owned()),
    }
}

/// A span of time that isn't nothing.
pub fn positive_span(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
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

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..end].trim(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("64K", 65_536), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("10 MB", 10 << 20)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "1X", "1e400", "nan", "999999999T", "1K2"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_can_be_lifted() {
        assert_eq!((most_bytes("none"), most_whole("unlimited")), (Ok(Most(None)), Ok(Most(None))));
        assert_eq!((most_bytes("1K"), most_whole("7")), (Ok(Most(Some(1024))), Ok(Most(Some(7)))));
        assert_eq!((most_real("1.5"), most_real("none")), (Ok(Most(Some(1.5))), Ok(Most(None))));
        assert!(most_whole("many").is_err() && most_real("all").is_err() && most_bytes("lots").is_err());
    }

    #[test]
    fn spans_have_units() {
        for (text, ms) in [("90", 90_000), ("500ms", 500), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)] {
            assert_eq!(span(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1s", "1y", "inf", "1e99", "9999999999d"] {
            assert!(span(bad).is_err(), "{bad}");
        }
        assert!(positive_span("0s").is_err());
    }

    #[test]
    fn pairs_have_a_key() {
        assert_eq!(pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }
}
