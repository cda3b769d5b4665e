//! `podbayd connect`: brings its standard input and output to the running daemon, starting it when there is none.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use podbay_proto::layout::{LOCK, LOG, SOCKET, START_LOCK};
use podbay_proto::session::GREETING;
use rustix::fs::FileType;

use crate::serve::fd_handover::{HANDOVER, LAST_WORDS};
use crate::{descriptors, state_file, sys};

/// How long another's daemon has to come up.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a daemon is told that has to be started.
#[derive(Debug, Default)]
pub struct DaemonOptions {
    /// Where commands start.
    pub workdir: Option<PathBuf>,
    /// Ends it after this long.
    pub ttl: Option<Duration>,
    /// Ends it when for this long nobody used it.
    pub idle_ttl: Option<Duration>,
    /// Its end is the container's.
    pub ends_container: bool,
    /// Its commands have all system calls that the container has.
    pub without_command_filter: bool,
}

/// Connects, and stays until either side is done.
///
/// # Errors
/// When no daemon can be reached or started.
pub fn run(state: &Path, options: &DaemonOptions) -> io::Result<()> {
    // Commands have the same user, and this process is who podbayd listens to.
    sys::hide_memory();
    let socket = connect_or_start(state, options)?;
    writeln!(io::stdout(), "{GREETING}")?;
    io::stdout().flush()?;
    if is_pipe(io::stdin()) && is_pipe(io::stdout()) {
        if hand_over(&socket)? {
            return Ok(());
        }
        // A daemon that has no room for more descriptors may have room for the bytes.
        return bridge(&connect(state)?);
    }
    bridge(&socket)
}

fn is_pipe(end: impl AsFd) -> bool {
    rustix::fs::fstat(end).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Lets the daemon serve on our input and output itself, until it is done with them. False when it doesn't take them.
fn hand_over(mut socket: &UnixStream) -> io::Result<bool> {
    descriptors::send(socket, HANDOVER, &[io::stdin().as_fd(), io::stdout().as_fd()])?;
    let mut answer = [0];
    if socket.read(&mut answer)? == 0 {
        return Ok(false);
    }
    // Ours no longer: who waits for the end of the output mustn't wait for us.
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
    // A command may hold it. Then two may try at once, and the daemon's own lock and socket let one through.
    let _lock = state_file::lock(&state.join(START_LOCK), PATIENCE)?;
    if let Ok(socket) = connect(state) {
        return Ok(socket);
    }
    match start(state, options) {
        Ok(()) => connect(state),
        // A container that is started again starts podbayd as well, and that one may have been faster.
        Err(error) => connect_soon(state).ok_or(error),
    }
}

fn connect_soon(state: &Path) -> Option<UnixStream> {
    let begun = Instant::now();
    loop {
        if let Ok(socket) = connect(state) {
            return Some(socket);
        }
        // Nobody who holds it is nobody to wait for.
        let (_, free) = state_file::lock(&state.join(LOCK), Duration::ZERO).ok()?;
        if free || begun.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A socket's address has room for 107 bytes, so it is named from its own directory.
fn connect(state: &Path) -> io::Result<UnixStream> {
    std::env::set_current_dir(state)?;
    UnixStream::connect(SOCKET)
}

/// Starts the daemon with a life of its own: its own session, none of our descriptors, nothing of our working directory.
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

/// Copies both ways, where the two aren't pipes. Each direction has a thread: there are no more than two, and nothing to
/// schedule.
fn bridge(socket: &UnixStream) -> io::Result<()> {
    let up = socket.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&mut io::stdin().lock(), &mut &up);
        let _ = up.shutdown(Shutdown::Write);
        std::thread::sleep(LAST_WORDS);
        std::process::exit(0);
    });
    let down = copy(&mut &*socket, &mut io::stdout().lock());
    // The daemon's end is the end; input that nobody will read keeps nobody waiting.
    down
}

/// Plain reads and writes: the standard library's copy would splice, which some container runtimes do badly.
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
