//! Making sandboxes and finding them again.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use podbay_client::{Sandbox, UnixChannel};
use podbay_jail::supervision::{CONTROL, Report, SOCKET, SPEC, Spec};
use podbay_jail::{Jail, Limits, Mount, Network};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::error::{Error, Result};
use crate::home::Home;

/// How a sandbox shall be.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its name; a random one when there is none.
    pub name: Option<String>,
    /// A directory of this machine as its workspace; without one, memory that is gone with it.
    pub workspace: Option<PathBuf>,
    /// More of this machine's files.
    pub mounts: Vec<Mount>,
    /// What network it has; none by default.
    pub network: Network,
    /// How much it may use.
    pub limits: Limits,
    /// Seconds until it ends.
    pub ttl: Option<u64>,
    /// Seconds without use until it ends.
    pub idle_ttl: Option<u64>,
    /// It ends with this process, also when that is killed.
    pub leashed: bool,
}

/// Local sandboxes: makes them, finds them, ends them.
#[derive(Debug, Clone)]
pub struct Local {
    home: Home,
}

/// A sandbox on this machine.
#[derive(Debug)]
pub struct LocalSandbox {
    name: String,
    dir: PathBuf,
    sandbox: Sandbox,
    /// Held as long as the sandbox shall live, when it is leashed.
    _leash: Option<tokio::net::UnixStream>,
}

impl Local {
    /// The sandboxes of this user.
    ///
    /// # Errors
    /// When their directory can't be made.
    pub fn new() -> Result<Self> {
        Home::of_user().map(Self::at)
    }

    /// The sandboxes below a directory.
    pub fn at(home: Home) -> Self {
        Self { home }
    }

    /// Makes a sandbox, or finds the one of that name.
    ///
    /// # Errors
    /// When this machine can't isolate it, or its name is taken by something else.
    pub async fn get_or_create(&self, options: &Options) -> Result<LocalSandbox> {
        let name = match &options.name {
            Some(name) => checked(name)?,
            None => format!("pb-{:016x}", rand::random::<u64>()),
        };
        let dir = self.home.sandboxes().join(&name);
        let new = self.home.new_ones().join(format!("{:016x}", rand::random::<u64>()));
        loop {
            if options.name.is_some() && is_alive(&dir) {
                return Ok(LocalSandbox::found(name, dir));
            }
            let listener = prepare(&new, &name, options)?;
            match rustix::fs::renameat_with(
                rustix::fs::CWD,
                &new,
                rustix::fs::CWD,
                &dir,
                rustix::fs::RenameFlags::NOREPLACE,
            ) {
                Ok(()) => return self.start(name, dir, listener, options.leashed).await,
                Err(rustix::io::Errno::EXIST) => {
                    let _ = fs::remove_dir_all(&new);
                    if !is_alive(&dir) {
                        self.discard(&dir)?;
                    }
                }
                Err(error) => {
                    let _ = fs::remove_dir_all(&new);
                    return Err(Error::home(&dir, "the sandbox's directory can't be put there")(error.into()));
                }
            }
        }
    }

    async fn start(&self, name: String, dir: PathBuf, listener: UnixListener, leashed: bool) -> Result<LocalSandbox> {
        let result = self.supervise(&dir, listener).await;
        match result {
            Ok(leash) => Ok(LocalSandbox { _leash: leashed.then_some(leash), ..LocalSandbox::found(name, dir) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                Err(error)
            }
        }
    }

    async fn supervise(&self, dir: &Path, listener: UnixListener) -> Result<tokio::net::UnixStream> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| Error::Create(error.to_string()))?;
        let log = fs::File::create(dir.join("supervisor.log")).map_err(Error::home(dir, "the log can't be made"))?;
        let podbayd = self.home.podbayd()?;
        let status = tokio::process::Command::new(&podbayd)
            .arg("supervise")
            .arg("--dir")
            .arg(dir)
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
            .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stderr(log)
            .status()
            .await
            .map_err(Error::home(&podbayd, "it can't be started"))?;
        ours.set_nonblocking(true).map_err(|error| Error::Create(error.to_string()))?;
        let mut leash =
            BufReader::new(tokio::net::UnixStream::from_std(ours).map_err(|error| Error::Create(error.to_string()))?);
        let mut line = String::new();
        let said = leash.read_line(&mut line).await.map_err(|error| Error::Create(error.to_string()))?;
        if said == 0 {
            let log = fs::read_to_string(dir.join("supervisor.log")).unwrap_or_default();
            return Err(Error::Create(format!("its supervisor ended ({status}) saying: {}", log.trim())));
        }
        match serde_json::from_str(&line) {
            Ok(Report::Ready { limits, .. }) => {
                for limit in limits.iter().filter(|limit| limit.by.is_none()) {
                    tracing::warn!(limit = limit.limit, why = limit.note, "a limit isn't in force");
                }
                Ok(leash.into_inner())
            }
            Ok(Report::Failed { message }) => Err(Error::Create(message)),
            Err(error) => Err(Error::Create(format!("its supervisor said {line:?}: {error}"))),
        }
    }

    /// Removes what a sandbox left whose supervisor was killed.
    fn discard(&self, dir: &Path) -> Result<()> {
        let trash = self.home.new_ones().join(format!("{:016x}", rand::random::<u64>()));
        match fs::rename(dir, &trash) {
            Ok(()) => fs::remove_dir_all(&trash).map_err(Error::home(&trash, "it can't be removed")),
            // Someone else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::home(dir, "a dead sandbox can't be put away")(error)),
        }
    }
}

impl LocalSandbox {
    fn found(name: String, dir: PathBuf) -> Self {
        let sandbox = Sandbox::new(UnixChannel::new(dir.join(SOCKET)));
        Self { name, dir, sandbox, _leash: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends it. Returns when nothing is left of it.
    ///
    /// # Errors
    /// When its directory can't be removed.
    pub async fn delete(self) -> Result<()> {
        match tokio::net::UnixStream::connect(self.dir.join(CONTROL)).await {
            Ok(mut supervisor) => {
                // It closes the connection when everything is gone.
                let _ = supervisor.read(&mut [0]).await;
                Ok(())
            }
            Err(_) => match fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::home(&self.dir, "it can't be removed")(error))
                }
                _ => Ok(()),
            },
        }
    }
}

impl std::ops::Deref for LocalSandbox {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

fn checked(name: &str) -> Result<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match name.bytes().all(legal) && (1..=63).contains(&name.len()) && !name.starts_with('-') {
        true => Ok(name.to_owned()),
        false => Err(Error::BadName(name.chars().take(100).collect())),
    }
}

/// A sandbox lives as long as its podbayd, and that as long as it accepts connections.
fn is_alive(dir: &Path) -> bool {
    UnixStream::connect(dir.join(SOCKET)).is_ok()
}

/// Makes a sandbox's directory, complete with its socket.
fn prepare(new: &Path, name: &str, options: &Options) -> Result<UnixListener> {
    let jail = Jail {
        workspace: options.workspace.clone(),
        mounts: options.mounts.clone(),
        network: options.network,
        limits: options.limits.clone(),
        ..Jail::new(name)
    };
    let spec = Spec { jail, ttl: options.ttl, idle_ttl: options.idle_ttl, leashed: options.leashed };
    let json = serde_json::to_vec(&spec).map_err(|error| Error::Create(error.to_string()))?;
    fs::create_dir(new).map_err(Error::home(new, "the sandbox's directory can't be made"))?;
    fs::write(new.join(SPEC), json).map_err(Error::home(new, "the sandbox can't be described"))?;
    UnixListener::bind(new.join(SOCKET)).map_err(Error::home(new, "the sandbox's socket can't be made"))
}
