//! Who connects to podbayd's socket, or to a shim's.
//!
//! Commands run as podbayd's user, so they can connect to its socket wherever they can reach it: no Landlock ABI up to 7 can
//! forbid it. There they could read and write what other commands recorded, and start commands outside of their domain. So
//! podbayd asks the kernel who has connected, once for each connection, and hangs up on commands.
//!
//! A process is a command if podbayd is among its ancestors: shims adopt what their commands leave behind, and podbayd
//! adopts what is left of a shim. In a container it is one also if it runs under more seccomp filters than podbayd: filters
//! are inherited, can't be taken off, and outlast a podbayd that was restarted. (On a machine with other software that
//! proves nothing: its services have filters of their own.)

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Uid, geteuid, getpid, pidfd_open};

use crate::sys;

/// How many ancestors are looked at; a deeper tree hides something.
const GENERATIONS: usize = 4_096;

/// The most bytes of a process's status, which has a line with up to 65,536 groups.
const MAX_STATUS: u64 = 1 << 20;

/// Tells commands from everybody else.
#[derive(Debug)]
pub struct Peers {
    own: Pid,
    in_container: bool,
    /// podbayd's own seccomp filters, where everybody else in its container has as many.
    filters: Option<u32>,
}

impl Peers {
    /// For podbayd's own socket. In a container, commands have a seccomp filter that podbayd hasn't.
    pub fn new(in_container: bool) -> Self {
        let own = getpid();
        let filters = if in_container { own_filters() } else { None };
        Self { own, in_container, filters }
    }

    /// For the socket of a shim that has no podbayd at the moment: whoever is neither its descendant nor runs under more
    /// seccomp filters than podbayd did isn't a command, as far as the kernel tells.
    pub fn of_shim(podbayd_filters: Option<u32>) -> Self {
        Self { own: getpid(), in_container: true, filters: podbayd_filters }
    }

    /// Whether all commands are recognised, including those that an earlier podbayd started.
    pub fn tells_all(&self) -> bool {
        self.filters.is_some() || !self.in_container
    }

    /// Whether a command has made this connection.
    ///
    /// # Errors
    /// When the process has ended: nobody can say any more who it was.
    pub fn is_command(&self, socket: impl AsFd) -> io::Result<bool> {
        // One of another namespace, and with that outside of the sandbox, has no number in this one.
        let Some((pid, user)) = sys::peer(&socket)? else { return Ok(false) };
        let process = Handle::of(&socket, pid)?;
        let is_command = self.is_filtered(pid, user)
            || self.descends(&process.0).unwrap_or_else(|| self.descends_by_proc(pid, user));
        // What was read is true of the peer only if its number was its own all the time.
        if process.has_ended()? {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the connected process has ended"));
        }
        Ok(is_command)
    }

    /// Whether a process runs under more filters than podbayd, where that tells commands from others.
    fn is_filtered(&self, peer: Pid, user: Uid) -> bool {
        let Some(own) = self.filters else { return false };
        match Process::read(peer) {
            Some(process) => process.filters.is_some_and(|theirs| theirs > own),
            None => is_hidden_command(user),
        }
    }

    /// Whether podbayd is among a process's ancestors; nothing before Linux 6.13, which tells by pidfd. That is faster than
    /// [/proc](Self::descends_by_proc), whose text the kernel has to write.
    fn descends(&self, peer: &OwnedFd) -> Option<bool> {
        let mut ancestor: Option<OwnedFd> = None;
        for _ in 0..GENERATIONS {
            let child = ancestor.as_ref().unwrap_or(peer);
            let parent = match sys::pidfd_parent(child) {
                Ok(Some(parent)) if parent != self.own => parent,
                Ok(parent) => return Some(parent.is_some()),
                // It has left its children to another. If it is the peer itself that has ended, the caller notices.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) && ancestor.take().is_some() => continue,
                Err(_) => return None,
            };
            let process = match pidfd_open(parent, PidfdFlags::empty()) {
                Ok(process) => process,
                // The child has another parent by now.
                Err(Errno::SRCH) => continue,
                Err(_) => return None,
            };
            // If it is still the parent now, its number was its own when it was opened.
            if sys::pidfd_parent(child).is_ok_and(|still| still == Some(parent)) {
                ancestor = Some(process);
            }
        }
        Some(true)
    }

    fn descends_by_proc(&self, peer: Pid, user: Uid) -> bool {
        let Some(mut process) = Process::read(peer) else { return is_hidden_command(user) };
        let mut child = peer;
        for _ in 0..GENERATIONS {
            let Some(parent) = process.parent else { return false };
            if parent == self.own {
                return true;
            }
            let read = Process::read(parent);
            // A parent that has ended meanwhile has left its child to another, and its number too.
            let still = Process::read(child).is_some_and(|again| again.parent == Some(parent));
            match (still, read) {
                (true, Some(read)) => (child, process) = (parent, read),
                // It is there and hidden from us, so it is another user's.
                (true, None) => return false,
                (false, _) => match Process::read(peer) {
                    Some(read) => (child, process) = (peer, read),
                    None => return true,
                },
            }
        }
        true
    }
}

/// Whether a process that /proc hides from us (hidepid) is to be taken for a command: another user's isn't one; one of our own
/// user's may well be.
fn is_hidden_command(user: Uid) -> bool {
    user == geteuid()
}

/// How many seccomp filters this process runs under; nothing where the kernel doesn't count them.
pub fn own_filters() -> Option<u32> {
    Process::read(getpid()).and_then(|process| process.filters)
}

/// What the kernel says of a process.
struct Process {
    parent: Option<Pid>,
    filters: Option<u32>,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        // Read at once: the file's size, by which std would go, is always 0. A connection waits for this twice per ancestor.
        let mut status = Vec::with_capacity(4_096);
        let file = File::open(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        file.take(MAX_STATUS).read_to_end(&mut status).ok()?;
        // A process chooses its own name, which may be any bytes: it mustn't be able to make itself unreadable.
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Self {
            parent: field("PPid:").and_then(|parent| Pid::from_raw(parent.parse().ok()?)),
            filters: field("Seccomp_filters:").and_then(|count| count.parse().ok()),
        })
    }
}

/// Holds a process, so that its number can't become another's unnoticed.
struct Handle(OwnedFd);

impl Handle {
    /// The peer's own (Linux 6.5), or that of whoever has its number now.
    fn of(socket: impl AsFd, pid: Pid) -> io::Result<Self> {
        match sys::peer_pidfd(socket)? {
            Some(fd) => Ok(Self(fd)),
            None => Ok(Self(pidfd_open(pid, PidfdFlags::empty())?)),
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    /// Connects from a process that isn't this one.
    fn connected_by(command: &mut Command, listener: &UnixListener) -> (UnixStream, std::process::Child) {
        let child = command.spawn().unwrap();
        (listener.accept().unwrap().0, child)
    }

    /// Whether the peer is a command, as /proc says, and a pidfd where the kernel has that.
    fn both_ways(stream: &UnixStream) -> bool {
        let peers = Peers::new(false);
        let (pid, user) = sys::peer(stream).unwrap().unwrap();
        let by_proc = peers.descends_by_proc(pid, user);
        let by_pidfd = peers.descends(&Handle::of(stream, pid).unwrap().0);
        assert!(by_pidfd.is_none_or(|by_pidfd| by_pidfd == by_proc), "{by_pidfd:?}, by /proc {by_proc}");
        assert_eq!(peers.is_command(stream).unwrap(), by_proc);
        by_proc
    }

    const CONNECT: &str = "import socket, sys, time\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n";

    /// The story: whoever had podbayd's user, every command among them, could use its socket.
    #[test]
    fn descendants_are_commands_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let python = |more: &str| {
            let mut command = Command::new("python3");
            command.arg("-c").arg(format!("{CONNECT}{more}")).arg(&path);
            command
        };
        let ours = Peers::new(false);
        let (stream, mut child) = connected_by(&mut python("time.sleep(60)"), &listener);
        assert!(both_ways(&stream), "a child");
        let others = Peers { own: Pid::from_raw(child.id() as i32).unwrap(), in_container: true, filters: None };
        assert!(!others.is_command(&stream).unwrap(), "somebody else's child");
        let filtered = Peers { filters: Some(0), ..others };
        let own_filters = Process::read(getpid()).unwrap().filters;
        assert_eq!(filtered.is_command(&stream).unwrap(), own_filters > Some(0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ours.is_command(&stream).is_err(), "one that has gone");

        let own = UnixStream::connect(&path).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(!both_ways(&stream), "podbayd itself");
        drop(own);
    }

    /// A command can leave its family, but not podbayd's: that adopts its orphans.
    #[test]
    fn an_orphan_is_a_command() {
        rustix::process::set_child_subreaper(Some(getpid())).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let program =
            format!("import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n{CONNECT}s.recv(1)");
        let (stream, mut child) = connected_by(Command::new("python3").arg("-c").arg(program).arg(&path), &listener);
        child.wait().unwrap();
        assert!(both_ways(&stream));
    }

    /// A parent whose name isn't UTF-8 couldn't be read and passed for another user's, so its children weren't commands.
    #[test]
    fn a_name_that_is_not_text_hides_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let rename = |name: &str| format!("open('/proc/self/comm', 'wb').write({name})\n");
        let (hidden, plain) = (rename("b'\\xff\\xfe'"), rename("b'plain'"));
        let program = format!("import os\n{hidden}if os.fork(): os.wait(); os._exit(0)\n{plain}{CONNECT}s.recv(1)");
        let (stream, mut child) = connected_by(Command::new("python3").arg("-c").arg(program).arg(&path), &listener);
        let name = std::fs::read(format!("/proc/{}/comm", child.id())).unwrap();
        assert_eq!(name, b"\xff\xfe\n");
        assert!(both_ways(&stream));
        drop(stream);
        child.wait().unwrap();
    }
}
