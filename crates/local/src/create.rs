//! Creating a sandbox: its directory, then its supervisor.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podbay_client::provider::Wanted;
use podbay_supervision::{DirectoryIdentity, LOG, SOCKET, SPEC, Spec, StartReport, Started, remove_sandbox};
use rustix::fs::{CWD, RenameFlags};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::error::{Error, Result};
use crate::home::Home;
use crate::options::{Options, default_limits};
use crate::podbayd_program::PodbaydProgram;

/// How long a program that was written just now may be busy.
const BUSY: Duration = Duration::from_secs(2);

/// The connection to the supervisor. A leashed sandbox ends when it closes.
pub(crate) type Leash = tokio::net::UnixStream;

/// Creates a sandbox in a directory; `None` when that directory exists already.
pub(crate) async fn create(
    home: &Home,
    options: &Options,
    id: &str,
    dir: &Path,
    wanted: &Wanted,
) -> Result<Option<(Leash, Started)>> {
    let new = Unfinished(home.unfinished().join(format!("{:016x}", rand::random::<u64>())));
    let listener = prepare(&new.0, id, options, wanted)?;
    let identity = DirectoryIdentity::of(&new.0).map_err(Error::home(&new.0, "can't stat the sandbox's directory"))?;
    // From here on others find the sandbox, and wait until its podbayd answers.
    match rustix::fs::renameat_with(CWD, &new.0, CWD, dir, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Ok(None),
        Err(error) => return Err(Error::home(dir, "can't move the sandbox's directory into place")(error.into())),
    }
    let made = async {
        let (mut leash, started) = supervise(home, options, dir, listener).await?;
        // A named sandbox needs no confirmation: others know its name, and may have deleted it already.
        if !wanted.leashed && wanted.id.is_none() {
            leash.write_all(b"!").await.map_err(|error| Error::Create(format!("its supervisor has ended: {error}")))?;
        }
        Ok((leash, started))
    };
    match made.await {
        Ok(made) => Ok(Some(made)),
        Err(error) => {
            // The supervisor has done this already if it got that far.
            if let Err(second) = remove_sandbox(dir, identity) {
                tracing::warn!(id, error = %second, "can't remove the remains of a sandbox that failed to start");
            }
            Err(error)
        }
    }
}

/// A sandbox's directory, removed on drop unless it was moved into place.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "can't remove the directory of an unfinished sandbox");
            }
            _ => {}
        }
    }
}

/// Assembles a sandbox's directory, with its description and its socket.
fn prepare(new: &Path, id: &str, options: &Options, wanted: &Wanted) -> Result<UnixListener> {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut labels = options.labels.clone();
    labels.extend(wanted.labels.clone());
    let spec = Spec {
        jail: options.jail(id)?,
        created_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds),
        labels,
        ttl_ms: wanted.ttl.or(options.ttl).map(milliseconds),
        idle_ttl_ms: wanted.idle_ttl.or(options.idle_ttl).map(milliseconds),
        leashed: wanted.leashed,
        unconfirmed: wanted.id.is_none() && !wanted.leashed,
    };
    let json = serde_json::to_vec(&spec).map_err(|error| Error::Create(error.to_string()))?;
    let made = fs::DirBuilder::new().mode(0o700).create(new);
    made.map_err(Error::home(new, "can't create the sandbox's directory"))?;
    // Other users may be able to reach this file, and environment variables can be secrets.
    let spec = fs::File::options().write(true).create_new(true).mode(0o600).open(new.join(SPEC));
    spec.and_then(|mut file| file.write_all(&json))
        .map_err(Error::home(new, "can't write the sandbox's description"))?;
    let socket = new.join(SOCKET);
    UnixListener::bind(&socket)
        .and_then(|listener| {
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        })
        .map_err(Error::home(new, "can't create the sandbox's socket"))
}

async fn supervise(home: &Home, options: &Options, dir: &Path, listener: UnixListener) -> Result<(Leash, Started)> {
    let no_pipe = |error: std::io::Error| Error::Create(format!("lost the connection to its supervisor: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(no_pipe)?;
    ours.set_nonblocking(true).map_err(no_pipe)?;
    let mut leash = BufReader::new(Leash::from_std(ours).map_err(no_pipe)?);
    let status = start(&home.podbayd()?, dir, listener.into(), theirs.into()).await?;
    let mut line = String::new();
    leash.read_line(&mut line).await.map_err(no_pipe)?;
    if line.is_empty() {
        // If the supervisor could still clean up, the log is gone with the directory.
        let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
        return Err(Error::Create(format!("its supervisor ended ({status}): {}", log.trim())));
    }
    match serde_json::from_str(&line) {
        Ok(StartReport::Ready(started)) => {
            for limit in started.limits.iter().filter(|limit| limit.by.is_none()) {
                // The default isn't worth a warning: nobody asked for it, and `describe` shows it as unlimited.
                let asked = limit.limit != "memory" || options.limits.memory != default_limits().memory;
                match asked {
                    true => tracing::warn!(limit = limit.limit, why = limit.note, "a limit isn't enforced"),
                    false => tracing::debug!(
                        limit = limit.limit,
                        why = limit.note,
                        "the default memory limit isn't enforced"
                    ),
                }
            }
            Ok((leash.into_inner(), started))
        }
        Ok(StartReport::Failed { message }) => {
            // The supervisor keeps the leash open until it has cleaned up.
            let _ = leash.read_line(&mut line).await;
            Err(Error::Create(message))
        }
        Err(error) => Err(Error::Create(format!("can't parse its supervisor's answer {line:?}: {error}"))),
    }
}

/// Starts the supervisor, which detaches itself: the process started here ends at once.
async fn start(podbayd: &PodbaydProgram, dir: &Path, listener: OwnedFd, leash: OwnedFd) -> Result<ExitStatus> {
    let log = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(dir.join(LOG));
    let log = log.map_err(Error::home(dir, "can't create the supervisor's log"))?;
    let mut command = tokio::process::Command::new(podbayd.to_run());
    command.arg0(podbayd.path()).arg("supervise").arg("--dir").arg(dir).env_clear().current_dir("/");
    // Tests imitate older kernels with it. Released builds of podbayd ignore it.
    if let Some(abi) = std::env::var_os("PODBAY_LANDLOCK_ABI").filter(|_| cfg!(debug_assertions)) {
        command.env("PODBAY_LANDLOCK_ABI", abi);
    }
    command.stdin(Stdio::from(listener)).stdout(Stdio::from(leash)).stderr(log);
    let begun = Instant::now();
    loop {
        match command.status().await {
            Ok(status) => return Ok(status),
            // A child of another thread holds the descriptor that wrote the program, until its exec.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && begun.elapsed() < BUSY => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => {
                let what = "can't run podbayd; if its file system is mounted noexec, set PODBAY_HOME to another one";
                return Err(Error::home(podbayd.path(), what)(error));
            }
        }
    }
}
