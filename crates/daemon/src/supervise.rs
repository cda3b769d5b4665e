//! `podbayd supervise`: the process outside a local sandbox that owns what the sandbox can't clean up itself.
//!
//! It is started by the creator with three descriptors: the sandbox's listening socket as standard input, the *leash* as
//! standard output, and a log as standard error. It creates the jail, with podbayd as its first process, and reports the result
//! on the leash. Then it waits for one of three things: the sandbox ends; a client connects to `supervisor.sock` to ask for
//! its end; or, if the sandbox must not outlive its creator, the leash is closed. Finally it removes everything.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use podbay_jail::{
    CommandConfinement, CommandFilter, FailedStep, Isolation, Jail, JailError, Jailed, STATE, WORKSPACE,
};
use podbay_supervision::{
    CONTROL, DirectoryIdentity, SPEC, STARTED, Spec, StartReport, Started, make_host_dirs, mark_supervised,
    remove_sandbox,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::oom;
use crate::serve;
use crate::stderr_log::log_error;
use crate::sys::{self, Fork};

/// Creates the sandbox that a directory describes, and supervises it until it has ended.
///
/// # Errors
/// When a descriptor is missing, or nothing can be written to the leash.
pub fn run(dir: &Path) -> io::Result<()> {
    let listener = sys::inherited(0)?;
    let mut leash = UnixStream::from(sys::inherited(1)?);
    // While the listener is open, nobody takes this for the directory of a dead sandbox.
    let identity = DirectoryIdentity::of(dir)?;
    // The creator waits for this process only; the child that continues is detached from it.
    if let Fork::Parent(_) = sys::fork()? {
        return Ok(());
    }
    rustix::process::setsid()?;
    oom::set_minimum();
    let alive = mark_supervised(dir)?;
    let begun = Instant::now();
    let control = dir.join(CONTROL);
    let made = UnixListener::bind(&control)
        .and_then(|listener| {
            fs::set_permissions(&control, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        })
        .map_err(|error| format!("can't create the supervisor's socket: {error}"))
        .and_then(|control| start(dir, &listener).map(|(spec, jailed)| (control, spec, jailed)));
    let (control, spec, jailed) = match made {
        Ok(made) => made,
        Err(message) => {
            remove(dir, identity);
            let said = say(&mut leash, &StartReport::Failed { message });
            std::mem::forget(leash);
            return said;
        }
    };
    drop(listener);
    let mut sandbox = Supervised { dir: dir.to_owned(), identity, jailed };
    let ready = sandbox.record().and_then(|started| say(&mut leash, &StartReport::Ready(started)));
    let asked = match ready {
        Ok(()) => {
            let end = spec.ttl_ms.and_then(|ttl| begun.checked_add(Duration::from_millis(ttl)));
            sandbox.wait(&control, (spec.leashed || spec.unconfirmed).then_some(&leash), end)
        }
        // The creator died during creation, or nothing can be written: nobody knows of this sandbox.
        Err(error) => {
            log_error(format_args!("can't report the sandbox to its creator: {error}"));
            None
        }
    };
    sandbox.end();
    // Clients that asked for the end, accepted or still queued, notice it when the kernel closes their connection, after
    // everything else of this process is gone.
    std::mem::forget((asked, control, leash, alive));
    Ok(())
}

fn say(leash: &mut UnixStream, report: &StartReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    leash.write_all(&line)
}

fn start(dir: &Path, listener: &OwnedFd) -> Result<(Spec, Jailed), String> {
    let path = dir.join(SPEC);
    let json = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut spec: Spec = serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut options = serve::Options {
        state: STATE.into(),
        workdir: Some(WORKSPACE.into()),
        ttl: spec.ttl_ms.map(Duration::from_millis),
        idle_ttl: spec.idle_ttl_ms.map(Duration::from_millis),
        supervised: true,
        ..serve::Options::default()
    };
    match spec.jail.isolation {
        Isolation::Namespaces => options.restrictions.filter = Some(CommandFilter::Local),
        Isolation::Landlock => {
            without_namespaces(dir, &mut spec.jail, &mut options).map_err(|error| error.to_string())?;
        }
    }
    let socket = listener.as_fd();
    let jailed = podbay_jail::spawn(&spec.jail, &[socket], move || {
        let served = socket.try_clone_to_owned().and_then(|socket| {
            let options = serve::Options { socket: Some(socket), ..options };
            serve::run(options)
        });
        if served.is_ok() { 0 } else { 1 }
    })
    .map_err(|error| error.to_string())?;
    Ok((spec, jailed))
}

/// Without namespaces, paths are the host's, and commands are confined more than podbayd.
fn without_namespaces(dir: &Path, jail: &mut Jail, options: &mut serve::Options) -> Result<(), JailError> {
    make_host_dirs(dir, jail)?;
    // If the sandbox's guardian is killed, its processes become this process's children, which it has to end.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| JailError::from(FailedStep::new("become a subreaper", error)))?;
    options.state = jail.state.clone().unwrap_or_default();
    options.workdir = jail.workspace.clone();
    options.restrictions.confinement = Some(CommandConfinement::of(jail)?);
    options.elsewhere = jail.workspace.iter().map(|place| (WORKSPACE.into(), place.clone())).collect();
    Ok(())
}

struct Supervised {
    dir: PathBuf,
    identity: DirectoryIdentity,
    jailed: Jailed,
}

impl Supervised {
    /// Records what was created, so that others can clean up if this process is killed.
    fn record(&self) -> io::Result<Started> {
        let first = self.jailed.pid().as_raw_nonzero().get().unsigned_abs();
        let started = Started {
            supervisor: std::process::id(),
            first,
            first_began: podbay_jail::process_tree::start_time(first),
            cgroups: self.jailed.cgroup().map(|cgroup| cgroup.directories().to_vec()).unwrap_or_default(),
            limits: self.jailed.limits().to_vec(),
        };
        let temporary = self.dir.join("started.new");
        let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        file?.write_all(&serde_json::to_vec(&started)?)?;
        fs::rename(temporary, self.dir.join(STARTED))?;
        Ok(started)
    }

    /// Waits until the sandbox has ended or has to be ended. A client that asked for it stays connected.
    fn wait(&self, control: &UnixListener, mut leash: Option<&UnixStream>, end: Option<Instant>) -> Option<UnixStream> {
        loop {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.jailed.pidfd(), PollFlags::IN),
                PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            ];
            fds.extend(leash.map(|leash| PollFd::from_borrowed_fd(leash.as_fd(), PollFlags::IN)));
            // podbayd exits when its time is up. But it shares the sandbox with untrusted processes, so that isn't
            // relied on.
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match rustix::event::poll(&mut fds, left.as_ref()) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    log_error(format_args!("the supervisor can't wait for events: {error}"));
                    return None;
                }
            }
            let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if happened[1] {
                return control.accept().map(|(asker, _)| asker).ok();
            }
            if happened[0] {
                return None;
            }
            if happened.get(2) == Some(&true) {
                // A byte from the creator releases the leash; closing it without one doesn't.
                match leash.map(|mut leash| leash.read(&mut [0])) {
                    Some(Ok(1..)) => leash = None,
                    _ => return None,
                }
            }
        }
    }

    fn end(&mut self) {
        let ended = self.jailed.kill().and_then(|()| self.jailed.wait()).and_then(|_| {
            // Processes remain only if the guardian was killed.
            podbay_jail::process_tree::end_descendants();
            self.jailed.cleanup()
        });
        if let Err(error) = ended {
            log_error(format_args!("the sandbox in {} didn't end cleanly: {error}", self.dir.display()));
        }
        remove(&self.dir, self.identity);
    }
}

fn remove(dir: &Path, identity: DirectoryIdentity) {
    if let Err(error) = remove_sandbox(dir, identity) {
        log_error(format_args!("{} can't be removed: {error}", dir.display()));
    }
}
