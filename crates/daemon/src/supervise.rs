//! `podbayd supervise`: the process outside a local sandbox that owns what the sandbox can't clean up itself.
//!
//! It is started by the creator with three descriptors: the sandbox's listening socket as standard input, the *leash* as
//! standard output, and a log as standard error. It makes the jail, with podbayd as its first process, and says on the leash how
//! that went. From then on it waits: for the sandbox's end, for someone who asks for it on `supervisor.sock`, and, where the
//! sandbox shall not outlive its creator, for the leash to be let go. Then it removes everything.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use podbay_jail::supervision::{CONTROL, Report, SPEC, Spec};
use podbay_jail::{Jailed, STATE, WORKSPACE};
use rustix::event::{PollFd, PollFlags};

use crate::serve;
use crate::sys::{self, Fork};

/// Makes the sandbox that a directory describes, and looks after it until its end.
///
/// # Errors
/// When the descriptors aren't there or nothing can be said on the leash.
pub fn run(dir: &Path) -> io::Result<()> {
    let listener = sys::inherited(0)?;
    let mut leash = UnixStream::from(sys::inherited(1)?);
    // The creator waits for this process only; the one that goes on belongs to nobody.
    if let Fork::Parent = sys::fork()? {
        return Ok(());
    }
    rustix::process::setsid()?;
    let (spec, jailed) = match start(dir, &listener) {
        Ok(started) => started,
        Err(message) => {
            remove(dir);
            return say(&mut leash, &Report::Failed { message });
        }
    };
    drop(listener);
    let mut sandbox = Supervised { dir: dir.to_owned(), jailed };
    let control = UnixListener::bind(dir.join(CONTROL));
    let limits = sandbox.jailed.limits().to_vec();
    let ready = say(&mut leash, &Report::Ready { supervisor: std::process::id(), limits });
    let asked = match (control, ready) {
        (Ok(control), Ok(())) => sandbox.wait(&control, spec.leashed.then_some(&leash)),
        (Err(error), _) => {
            eprintln!("podbayd: the supervisor's socket can't be made: {error}");
            Vec::new()
        }
        // The creator has died in the middle of creating.
        (_, Err(_)) => Vec::new(),
    };
    sandbox.end();
    drop(asked);
    Ok(())
}

fn say(leash: &mut UnixStream, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    leash.write_all(&line)
}

fn start(dir: &Path, listener: &OwnedFd) -> Result<(Spec, Jailed), String> {
    let path = dir.join(SPEC);
    let json = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let spec: Spec = serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", path.display()))?;
    let options = serve::Options {
        state: STATE.into(),
        workdir: Some(WORKSPACE.into()),
        ttl: spec.ttl.map(Duration::from_secs),
        idle_ttl: spec.idle_ttl.map(Duration::from_secs),
        ..serve::Options::default()
    };
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

struct Supervised {
    dir: PathBuf,
    jailed: Jailed,
}

impl Supervised {
    /// Waits for the end, or for a reason to bring it about. Whoever asked for it is still connected.
    fn wait(&self, control: &UnixListener, leash: Option<&UnixStream>) -> Vec<UnixStream> {
        loop {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.jailed.pidfd(), PollFlags::IN),
                PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            ];
            fds.extend(leash.map(|leash| PollFd::from_borrowed_fd(leash.as_fd(), PollFlags::IN)));
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Vec::new(),
            }
            let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if happened[1] {
                return control.accept().map(|(asker, _)| asker).into_iter().collect();
            }
            if happened[0] || happened.get(2) == Some(&true) {
                return Vec::new();
            }
        }
    }

    fn end(&mut self) {
        if let Err(error) = self.jailed.cleanup() {
            eprintln!("podbayd: the sandbox in {} didn't end cleanly: {error}", self.dir.display());
        }
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("podbayd: {} can't be removed: {error}", dir.display());
    }
}
