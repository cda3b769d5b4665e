//! When a sandbox expires.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podbay_proto::{layout, session};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::Daemon;
use crate::state_file;
use crate::stderr_log::log_error;

/// How long the container's first process has to end after its signal.
const END_GRACE: Duration = Duration::from_secs(10);

/// How long a sandbox may live.
#[derive(Default)]
pub struct LifetimeClock {
    limits: Mutex<TimeLimits>,
    changed: Notify,
    /// Where the limits are kept, if they are.
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default)]
struct TimeLimits {
    end: Option<Instant>,
    idle: Option<Duration>,
}

/// Limits as they are on disk: in wall-clock time, which passes even while no podbayd runs.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Kept {
    end_ms: Option<u64>,
    idle_ms: Option<u64>,
}

impl LifetimeClock {
    /// A lifetime that begins now.
    pub fn new(ttl: Option<Duration>, idle: Option<Duration>) -> Self {
        let end = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        Self { limits: Mutex::new(TimeLimits { end, idle }), ..Self::default() }
    }

    /// A lifetime that is kept in a state directory. One that is there already continues.
    pub fn kept(state: &Path, ttl: Option<Duration>, idle: Option<Duration>) -> Self {
        let file = state.join(layout::LIFETIME);
        let before = state_file::read(&file, 4096).ok().and_then(|json| serde_json::from_slice::<Kept>(&json).ok());
        let lifetime = match before {
            Some(kept) => {
                let left = |end_ms: u64| Duration::from_millis(end_ms.saturating_sub(unix_ms()));
                Self::new(kept.end_ms.map(left), kept.idle_ms.map(Duration::from_millis))
            }
            None => Self::new(ttl, idle),
        };
        let lifetime = Self { file: Some(file), ..lifetime };
        if before.is_none()
            && let Err(error) = lifetime.keep()
        {
            // podbayd serves all the same, for instance on a full disk.
            log_error(format_args!("can't save the sandbox's time limits, so they won't survive a restart: {error}"));
        }
        lifetime
    }

    /// Sets new limits, counted from now.
    ///
    /// # Errors
    /// When they can't be saved.
    pub fn set(&self, wanted: session::Lifetime) -> io::Result<()> {
        let end = wanted.ttl_ms.and_then(|ttl| Instant::now().checked_add(Duration::from_millis(ttl)));
        let limits = TimeLimits { end, idle: wanted.idle_ttl_ms.map(Duration::from_millis) };
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.changed.notify_one();
        self.keep()
    }

    fn limits(&self) -> TimeLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let TimeLimits { end, idle } = self.limits();
        let end_ms = end.map(|end| unix_ms().saturating_add(millis(end.saturating_duration_since(Instant::now()))));
        let kept = Kept { end_ms, idle_ms: idle.map(millis) };
        state_file::replace(file, &serde_json::to_vec(&kept)?)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Waits until the sandbox's time is up or it has been idle for too long; forever if neither limit is set.
///
/// Requests under way are activity, and so are commands that run with nobody attached.
pub async fn expired(daemon: Arc<Daemon>) {
    let mut busy_at = Instant::now();
    loop {
        let now = Instant::now();
        let limits = daemon.lifetime.limits();
        if limits.end.is_some_and(|end| now >= end) {
            return;
        }
        let mut pause = limits.end.map(|end| end - now);
        if let Some(limit) = limits.idle {
            let quiet = daemon.activity.idle().min(now - busy_at);
            if quiet >= limit {
                if daemon.execs.running() == 0 {
                    return;
                }
                busy_at = now;
            }
            // A command's end doesn't wake this loop, so running ones are checked from time to time.
            let left = limit.saturating_sub(daemon.activity.idle().min(now - busy_at)).min(limit / 4);
            let left = left.max(Duration::from_millis(10));
            pause = Some(pause.map_or(left, |pause| pause.min(left)));
        }
        let sleep = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = daemon.lifetime.changed.notified() => {}
        }
    }
}

/// Ends the container by signalling its first process, unless that is podbayd itself.
pub async fn end_container() {
    let first = rustix::process::Pid::INIT;
    if rustix::process::getpid() == first {
        return;
    }
    match rustix::process::kill_process(first, rustix::process::Signal::TERM) {
        // The kernel ends this process together with the first.
        Ok(()) => tokio::time::sleep(END_GRACE).await,
        Err(error) => log_error(format_args!("can't signal the container's first process to end: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_goes_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let second = Duration::from_secs(1);
        let first = LifetimeClock::kept(dir.path(), Some(100 * second), None);
        first.set(session::Lifetime { ttl_ms: Some(50_000), idle_ttl_ms: Some(7_000) }).unwrap();
        // The options of the next one are ignored.
        let limits = LifetimeClock::kept(dir.path(), Some(100 * second), None).limits();
        let left = limits.end.unwrap() - Instant::now();
        assert!(left > 48 * second && left <= 50 * second, "{left:?}");
        assert_eq!(limits.idle, Some(7 * second));
    }
}
