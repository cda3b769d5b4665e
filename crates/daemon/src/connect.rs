//! `podbayd connect`: connects its standard input and output to the running daemon, and starts one if there is none.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use podbay_proto::layout::{LOCK, LOG, START_LOCK};
use podbay_proto::session::GREETING;
use rustix::fs::FileType;

use crate::serve::fd_handover::{DRAIN_TIME, HANDOVER};
use crate::socket::connect;
use crate::{descriptors, exchange, state_file, sys};

/// How long to wait for a daemon that somebody else is starting.
const PATIENCE: Duration = Duration::from_secs(2);

/// How to start a daemon.
#[derive(Debug, Default)]
pub struct DaemonOptions {
    /// The commands' working directory.
    pub workdir: Option<PathBuf>,
    /// It exits after this long.
    pub ttl: Option<Duration>,
    /// It exits after this long without use.
    pub idle_ttl: Option<Duration>,
    /// When it exits, the container ends too.
    pub ends_container: bool,
    /// Commands run without a seccomp filter of their own.
    pub without_command_filter: bool,
}

/// Connects, and returns when either side closes the connection; or opens a stream for `podbayd exchange`, and returns then.
///
/// # Errors
/// When no daemon can be reached or started.
pub fn run(state: &Path, options: &DaemonOptions, session: Option<String>) -> io::Result<()> {
    // Commands run as the same user, and podbayd trusts this process.
    sys::set_undumpable();
    let socket = connect_or_start(state, options)?;
    writeln!(io::stdout(), "{GREETING}")?;
    io::stdout().flush()?;
    if let Some(session) = session {
        return exchange::open(&socket, state, session);
    }
    if is_pipe(io::stdin()) && is_pipe(io::stdout()) {
        if hand_over(&socket)? {
            return Ok(());
        }
        // A daemon that can't take more descriptors may still take another connection.
        return bridge(&connect(state)?);
    }
    bridge(&socket)
}

fn is_pipe(end: impl AsFd) -> bool {
    rustix::fs::fstat(end).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Lets the daemon serve our standard input and output itself, until it is done with them. False if it doesn't take them.
fn hand_over(mut socket: &UnixStream) -> io::Result<bool> {
    descriptors::send(socket, HANDOVER, &[io::stdin().as_fd(), io::stdout().as_fd()])?;
    let mut answer = [0];
    if socket.read(&mut answer)? == 0 {
        return Ok(false);
    }
    // They aren't ours any longer: whoever waits for the end of the output must not wait for this process.
    rustix::stdio::dup2_stdin(socket)?;
    rustix::stdio::dup2_stdout(socket)?;
    while socket.read(&mut answer)? != 0 {}
    Ok(true)
}

fn connect_or_start(state: &Path, options: &DaemonOptions) -> io::Result<UnixStream> {
    if let Ok(socket) = connect(state) {
        return Ok(socket);
    }
    std::fs::create_dir_all(state)?;
    // A command may hold it. Then two callers may start a daemon at once, and the daemon's own lock lets one of them run.
    let _lock = state_file::lock(&state.join(START_LOCK), PATIENCE)?;
    if let Ok(socket) = connect(state) {
        return Ok(socket);
    }
    match start(state, options) {
        Ok(()) => connect(state),
        // A container that restarts starts podbayd as well, and that one may have been faster.
        Err(error) => connect_soon(state).ok_or(error),
    }
}

fn connect_soon(state: &Path) -> Option<UnixStream> {
    let begun = Instant::now();
    loop {
        if let Ok(socket) = connect(state) {
            return Some(socket);
        }
        // Nobody holds the lock, so no daemon is starting that is worth waiting for.
        let (_, free) = state_file::lock(&state.join(LOCK), Duration::ZERO).ok()?;
        if free || begun.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts the daemon detached: in its own session, without our descriptors.
fn start(state: &Path, options: &DaemonOptions) -> io::Result<()> {
    let (mut ready, theirs) = io::pipe()?;
    let log = state_file::emptied(&state.join(LOG)).map_or_else(|_| Stdio::null(), Stdio::from);
    let mut command = Command::new("/proc/self/exe");
    command.arg("serve").arg("--state").arg(state).arg("--ready-fd").arg(theirs.as_raw_fd().to_string());
    if let Some(workdir) = &options.workdir {
        command.arg("--workdir").arg(workdir);
    }
    for (flag, time) in [("--ttl", options.ttl), ("--idle-ttl", options.idle_ttl)] {
        if let Some(time) = time {
            command.arg(flag).arg(time.as_secs().to_string());
        }
    }
    if options.ends_container {
        command.arg("--ends-container");
    }
    if options.without_command_filter {
        command.arg("--no-command-filter");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    sys::keep_across_exec(&theirs)?;
    sys::before_exec(&mut command, || Ok(rustix::process::setsid().map(drop)?));
    command.spawn()?;
    drop(theirs);
    let mut byte = [0];
    if ready.read(&mut byte)? == 0 {
        let said = state_file::read(&state.join(LOG), 64 << 10).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        return Err(io::Error::other(format!("podbayd didn't start in {}: {}", state.display(), said.trim())));
    }
    Ok(())
}

/// Copies in both directions where standard input and output aren't pipes, with one thread for each.
fn bridge(socket: &UnixStream) -> io::Result<()> {
    let up = socket.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&mut io::stdin().lock(), &mut &up);
        let _ = up.shutdown(Shutdown::Write);
        std::thread::sleep(DRAIN_TIME);
        std::process::exit(0);
    });
    let down = copy(&mut &*socket, &mut io::stdout().lock());
    // When the daemon closes the connection, input that arrives later has no reader.
    down
}

/// With plain reads and writes: `io::copy` would use splice, which some container runtimes implement badly.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 128 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
