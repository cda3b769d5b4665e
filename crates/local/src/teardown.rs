//! Ending sandboxes, and removing what is left of those whose supervisor was killed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use podbay_supervision::{CONTROL, Started, is_supervised, remove_sandbox, remove_tree};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::AsyncReadExt;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::sandbox_dir::{SandboxDir, is_alive};

/// How long deletion waits for the supervisor of a sandbox that is still being created.
const START: Duration = Duration::from_secs(10);

/// How long a sandbox's processes may take to end.
const END: Duration = Duration::from_secs(30);

/// An unfinished sandbox of this age whose socket is closed was left by a creator that was killed.
const STALE: Duration = Duration::from_secs(60);

/// Ends a sandbox. When this returns, nothing of it is left.
pub(crate) async fn delete(sandbox: &SandboxDir) -> Result<()> {
    let begun = Instant::now();
    let (id, root) = (&sandbox.id, sandbox.root());
    loop {
        match tokio::net::UnixStream::connect(root.join(CONTROL)).await {
            Ok(mut supervisor) => {
                // The connection closes when everything is gone, or when the supervisor is killed.
                let closed = tokio::time::timeout(END, supervisor.read(&mut [0])).await;
                if closed.is_err() {
                    let why = format!("its supervisor hasn't finished after {} s", END.as_secs());
                    return Err(Error::Stuck { id: id.clone(), why });
                }
            }
            // Its supervisor is still starting.
            Err(_) if sandbox.is_in_place() && is_alive(&root) => {
                if begun.elapsed() > START {
                    let why = "it has no supervisor yet; end the process that is creating it".to_owned();
                    return Err(Error::Stuck { id: id.clone(), why });
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            Err(_) => {}
        }
        if !sandbox.is_in_place() {
            return Ok(());
        }
        if !is_alive(&root) {
            return remove(sandbox).await;
        }
        if begun.elapsed() > START + END {
            return Err(Error::Stuck { id: id.clone(), why: "its socket is still open".to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Removes a dead sandbox that has no supervisor. Returns whether this was one: a sandbox that runs or is being created has an
/// open socket, and stays.
pub(crate) async fn sweep(sandbox: &SandboxDir) -> Result<bool> {
    let root = sandbox.root();
    if is_supervised(&root.join(".")) || is_alive(&root) || !sandbox.is_in_place() {
        return Ok(false);
    }
    remove(sandbox).await?;
    tracing::debug!(id = sandbox.id, "removed the remains of a killed supervisor");
    Ok(true)
}

/// Removes a dead sandbox's directory and what else its supervisor would have removed.
async fn remove(sandbox: &SandboxDir) -> Result<()> {
    let SandboxDir { id, dir, identity, started, .. } = sandbox;
    let (id, dir, identity, started) = (id.clone(), dir.clone(), *identity, started.clone());
    let work = move || -> Result<()> {
        if let Some(started) = started {
            await_end(&id, &started)?;
            remove_cgroups(&started)?;
        }
        remove_sandbox(&dir, identity).map_err(Error::home(&dir, "can't remove the sandbox's directory"))?;
        Ok(())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Stuck { id: sandbox.id.clone(), why: error.to_string() }),
    }
}

/// The sandbox dies with its supervisor: the kernel kills its first process, and with that all others.
fn await_end(id: &str, started: &Started) -> Result<()> {
    let stuck = |why: String| Error::Stuck { id: id.to_owned(), why };
    let Some(pid) = i32::try_from(started.first).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    // Another process may have the id by now. The descriptor refers to whichever it is.
    if started.first_began.is_none() || podbay_jail::process_tree::start_time(started.first) != started.first_began {
        return Ok(());
    }
    // The first process of a sandbox without namespaces ends the others on TERM; if it were killed, it couldn't.
    for (patience, signal) in
        [(Duration::from_secs(2), Signal::TERM), (Duration::from_secs(2), Signal::KILL), (END, Signal::KILL)]
    {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout))) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(stuck(format!("can't wait for its process {} to end: {error}", started.first))),
        }
        match rustix::process::pidfd_send_signal(&pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(stuck(format!("can't kill its process {}: {error}", started.first))),
        }
    }
    Err(stuck(format!("its process {} is still running", started.first)))
}

fn remove_cgroups(started: &Started) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(5);
    for directory in &started.cgroups {
        loop {
            match fs::remove_dir(directory) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // The kernel releases dead tasks a little later.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(Error::home(directory, "can't remove the control group")(error)),
            }
        }
    }
    Ok(())
}

/// Removes unfinished sandboxes whose creators were killed. Returns how many there were.
pub(crate) fn sweep_unfinished(home: &Home) -> Result<usize> {
    let unfinished = home.unfinished();
    let entries = fs::read_dir(&unfinished).map_err(Error::home(&unfinished, "can't list it"))?;
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
    match remove_tree(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::home(path, "can't remove it")(error)),
    }
}
