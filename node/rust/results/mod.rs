//! Results: plain objects over the core's results.

pub mod exec;
pub mod files;
pub mod providers;
pub mod session;
pub mod transfers;

use podbay::files::Time;

/// Milliseconds since 1970, as in `Date`.
pub fn moment(time: Time) -> f64 {
    time.secs as f64 * 1e3 + f64::from(time.nanos) / 1e6
}

/// Converts milliseconds to seconds.
pub fn from_milliseconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

/// Converts microseconds to seconds.
pub fn from_microseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}
