//! How long sandboxes may live.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// How many seconds a sandbox on a cluster may be idle by default: a day. Otherwise a forgotten one would stay, and cost money,
/// forever.
pub(crate) const DEFAULT_IDLE_TTL: u64 = 24 * 3600;

/// How long a sandbox may live and be idle, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LifetimeLimits {
    /// From its creation on.
    pub(crate) ttl: Option<u64>,
    /// From its last use on.
    pub(crate) idle_ttl: Option<u64>,
}

impl LifetimeLimits {
    /// The limits for a sandbox that has existed for this long.
    pub(crate) fn after(self, age: Duration) -> Self {
        // Never zero, which would mean no limit at all to some.
        Self { ttl: self.ttl.map(|ttl| ttl.saturating_sub(age.as_secs()).max(1)), ..self }
    }

    /// When a sandbox ends at the latest: milliseconds since 1970.
    pub(crate) fn expires_ms(self, created_ms: u64, active_ms: Option<u64>) -> Option<u64> {
        let after = |start: u64, seconds: u64| start.saturating_add(seconds.saturating_mul(1000));
        let absolute = self.ttl.map(|ttl| after(created_ms, ttl));
        let idle = self.idle_ttl.zip(active_ms).map(|(ttl, active)| after(active, ttl));
        absolute.into_iter().chain(idle).min()
    }
}

/// How long ago something was. A time that is still to come, by a clock that differs, is just now.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

/// The time of so many milliseconds since 1970.
pub(crate) fn from_millis(millis: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_ends_at_the_earlier_of_its_two_limits() {
        let limits = LifetimeLimits { ttl: Some(100), idle_ttl: Some(10) };
        assert_eq!(limits.expires_ms(1_000, Some(5_000)), Some(15_000));
        assert_eq!(limits.expires_ms(1_000, None), Some(101_000));
        assert_eq!(LifetimeLimits::default().expires_ms(1_000, Some(5_000)), None);
        assert_eq!(limits.after(Duration::from_secs(30)).ttl, Some(70));
        assert_eq!(limits.after(Duration::from_secs(300)).ttl, Some(1));
    }
}
