//! podbayd as a server: it answers requests on its unix socket, on pipes that were handed over, and on TCP.

mod activity;
mod blocking;
mod connection;
mod ending;
pub(crate) mod exchange;
mod execs;
pub(crate) mod fd_handover;
mod files;
mod inline;
mod lifetime;
mod mount_watcher;
mod protection;
mod replay_cache;
mod reply;
mod routes;
mod runtime_api;
mod session;
mod tcp;
mod websocket;

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use podbay_proto::RawPath;
use podbay_proto::layout::{LOCK, SOCKET, WORKSPACE};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use self::ending::Ending;
pub use self::runtime_api::RuntimeOptions;
pub use self::tcp::{Keys, Listening};
use crate::command_restrictions::CommandRestrictions;
use crate::exec_registry::ExecRegistry;
use crate::peer::Peers;
use crate::state_file;
use crate::sys::{self, Reaped};
use crate::zygote::{self, Forked, Zygote};

/// How long a daemon may take from locking its state directory to listening.
const STARTING: Duration = Duration::from_secs(1);

/// How to serve.
#[derive(Default)]
pub struct Options {
    /// Where the daemon keeps its files.
    pub state: PathBuf,
    /// The working directory of commands, and the base of relative paths.
    pub workdir: Option<PathBuf>,
    /// A listening unix socket to use instead of making one in the state directory.
    pub socket: Option<OwnedFd>,
    /// Where and for whom to listen on TCP as well.
    pub listen: Option<Listening>,
    /// Where to serve the API of agent-sandbox's stock runtime, which has no authentication.
    pub runtime_api: Option<RuntimeOptions>,
    /// The daemon exits after this long, whatever happens.
    pub ttl: Option<Duration>,
    /// It exits when there was neither a request nor a running command for this long.
    pub idle_ttl: Option<Duration>,
    /// Whether the container ends with the daemon's time: then its first process is terminated, and the clock isn't reset
    /// when the container restarts.
    pub ends_container: bool,
    /// Gets a byte once the daemon can be reached.
    pub ready: Option<OwnedFd>,
    /// Whether a supervisor outside ends the sandbox: then podbayd ignores all signals that a process inside can send.
    pub supervised: bool,
    /// What confines commands and not podbayd.
    pub restrictions: CommandRestrictions,
    /// Whether the sandbox is a container, not one of our jails.
    pub in_container: bool,
    /// Paths that stand for others, where the sandbox has no root file system of its own.
    pub elsewhere: Vec<(PathBuf, PathBuf)>,
}

/// Why podbayd stopped serving.
#[derive(Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// Another daemon serves this state directory already.
    AlreadyRunning,
    /// It was told to stop.
    Ended,
    /// Its time was up, or it was idle for too long.
    Expired,
}

/// The state that all requests share.
pub struct Daemon {
    instance: String,
    state: RawPath,
    workdir: RawPath,
    execs: Arc<ExecRegistry>,
    files: Arc<podbay_fsops::Files>,
    replay_cache: Arc<replay_cache::ReplayCache>,
    activity: activity::Activity,
    mounts: mount_watcher::MountWatcher,
    lifetime: lifetime::LifetimeClock,
    peers: Peers,
    isolation: protection::SandboxIsolation,
    exchanges: Arc<exchange::Exchanges>,
}

/// Serves until it is told to stop. The process must have one thread only.
///
/// # Errors
/// When the state directory can't be used, or a socket can't be made.
pub fn run(mut options: Options) -> io::Result<ServeEnd> {
    let state = prepare_state(&options.state)?;
    std::env::set_current_dir(&state)?;
    let (_lock, taken) = state_file::lock(Path::new(LOCK), Duration::ZERO)?;
    if !taken && is_served() {
        return Ok(ServeEnd::AlreadyRunning);
    }
    sys::ignore_write_signals();
    options.restrictions.protect_state_dir(&state)?;
    let forked = zygote::fork(&options.restrictions)?;
    sys::set_undumpable();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let ending = Ending::prepare(options.supervised)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A thread's stack is memory too; file operations need little of it.
        .thread_stack_size(512 << 10)
        .max_blocking_threads(32)
        .thread_keep_alive(Duration::from_secs(2))
        .build()?;
    let socket = options.socket.take();
    let outcome = runtime.block_on(serve(options, &state, socket, forked, ending));
    // Threads that still block end with the process.
    runtime.shutdown_background();
    outcome
}

/// Whether another daemon serves this state directory, or is about to. The lock alone doesn't prove it: a command can hold it.
fn is_served() -> bool {
    let begun = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(SOCKET).is_err() {
        if begun.elapsed() > STARTING {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn prepare_state(state: &Path) -> io::Result<PathBuf> {
    let describe = |error: io::Error| {
        io::Error::new(error.kind(), format!("the state directory {} can't be used: {error}", state.display()))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(describe)?;
    fs::canonicalize(state).map_err(describe)
}

async fn serve(
    options: Options,
    state: &Path,
    socket: Option<OwnedFd>,
    forked: Forked,
    ending: Ending,
) -> io::Result<ServeEnd> {
    let workdir = options.workdir.unwrap_or_else(|| default_workdir().to_owned());
    let files = Arc::new(files::new(state, &workdir, options.elsewhere));
    let workdir_path = workdir;
    let workdir = RawPath::from(workdir_path.as_os_str().as_bytes());
    let lifetime = match options.ends_container {
        true => lifetime::LifetimeClock::kept(state, options.ttl, options.idle_ttl),
        false => lifetime::LifetimeClock::new(options.ttl, options.idle_ttl),
    };
    let isolation = match (options.in_container, &options.restrictions.confinement) {
        (true, _) => protection::SandboxIsolation::Container,
        (false, Some(_)) => protection::SandboxIsolation::Landlock,
        (false, None) => protection::SandboxIsolation::Namespaces,
    };
    let daemon = Arc::new(Daemon {
        instance: random_name()?,
        state: RawPath::from(state.as_os_str().as_bytes()),
        execs: Arc::new(ExecRegistry::new(
            state,
            workdir.clone(),
            Zygote::new(forked, options.restrictions)?,
            files.clone(),
        )?),
        files,
        workdir,
        replay_cache: Arc::default(),
        activity: activity::Activity::default(),
        mounts: mount_watcher::MountWatcher::look(),
        lifetime,
        peers: Peers::new(options.in_container),
        isolation,
        exchanges: Arc::default(),
    });
    daemon.execs.adopt_all().await;
    tokio::spawn(reap(signal(SignalKind::child())?));
    if let Some(listening) = options.listen {
        tcp::listen(&daemon, listening).await?;
    }
    if let Some(runtime) = options.runtime_api {
        runtime_api::listen(&daemon, state, &workdir_path, runtime).await?;
    }
    let listener = unix_listener(socket)?;
    if let Some(ready) = options.ready {
        // Whoever waited for this may have gone; others may come.
        let _ = File::from(ready).write_all(b"!");
    }
    let expired = lifetime::expired(daemon.clone());
    tokio::select! {
        () = ending.asked() => Ok(ServeEnd::Ended),
        () = accept_unix(daemon, listener) => Ok(ServeEnd::Ended),
        () = expired => {
            if options.ends_container {
                lifetime::end_container().await;
            }
            Ok(ServeEnd::Expired)
        }
    }
}

/// `/workspace` where it exists, else `/`.
fn default_workdir() -> &'static Path {
    let workspace = Path::new(WORKSPACE);
    if workspace.is_dir() { workspace } else { Path::new("/") }
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes[..count].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unix_listener(inherited: Option<OwnedFd>) -> io::Result<UnixListener> {
    let listener = match inherited {
        Some(socket) => std::os::unix::net::UnixListener::from(socket),
        None => {
            // The lock is ours, so an existing socket belongs to a daemon that has died.
            match fs::remove_file(SOCKET) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::os::unix::net::UnixListener::bind(SOCKET)?
        }
    };
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

async fn accept_unix(daemon: Arc<Daemon>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(fd_handover::serve(daemon.clone(), stream))),
            Err(_) => pause().await,
        }
    }
}

/// Accepting fails when descriptors run out; trying again at once would only burn CPU.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Reaps children that have ended: the zygote, and orphans, for which podbayd is the subreaper.
async fn reap(mut children: tokio::signal::unix::Signal) {
    while children.recv().await.is_some() {
        while let Reaped::Ended(_) = sys::reap() {}
    }
}
