//! When a sandbox ends by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Daemon;

/// Waits until the sandbox's time is up, or until it has been idle for long enough. For ever when neither is set.
///
/// Requests under way are activity, and so are commands that run with nobody attached.
pub async fn expired(daemon: Arc<Daemon>, ttl: Option<Duration>, idle: Option<Duration>) {
    let begun = Instant::now();
    let mut busy_at = begun;
    loop {
        let now = Instant::now();
        let age = now - begun;
        if ttl.is_some_and(|ttl| age >= ttl) {
            return;
        }
        let mut pause = ttl.map(|ttl| ttl - age);
        if let Some(limit) = idle {
            let quiet = daemon.activity.idle().min(now - busy_at);
            if quiet >= limit {
                if daemon.execs.running().await == 0 {
                    return;
                }
                busy_at = now;
            }
            // A command's end is no event here, so running ones are looked at from time to time.
            let left = limit.saturating_sub(daemon.activity.idle().min(now - busy_at)).min(limit / 4);
            let left = left.max(Duration::from_millis(10));
            pause = Some(pause.map_or(left, |pause| pause.min(left)));
        }
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => std::future::pending().await,
        }
    }
}
