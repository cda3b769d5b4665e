//! The zygote: a small process with one thread that forks shims.
//!
//! podbayd has several threads, so it can't fork without exec, and a shim started by fork and exec costs a millisecond more.
//! The zygote is forked off before podbayd has threads. It knows nothing of commands: each byte on its socket comes with four
//! descriptors, and the fork reads what to run from the second of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use podbay_jail::PreparedConfinement;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

use crate::command_restrictions::{CommandRestrictions, EnforcedRestrictions};
use crate::descriptors;
use crate::sealed::OwnProgram;
use crate::sys::{self, Fork, Reaped};

/// The number of the confinement's descriptor; the socket has 3.
const CONFINEMENT_FD: i32 = 4;

/// Listening socket, line to podbayd, the files `output` and `record`.
const DESCRIPTORS: usize = descriptors::MOST;

/// podbayd's connection to the zygote.
#[derive(Debug)]
pub struct Zygote {
    socket: UnixStream,
    pid: i32,
    restrictions: CommandRestrictions,
    enforced: OnceCell<EnforcedRestrictions>,
}

/// A zygote that was forked before there was an asynchronous runtime.
pub struct Forked(std::os::unix::net::UnixStream, i32);

/// Forks the zygote. To be called first, while there is one thread and no important descriptor is open.
///
/// # Errors
/// When the kernel has no room for a socket or a process, or can't confine commands as it must.
pub fn fork(restrictions: &CommandRestrictions) -> io::Result<Forked> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let confinement = restrictions.prepare_confinement()?;
    match sys::fork()? {
        Fork::Parent(pid) => Ok(Forked(ours, pid)),
        Fork::Child => {
            drop(ours);
            std::process::exit(main(theirs.into(), restrictions, confinement));
        }
    }
}

impl Zygote {
    /// Takes over a forked zygote, inside the runtime.
    ///
    /// # Errors
    /// When the socket can't be watched.
    pub fn new(forked: Forked, restrictions: CommandRestrictions) -> io::Result<Self> {
        forked.0.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(forked.0)?, pid: forked.1, restrictions, enforced: OnceCell::new() })
    }

    /// What confines the commands that it starts.
    ///
    /// # Errors
    /// When it died before it could report.
    pub async fn enforced_restrictions(&self) -> io::Result<&EnforcedRestrictions> {
        self.enforced
            .get_or_try_init(async || {
                let mut line = Vec::new();
                while line.last() != Some(&b'\n') {
                    let mut piece = [0; 4096];
                    let read = || Ok(rustix::io::read(&self.socket, &mut piece)?);
                    match self.socket.async_io(Interest::READABLE, read).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => line.extend_from_slice(&piece[..count]),
                    }
                }
                serde_json::from_slice(&line).map_err(io::Error::other)
            })
            .await
    }

    /// Starts a new one by running podbayd's program again, after this one was killed.
    ///
    /// # Errors
    /// When podbayd's own program can't be run.
    pub fn restart(&self) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let restrictions = serde_json::to_string(&self.restrictions)?;
        let theirs = OwnedFd::from(theirs);
        let child = OwnProgram::prepare().spawn(|command| {
            command.arg("zygote").arg("--restrictions").arg(&restrictions).stdout(Stdio::null());
            if let Ok(theirs) = theirs.try_clone() {
                command.stdin(Stdio::from(theirs));
            }
        })?;
        Self::new(Forked(ours, child.id() as i32), self.restrictions.clone())
    }

    /// Its process id. It is a child of podbayd.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it lives. It may be stopped.
    pub fn is_alive(&self) -> bool {
        podbay_jail::process_tree::is_child_of(self.pid, None)
    }

    /// Forks a shim with these descriptors.
    ///
    /// # Errors
    /// When the zygote is gone.
    pub async fn fork_shim(&self, fds: [BorrowedFd<'_>; DESCRIPTORS]) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, || descriptors::send(&self.socket, b'!', &fds)).await
    }
}

/// Runs the zygote until podbayd is gone. Its children, the shims, stay. The restrictions hold for it and everything that it starts;
/// commands also enter a confinement of their own.
pub fn main(socket: OwnedFd, restrictions: &CommandRestrictions, confinement: Option<PreparedConfinement>) -> i32 {
    // A restarted zygote runs podbayd's program again, which makes its memory readable unless that is a sealed copy.
    sys::set_undumpable();
    sys::default_signals();
    // The bootstrap that started podbayd may have set a private umask; commands get the usual one.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Nobody reads core dumps of a sandbox's commands, and they would fill its disk.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    sys::ignore_write_signals();
    // Shims inherit all descriptors, so none of podbayd's may stay open.
    let Ok(away) = rustix::io::fcntl_dupfd_cloexec(&socket, CONFINEMENT_FD + 1) else { return 1 };
    drop(socket);
    let Ok(confinement) = confinement.map(|confinement| confinement.moved_to(CONFINEMENT_FD)).transpose() else {
        return 1;
    };
    let Ok(socket) = sys::move_to_three(away) else { return 1 };
    sys::close_from(if confinement.is_some() { CONFINEMENT_FD + 1 } else { CONFINEMENT_FD });
    let Ok(enforced) = restrictions.enter() else { return 1 };
    if !tell(&socket, &enforced) {
        return 1;
    }
    let Ok(children) = sys::child_signals() else { return 1 };
    loop {
        let mut fds = [
            rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN),
            rustix::event::PollFd::new(&children, rustix::event::PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
        let (request, ended) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if ended {
            let mut notice = [0; 128];
            while rustix::io::read(&children, &mut notice).is_ok() {}
            while let Reaped::Ended(_) = sys::reap() {}
        }
        if request {
            match receive(socket.as_fd()) {
                Ok(Some([listener, line, output, record])) => match sys::fork() {
                    Ok(Fork::Child) => {
                        drop((socket, children));
                        let files = (output.into(), record.into());
                        std::process::exit(crate::shim::run(listener, line, files, confinement));
                    }
                    // When the descriptors close, podbayd learns that there is no shim.
                    Ok(Fork::Parent(_)) | Err(_) => {}
                },
                Ok(None) => return 0,
                Err(_) => return 1,
            }
        }
    }
}

/// Reports what confines commands. It is small enough to fit into the socket's buffer at once.
fn tell(socket: &OwnedFd, enforced: &EnforcedRestrictions) -> bool {
    let Ok(mut line) = serde_json::to_vec(enforced) else { return false };
    line.push(b'\n');
    rustix::io::write(socket, &line).is_ok_and(|written| written == line.len())
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<[OwnedFd; DESCRIPTORS]>> {
    let Some((_, fds)) = descriptors::receive(socket)? else { return Ok(None) };
    fds.try_into().map(Some).map_err(|_| io::Error::other("a message to the zygote arrived without its descriptors"))
}
