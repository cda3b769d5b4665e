//! Sizes and times as people write them. Flags, settings, the environment and every language binding read them here, so
//! that `10MB` means the same everywhere.

use std::time::Duration;

/// Units of size, in bytes. `MB` is 10⁶ and `MiB` is 2²⁰; a bare `M` is `MiB`, as in Docker's and systemd's options, and so is
/// Kubernetes' `Mi`. Case doesn't matter.
const SIZES: [(&str, u64); 18] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

/// Units of time, in nanoseconds. Here case does matter: an `M` could be a month.
const TIMES: [(&str, u64); 6] = [
    ("", 1_000_000_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Suffixes of Kubernetes' quantities, with what they multiply by
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>). Case matters: `m` is a thousandth.
const SUFFIXES: [(&str, f64); 16] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("", 1.0),
];

/// A hundred years, so that nothing overflows when a time is added to a date.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reads a size: a number of bytes, or one with a unit, such as `512MiB`, `10MB` or `1.5G`.
///
/// # Errors
/// A sentence that says what would be right.
pub fn parse_size(text: &str) -> Result<u64, String> {
    scaled(&text.to_ascii_lowercase(), &SIZES)
        .ok_or_else(|| format!("{text:?} isn't a size; use a number of bytes, or a unit as in 512MiB or 10MB"))
}

/// Reads a time: a number of seconds, or one with a unit, such as `500ms`, `90s`, `15m`, `2h` or `1d`.
///
/// # Errors
/// A sentence that says what would be right.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    scaled(text, &TIMES)
        .map(Duration::from_nanos)
        .filter(|time| *time <= LONGEST)
        .ok_or_else(|| format!("{text:?} isn't a time; use a number of seconds, or a unit as in 90s, 15m or 2h"))
}

/// Reads an amount as Kubernetes writes it, such as `500m`, `1.5Gi` or `1e8`.
///
/// # Errors
/// A sentence that says what would be right.
pub fn parse_quantity(text: &str) -> Result<f64, String> {
    let amount = || {
        let (number, factor) =
            SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
        // Rust also reads "inf" and "nan" as numbers.
        let plain =
            number.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-' | b'e' | b'E'));
        number.parse::<f64>().ok().filter(|number| plain && number.is_finite()).map(|number| number * factor)
    };
    amount().ok_or_else(|| format!("{text:?} isn't a Kubernetes quantity, such as 500m, 2, 512Mi or 1Gi"))
}

/// Writes a size in the largest unit that leaves no fraction: `512MiB`.
pub fn format_size(bytes: u64) -> String {
    format(bytes, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)], "B")
}

/// Writes a time in the largest unit that leaves no fraction: `90s`. What is less than a millisecond isn't shown.
pub fn format_time(time: Duration) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    format(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &units, "ms")
}

fn format(number: u64, units: &[(&str, u64)], smallest: &str) -> String {
    // Zero is a multiple of everything.
    let unit = units.iter().find(|(_, factor)| number.is_multiple_of(*factor) && number > 0);
    unit.map_or_else(|| format!("{number}{smallest}"), |(unit, factor)| format!("{}{unit}", number / factor))
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    // Whole numbers of any length stay exact.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let scaled = number.parse::<f64>().ok()? * *factor as f64;
    (scaled < u64::MAX as f64 / 2.0).then_some(scaled.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--memory 10MB` was 10,485,760 bytes, and `--set local.memory=10MB` was 9,998,336.
    #[test]
    fn decimal_units_are_powers_of_1000_and_binary_units_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("64K", 65_536),
            ("64kB", 64_000),
            ("10 MB", 10_000_000),
            ("10mb", 10_000_000),
            ("10MiB", 10 << 20),
            ("10Mi", 10 << 20),
            ("10M", 10 << 20),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
            ("2GB", 2_000_000_000),
            ("1T", 1 << 40),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "1X", "1e400", "nan", "999999999T", "1K2", "1.2.3", "∞"] {
            let error = parse_size(bad).unwrap_err();
            assert!(error.contains("512MiB"), "{bad}: {error}");
        }
    }

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, amount) in [
            ("500m", 0.5),
            ("2", 2.0),
            ("1.5Gi", 1_610_612_736.0),
            ("1G", 1e9),
            ("2k", 2000.0),
            ("1e8", 1e8),
            ("1E8", 1e8),
            ("1E", 1e18),
            ("1u", 1e-6),
        ] {
            assert_eq!(parse_quantity(text), Ok(amount), "{text}");
        }
        for bad in ["", "Mi", "lots", "1K", "1 Gi", "inf", "nan", "1e999", "1GB"] {
            assert!(parse_quantity(bad).unwrap_err().contains("512Mi"), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, ms) in [("90", 90_000), ("500ms", 500), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1s", "1y", "1M", "inf", "1e99", "9999999999d", "40000d"] {
            let error = parse_time(bad).unwrap_err();
            assert!(error.contains("90s"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for bytes in [0, 1, 1000, 1024, 10_000_000, 3 << 29, 1 << 40] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        for ms in [0, 1, 999, 1000, 90_000, 3_600_000, 86_400_000] {
            let time = Duration::from_millis(ms);
            assert_eq!(parse_time(&format_time(time)), Ok(time));
        }
        assert_eq!((format_size(1 << 30).as_str(), format_time(Duration::from_secs(90)).as_str()), ("1GiB", "90s"));
    }
}
