//! Ending sandboxes, and clearing away what is left of those whose supervisor was killed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use podbay_jail::supervision::{self, CONTROL, Started};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::AsyncReadExt;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::record::{Record, is_alive};

/// How long a sandbox may take to be made before one that wants it away gives up waiting for its supervisor.
const START: Duration = Duration::from_secs(10);

/// How long the kernel may take to end a sandbox's processes.
const END: Duration = Duration::from_secs(30);

/// What lies in the workshop for longer than this without a living maker was left by one that was killed.
const STALE: Duration = Duration::from_secs(60);

/// Ends a sandbox. Nothing is left of it when this returns.
pub(crate) async fn delete(record: &Record) -> Result<()> {
    let begun = Instant::now();
    let (id, root) = (&record.id, record.root());
    loop {
        match tokio::net::UnixStream::connect(root.join(CONTROL)).await {
            Ok(mut supervisor) => {
                // It closes the connection when everything is gone. Being killed closes it too.
                let closed = tokio::time::timeout(END, supervisor.read(&mut [0])).await;
                if closed.is_err() {
                    let why = format!("its supervisor is still at it after {} s", END.as_secs());
                    return Err(Error::Stuck { id: id.clone(), why });
                }
            }
            // Its supervisor is only just starting.
            Err(_) if record.is_in_place() && is_alive(&root) => {
                if begun.elapsed() > START {
                    let why = "it has no supervisor that could end it; kill its creator".to_owned();
                    return Err(Error::Stuck { id: id.clone(), why });
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            Err(_) => {}
        }
        if !record.is_in_place() {
            return Ok(());
        }
        if !is_alive(&root) {
            return clear(record).await;
        }
        if begun.elapsed() > START + END {
            return Err(Error::Stuck { id: id.clone(), why: "its socket stays open".to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Clears a sandbox away that is dead and has no supervisor any more; whether it was one. It takes no sandbox that lives
/// or is being made: the socket of such a one is open.
pub(crate) async fn sweep(record: &Record) -> Result<bool> {
    let root = record.root();
    if supervision::is_held(&root.join(".")) || is_alive(&root) || !record.is_in_place() {
        return Ok(false);
    }
    clear(record).await?;
    tracing::debug!(id = record.id, "what a killed supervisor left was cleared away");
    Ok(true)
}

/// Removes a dead sandbox's directory and what else its supervisor would have removed.
async fn clear(record: &Record) -> Result<()> {
    let Record { id, dir, identity, started, .. } = record;
    let (id, dir, identity, started) = (id.clone(), dir.clone(), *identity, started.clone());
    let work = move || -> Result<()> {
        if let Some(started) = started {
            await_end(&id, &started)?;
            remove_cgroups(&started)?;
        }
        supervision::retire(&dir, identity).map_err(Error::home(&dir, "what is left of it can't be removed"))?;
        Ok(())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Stuck { id: record.id.clone(), why: error.to_string() }),
    }
}

/// The sandbox dies with its supervisor: the kernel kills its first process, and with that all others.
fn await_end(id: &str, started: &Started) -> Result<()> {
    let stuck = |why: String| Error::Stuck { id: id.to_owned(), why };
    let Some(pid) = i32::try_from(started.first).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // Another process may have got its number meanwhile. The descriptor holds whichever it is.
    if started.first_began.is_none() || supervision::began(started.first) != started.first_began {
        return Ok(());
    }
    // What guards a sandbox without namespaces ends it when told to; killed, it couldn't.
    for (patience, signal) in
        [(Duration::from_secs(2), Signal::TERM), (Duration::from_secs(2), Signal::KILL), (END, Signal::KILL)]
    {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout))) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(stuck(format!("its end can't be waited for: {error}"))),
        }
        match rustix::process::pidfd_send_signal(&pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(stuck(format!("its process {} can't be killed: {error}", started.first))),
        }
    }
    Err(stuck(format!("its process {} is still there", started.first)))
}

fn remove_cgroups(started: &Started) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(5);
    for directory in &started.cgroups {
        loop {
            match fs::remove_dir(directory) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // The kernel lets go of dead tasks a little later.
                Err(error) if error.raw_os_error() == Some(16) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(Error::home(directory, "the control group can't be removed")(error)),
            }
        }
    }
    Ok(())
}

/// Clears away what creators left in the workshop that were killed in the middle; how many there were.
pub(crate) fn sweep_workshop(home: &Home) -> Result<usize> {
    let workshop = home.new_ones();
    let entries = fs::read_dir(&workshop).map_err(Error::home(&workshop, "it can't be listed"))?;
    let mut swept = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        let age = entry.metadata().and_then(|meta| meta.modified()).map(|made| SystemTime::now().duration_since(made));
        let old = matches!(age, Ok(Ok(age)) if age > STALE);
        if old && !is_alive(&path) && remove_all(&path)? {
            swept += 1;
        }
    }
    Ok(swept)
}

fn remove_all(path: &Path) -> Result<bool> {
    match supervision::remove_tree(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::home(path, "it can't be removed")(error)),
    }
}
