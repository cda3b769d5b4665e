//! Where an operation on files is done: here and now, or by a thread.

use podbay_proto::files::{Kind, Scope, Stat};
use podbay_proto::{RawPath, Result};

use super::Daemon;
use super::execs::blocking;

/// A file that is handled in no time.
const SMALL: u64 = 1 << 20;

/// Does something that takes microseconds where no file system keeps it waiting.
///
/// A thread that has to be woken, and to wake this one again, takes longer than reading a file does. So it is done at once
/// when no other request waits for its answer.
pub async fn brief<T: Send + 'static>(daemon: &Daemon, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    brief_if(daemon, || true, work).await
}

/// The same with a file that may be large.
pub async fn brief_if_small<T: Send + 'static>(
    daemon: &Daemon,
    path: &RawPath,
    scope: &Scope,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let small = || match daemon.files.stat(&Stat { scope: scope.clone(), ..Stat::new(path.clone()) }) {
        // Files of the kernel have no size and may have any content.
        Ok(found) => found.entry.kind == Kind::File && (1..=SMALL).contains(&found.entry.size),
        // What isn't there takes no time.
        Err(_) => true,
    };
    brief_if(daemon, small, work).await
}

async fn brief_if<T: Send + 'static>(
    daemon: &Daemon,
    is_brief: impl FnOnce() -> bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let here = daemon.activity.is_single() && daemon.mounts.are_local() && is_brief();
    if here { Ok(work()) } else { blocking(work).await }
}
