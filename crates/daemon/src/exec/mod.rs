//! Commands, as podbayd sees them: each a directory and, while anything of it lives, a shim.

mod budget;
pub mod control;
pub mod log;
pub mod reserve;
mod retention;
pub mod zygote;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use podbay_proto::exec::{Command, ExecId, Info, State};
use podbay_proto::message::{HeadReader, decode_head, encode_head};
use podbay_proto::record::{Record, RecordReader};
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::fs::FlockOperation;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use self::control::Request;
use self::log::Log;
use self::zygote::Zygote;

/// All commands of a sandbox.
pub struct Execs {
    /// Where their directories are, absolute.
    root: PathBuf,
    workdir: RawPath,
    zygote: tokio::sync::Mutex<Arc<Zygote>>,
    /// Knows which paths stand for others.
    files: Arc<podbay_fsops::Files>,
    /// Those of which something may live: looking at every directory would take long where there are thousands.
    maybe_alive: Mutex<BTreeSet<ExecId>>,
}

/// A way to a command: its shim, or what the shim left.
pub enum Found {
    /// The shim lives.
    Shim(Link),
    /// It has gone; this is what is known.
    Settled(Info),
}

/// A connection to a shim.
pub struct Link {
    socket: UnixStream,
}

impl Execs {
    /// The commands below a state directory, which must be the process's current one: socket paths are short that way.
    ///
    /// # Errors
    /// When their directory can't be made.
    pub fn new(state: &Path, workdir: RawPath, zygote: Zygote, files: Arc<podbay_fsops::Files>) -> io::Result<Self> {
        let root = state.join("exec");
        fs::create_dir_all(&root)?;
        // Where there is no room now there may be later.
        let _ = reserve::fill(state);
        let zygote = tokio::sync::Mutex::new(Arc::new(zygote));
        // A daemon before this one may have left commands running.
        let maybe_alive = Mutex::new(fs::read_dir(&root)?.flatten().filter_map(|entry| id_of(&entry)).collect());
        Ok(Self { root, workdir, zygote, files, maybe_alive })
    }

    fn dir(&self, id: &ExecId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Starts a command, unless its id was started before; then finds that one. Tells which.
    ///
    /// # Errors
    /// When its directory can't be made or no shim can be had.
    pub async fn start(&self, id: &ExecId, command: Command) -> Result<(Found, bool)> {
        // No await between mkdir and bind: whoever finds the directory finds the socket in it.
        let dir = self.dir(id);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok((self.find(id).await?, false)),
            Err(error) => return Err(exec_io(id, "its directory can't be made", &error)),
        }
        let prepared = self.prepare(id).map_err(|error| exec_io(id, "its directory can't be prepared", &error))?;
        self.remember(id).await;
        retention::sweep(&self.root);
        if let Some(state) = self.root.parent() {
            let _ = reserve::fill(state);
        }
        let (lock, listener) = prepared;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()
            .map_err(|error| exec_io(id, "no connection to its shim can be made", &error))?;
        self.fork_shim([lock.as_fd(), listener.as_fd(), theirs.as_fd()])
            .await
            .map_err(|error| exec_io(id, "its shim can't be started", &error))?;
        drop((lock, listener, theirs));
        let mut link = Link::new(ours).map_err(|error| exec_io(id, "its shim can't be reached", &error))?;
        let cwd = self.start_of(command.cwd.as_ref());
        let start = control::Start {
            id: id.clone(),
            command: Command { cwd: Some(self.files.rerooted(cwd)), ..command },
            log: RawPath::from(dir.join(log::HEAD).as_os_str().as_bytes()),
        };
        match link.send(&Request::Start(Box::new(start)), &[]).await {
            Ok(()) => Ok((Found::Shim(link), true)),
            Err(_) => Ok((self.find(id).await?, true)),
        }
    }

    /// Where a command starts: what it names is relative to the working directory, as paths of file operations are.
    fn start_of(&self, cwd: Option<&RawPath>) -> RawPath {
        let Some(cwd) = cwd.filter(|cwd| !cwd.is_empty()) else { return self.workdir.clone() };
        if cwd.as_bytes().starts_with(b"/") {
            cwd.clone()
        } else {
            [self.workdir.as_bytes(), cwd.as_bytes()].join(&b'/').into()
        }
    }

    fn prepare(&self, id: &ExecId) -> io::Result<(OwnedFd, UnixListener)> {
        let dir = File::open(self.dir(id))?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        let listener = UnixListener::bind(self.socket(id))?;
        Ok((dir.into(), listener))
    }

    /// Relative to the state directory, so that it fits into a socket address however deep that lies.
    fn socket(&self, id: &ExecId) -> PathBuf {
        Path::new("exec").join(id.as_str()).join(control::SOCKET)
    }

    async fn fork_shim(&self, fds: [std::os::fd::BorrowedFd<'_>; 3]) -> io::Result<()> {
        let zygote = self.zygote.lock().await.clone();
        if zygote.fork_shim(fds).await.is_ok() {
            return Ok(());
        }
        // Something in the sandbox has killed it.
        let mut current = self.zygote.lock().await;
        if Arc::ptr_eq(&current, &zygote) {
            *current = Arc::new(zygote.restart()?);
        }
        let zygote = current.clone();
        drop(current);
        zygote.fork_shim(fds).await
    }

    /// Finds a command that was started before.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub async fn find(&self, id: &ExecId) -> Result<Found> {
        match UnixStream::connect(self.socket(id)).await {
            Ok(socket) => Ok(Found::Shim(Link { socket })),
            Err(_) => self.settled(id).map(Found::Settled),
        }
    }

    /// What the shim of a command left.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub fn settled(&self, id: &ExecId) -> Result<Info> {
        let dir = self.dir(id);
        let read =
            |name: &str| fs::read(dir.join(name)).ok().and_then(|json| serde_json::from_slice::<Info>(&json).ok());
        let mut info = match read(control::ENDED) {
            Some(ended) => ended,
            None => {
                let made = fs::metadata(&dir).map_err(|_| not_found(id))?.modified().ok();
                let started_ms = made.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
                let unknown = Info {
                    id: id.clone(),
                    command: String::new(),
                    started_ms: started_ms.map_or(0, |time| time.as_millis() as u64),
                    state: State::Lost,
                    output_bytes: 0,
                    dropped_bytes: 0,
                    log: RawPath::from(dir.join(log::HEAD).as_os_str().as_bytes()),
                    input_bytes: 0,
                    processes: Vec::new(),
                };
                let mut info = read(control::BEGUN).unwrap_or(unknown);
                info.state = State::Lost;
                info.output_bytes = self.log(id)?.end();
                info
            }
        };
        info.processes = Vec::new();
        Ok(info)
    }

    /// A command's log.
    ///
    /// # Errors
    /// `exec_not_found`.
    pub fn log(&self, id: &ExecId) -> Result<Log> {
        let dir = File::open(self.dir(id)).map_err(|_| not_found(id))?;
        Log::open(dir.into()).map_err(|error| exec_io(id, "its log can't be read", &error))
    }

    /// How many commands have something alive.
    pub async fn running(&self) -> u32 {
        let candidates: Vec<ExecId> = self.maybe_alive().iter().cloned().collect();
        let mut running = 0;
        for id in candidates {
            match self.find(&id).await {
                Ok(Found::Shim(_)) => running += 1,
                _ => drop(self.maybe_alive().remove(&id)),
            }
        }
        running
    }

    async fn remember(&self, id: &ExecId) {
        let known = {
            let mut known = self.maybe_alive();
            known.insert(id.clone());
            known.len()
        };
        if known.is_multiple_of(512) {
            self.running().await;
        }
    }

    fn maybe_alive(&self) -> std::sync::MutexGuard<'_, BTreeSet<ExecId>> {
        self.maybe_alive.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// All commands, oldest first; optionally only those of which something lives.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub async fn list(&self, running: bool) -> Result<Vec<Info>> {
        let entries = fs::read_dir(&self.root)
            .map_err(|error| Error::new(ErrorCode::Io, format!("the commands can't be listed: {error}")))?;
        let mut list = Vec::new();
        for entry in entries.flatten() {
            let Some(id) = id_of(&entry) else { continue };
            // A command may be forgotten while this looks.
            match self.find(&id).await {
                Ok(Found::Shim(mut link)) => match link.ask::<Info>(&Request::Status, &[]).await {
                    Ok(info) => list.push(info),
                    Err(_) if !running => list.extend(self.settled(&id)),
                    Err(_) => {}
                },
                Ok(Found::Settled(info)) if !running => list.push(info),
                _ => {}
            }
        }
        list.sort_by(|a, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
        Ok(list)
    }
}

impl Link {
    fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(socket)? })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the shim is gone.
    pub async fn send(&mut self, request: &Request, data: &[u8]) -> io::Result<()> {
        let head = encode_head(request).map_err(io::Error::other)?;
        self.socket.write_all(&head).await?;
        self.socket.write_all(data).await
    }

    /// Sends a request and takes its one answer.
    ///
    /// # Errors
    /// When the shim is gone.
    pub async fn ask<T: serde::de::DeserializeOwned>(&mut self, request: &Request, data: &[u8]) -> io::Result<T> {
        // A shim that won't take the data may have answered already and closed.
        let sent = self.send(request, data).await;
        let mut reader = HeadReader::default();
        let mut buffer = [0; 4096];
        loop {
            let count = self.socket.read(&mut buffer).await?;
            if count == 0 {
                return Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some((head, _)) = reader.push(&buffer[..count]).map_err(io::Error::other)? {
                return decode_head(&head).map_err(io::Error::other);
            }
        }
    }

    /// The next record; nothing when the shim is gone.
    ///
    /// # Errors
    /// When what comes isn't records.
    pub async fn next_record(&mut self, reader: &mut RecordReader, buffer: &mut [u8]) -> io::Result<Option<Record>> {
        loop {
            if let Some(record) = reader.next_record().map_err(io::Error::other)? {
                return Ok(Some(record));
            }
            match self.socket.read(buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => reader.push(&buffer[..count]),
            }
        }
    }

    /// Waits for the end; nothing when the shim has gone without telling.
    pub async fn end(&mut self) -> Option<Info> {
        self.send(&Request::Wait, &[]).await.ok()?;
        let mut reader = RecordReader::default();
        let mut buffer = [0; 4096];
        match self.next_record(&mut reader, &mut buffer).await {
            Ok(Some(Record::End(info))) => Some(*info),
            _ => None,
        }
    }
}

/// The beginning and the end of a command's output.
pub struct Collected {
    /// Which stream wrote how many of the bytes.
    pub runs: Vec<(podbay_proto::exec::Stream, u64)>,
    /// What was left out.
    pub cut: Option<podbay_proto::exec::Cut>,
    /// The bytes.
    pub bytes: Bytes,
}

mod collect;
pub use collect::collect;

fn id_of(entry: &fs::DirEntry) -> Option<ExecId> {
    entry.file_name().to_str().and_then(|name| ExecId::new(name).ok())
}

fn not_found(id: &ExecId) -> Error {
    Error::new(
        ErrorCode::ExecNotFound,
        format!("there is no command {id} in this sandbox; 'list' names those that are"),
    )
}

fn exec_io(id: &ExecId, what: &str, error: &io::Error) -> Error {
    let code = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => ErrorCode::NoSpace,
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => ErrorCode::PermissionDenied,
        Some(rustix::io::Errno::ROFS) => ErrorCode::ReadOnly,
        _ => ErrorCode::Io,
    };
    Error::new(code, format!("command {id}: {what}: {error}"))
}
