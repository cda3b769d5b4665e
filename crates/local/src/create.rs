//! Making a sandbox: its directory, then its supervisor.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use podbay_client::provider::Wanted;
use podbay_jail::supervision::{self, Identity, Report, SOCKET, SPEC, Spec, Started};
use rustix::fs::{CWD, RenameFlags};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::error::{Error, Result};
use crate::home::{Home, Program};
use crate::options::{Options, default_limits};

/// How long a program that was only just written may be busy.
const BUSY: Duration = Duration::from_secs(2);

/// A sandbox that was made: the supervisor's end is tied to this if it is leashed.
pub(crate) type Leash = tokio::net::UnixStream;

/// Makes a sandbox at a place; nothing when another is there already.
pub(crate) async fn create(
    home: &Home,
    options: &Options,
    id: &str,
    dir: &Path,
    wanted: &Wanted,
) -> Result<Option<(Leash, Started)>> {
    let new = Unfinished(home.new_ones().join(format!("{:016x}", rand::random::<u64>())));
    let listener = prepare(&new.0, id, options, wanted)?;
    let identity = Identity::of(&new.0).map_err(Error::home(&new.0, "it can't be identified"))?;
    // From here on it is found by others: whoever connects waits until podbayd answers.
    match rustix::fs::renameat_with(CWD, &new.0, CWD, dir, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Ok(None),
        Err(error) => return Err(Error::home(dir, "the sandbox's directory can't be put there")(error.into())),
    }
    let made = async {
        let (mut leash, started) = supervise(home, options, dir, listener).await?;
        // One whose name others know needs no word, and may have been deleted by one of them already.
        if !wanted.leashed && wanted.id.is_none() {
            leash.write_all(b"!").await.map_err(|error| Error::Create(format!("its supervisor has gone: {error}")))?;
        }
        Ok((leash, started))
    };
    match made.await {
        Ok(made) => Ok(Some(made)),
        Err(error) => {
            // The supervisor has done this, if it came that far.
            if let Err(second) = supervision::retire(dir, identity) {
                tracing::warn!(id, error = %second, "a sandbox that couldn't be made can't be removed");
            }
            Err(error)
        }
    }
}

/// A directory that goes unless it was put into its place.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "an unfinished sandbox can't be removed");
            }
            _ => {}
        }
    }
}

/// Makes a sandbox's directory, complete with its socket.
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
    made.map_err(Error::home(new, "the sandbox's directory can't be made"))?;
    // The way to it may be open to strangers, and it can have secrets in it.
    let spec = fs::File::options().write(true).create_new(true).mode(0o600).open(new.join(SPEC));
    spec.and_then(|mut file| file.write_all(&json)).map_err(Error::home(new, "the sandbox can't be described"))?;
    let socket = new.join(SOCKET);
    UnixListener::bind(&socket)
        .and_then(|listener| {
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        })
        .map_err(Error::home(new, "the sandbox's socket can't be made"))
}

async fn supervise(home: &Home, options: &Options, dir: &Path, listener: UnixListener) -> Result<(Leash, Started)> {
    let no_pipe = |error: std::io::Error| Error::Create(format!("its supervisor can't be talked to: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(no_pipe)?;
    ours.set_nonblocking(true).map_err(no_pipe)?;
    let mut leash = BufReader::new(Leash::from_std(ours).map_err(no_pipe)?);
    let status = start(&home.podbayd()?, dir, listener.into(), theirs.into()).await?;
    let mut line = String::new();
    leash.read_line(&mut line).await.map_err(no_pipe)?;
    if line.is_empty() {
        // The log goes with the directory when the supervisor could still remove it.
        let log = fs::read_to_string(dir.join("supervisor.log")).unwrap_or_default();
        return Err(Error::Create(format!("its supervisor ended ({status}) saying: {}", log.trim())));
    }
    match serde_json::from_str(&line) {
        Ok(Report::Ready(started)) => {
            for limit in started.limits.iter().filter(|limit| limit.by.is_none()) {
                // Nobody asked for the default, and `describe` tells that it doesn't hold.
                let asked = limit.limit != "memory" || options.limits.memory != default_limits().memory;
                match asked {
                    true => tracing::warn!(limit = limit.limit, why = limit.note, "a limit isn't in force"),
                    false => tracing::debug!(limit = limit.limit, why = limit.note, "memory is unlimited"),
                }
            }
            Ok((leash.into_inner(), started))
        }
        Ok(Report::Failed { message }) => {
            // It holds the leash to its very end.
            let _ = leash.read_line(&mut line).await;
            Err(Error::Create(message))
        }
        Err(error) => Err(Error::Create(format!("its supervisor said {line:?}: {error}"))),
    }
}

/// Starts the supervisor, which goes on by itself when its first process has ended.
async fn start(podbayd: &Program, dir: &Path, listener: OwnedFd, leash: OwnedFd) -> Result<ExitStatus> {
    let log = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(dir.join("supervisor.log"));
    let log = log.map_err(Error::home(dir, "the log can't be made"))?;
    let mut command = tokio::process::Command::new(podbayd.to_run());
    command.arg0(podbayd.path()).arg("supervise").arg("--dir").arg(dir).env_clear().current_dir("/");
    // By which tests imitate older kernels; a podbayd that is released doesn't know it.
    if let Some(abi) = std::env::var_os("PODBAY_LANDLOCK_ABI").filter(|_| cfg!(debug_assertions)) {
        command.env("PODBAY_LANDLOCK_ABI", abi);
    }
    command.stdin(Stdio::from(listener)).stdout(Stdio::from(leash)).stderr(log);
    let begun = Instant::now();
    loop {
        match command.status().await {
            Ok(status) => return Ok(status),
            // Another thread's child still holds the descriptor through which the program was written, until its exec.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && begun.elapsed() < BUSY => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => {
                let what = "podbayd can't be started; is its file system mounted noexec? Set PODBAY_HOME elsewhere";
                return Err(Error::home(podbayd.path(), what)(error));
            }
        }
    }
}
